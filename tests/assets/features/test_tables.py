"""Feature tables: stored types, rows of some nodes, columns side by side, and files beside a source."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from graphmill.assets.building.stage import Silent, Summary
from graphmill.assets.features.read import NodeTypes, node_types, open_features
from graphmill.assets.sources.features.blocks import (
    FeatureBlock,
    blocks_type,
    blocks_width,
    columns_of_types,
    write_blocks,
)
from graphmill.assets.sources.features.types import common_type, rounded_to_bfloat16, widened
from graphmill.assets.sources.interface import TableConfig
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Topology
from tests.assets.sources.own_data import Drawn, build, build_config, node_frame, write_parquet
from tests.assets.storage.tiny_artifacts import numbers_of


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-(2.0**127), 2.0**127, width=32), min_size=1, max_size=40))
def test_bfloat16_is_rounded_as_torch_does(values):
    values = np.array(values, np.float32)
    bits = rounded_to_bfloat16(values)
    expected = torch.from_numpy(values).to(torch.bfloat16)
    assert np.array_equal(bits, expected.view(torch.int16).numpy().view(np.uint16))
    assert np.array_equal(widened(bits), expected.float().numpy())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "as stored"])
@pytest.mark.parametrize("source", ["rmat", "edges"])
def test_stored_types(tmp_path, source, dtype):
    table = TableConfig(dtype=dtype)
    if source == "rmat":
        config = config_class("rmat")(nodes=500, edges=2000, features=9)
        built, plain = (build_config(tmp_path, config, table=each) for each in (table, None))
    else:
        keys = write_parquet(tmp_path, Drawn())
        built, plain = (build(tmp_path, "edges", table=each, **keys) for each in (table, None))
    rows, wanted = np.asarray(built.table.open()), np.asarray(plain.table.open())
    assert built.graph.version == plain.graph.version
    assert (built.features.version == plain.features.version) == (dtype == "as stored")
    if dtype == "bfloat16":
        assert rows.dtype == np.uint16
        assert np.array_equal(rows, rounded_to_bfloat16(wanted.astype(np.float32)))
    else:
        assert rows.dtype == ("float32" if dtype == "as stored" else dtype)
        assert np.array_equal(rows, wanted.astype(rows.dtype))
    assert built.numbers["feature_dtype"] == ("float32" if dtype == "as stored" else dtype)
    assert built.numbers["feature_bytes"] == rows.nbytes


@pytest.mark.parametrize(("dtype", "value"), [("float16", 70000.0), ("bfloat16", 3.4e38), ("float32", 1e300)])
def test_a_value_that_the_stored_type_cannot_hold_is_refused(tmp_path, dtype, value):
    pl.DataFrame({"src": [0, 1], "dst": [1, 2]}).write_parquet(tmp_path / "edges.parquet")
    pl.DataFrame({"id": [0, 1, 2], "f": [0.0, value, 1.0]}).write_parquet(tmp_path / "nodes.parquet")
    keys = {"edges": tmp_path / "edges.parquet", "nodes": tmp_path / "nodes.parquet", "features": "f"}
    with pytest.raises(InputError, match=rf"nodes.parquet: row 1: column 'f' is .*, which {dtype} cannot hold"):
        build(tmp_path, "edges", table=TableConfig(dtype=dtype), **keys)
    assert not Store(tmp_path).artifacts()


def block(first, rows, place=None):
    return FeatureBlock(
        where=f"block {first}",
        first=first,
        num_rows=len(rows),
        width=rows.shape[1],
        dtype=rows.dtype,
        slices=lambda: iter([(low, rows[low : low + 3]) for low in range(0, len(rows), 3)]),
        place=lambda row, column: f"row {row} column {column}",
        node_of_row=place,
    )


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_rows_stand_in_the_order_of_their_nodes(tmp_path_factory, data):
    """Blocks in any order, some with shuffled rows, gaps between them: every node finds its own row, and only rows are stored."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    sizes = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=6))
    covered = data.draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes)))
    ends = np.cumsum([0, *sizes])
    wanted, blocks = {}, []
    for first, size, has in zip(ends[:-1].tolist(), sizes, covered, strict=True):
        if not has or not size:
            continue
        rows, place = rng.standard_normal((size, 2)).astype(np.float32), rng.permutation(size) + first
        wanted |= dict(zip(place.tolist(), rows.tolist(), strict=True))
        blocks.append(block(first, rows, place))
    if not blocks:
        return
    rng.shuffle(blocks)
    with Store(tmp_path_factory.mktemp("home")).writer("features", "0" * 64) as writer:
        write_blocks(writer, int(ends[-1]), blocks, "as stored", "none", Silent())
        numbers = numbers_of("features") | {"num_rows": len(wanted), "num_features": blocks_width(blocks)}
        artifact = writer.publish({}, {}, Summary(numbers=numbers), {})
    table = open_features(artifact)
    rows = np.asarray(table.open())
    assert table.num_rows == len(wanted) and table.num_nodes == ends[-1]
    assert (table.row_of is None) == (len(wanted) == ends[-1])
    place = table.rows_of(np.arange(ends[-1]))
    assert [node for node in range(ends[-1]) if place[node] >= 0] == sorted(wanted)
    assert all(rows[place[node]].tolist() == row for node, row in wanted.items())
    assert np.array_equal(place[place >= 0], np.arange(len(wanted)))


def test_rows_of_narrower_types_end_with_zeros(tmp_path):
    """The table is as wide as the widest block, in a type that has the values of all, and the columns of each type are known."""
    rng = np.random.default_rng(5)
    wide, narrow = rng.standard_normal((4, 5)).astype(np.float32), rng.integers(0, 9, (3, 2)).astype(np.int8)
    blocks = [block(6, narrow, np.array([8, 6, 7])), block(0, wide, np.arange(4))]
    types = {"author": 4, "city": 2, "paper": 3, "nothing": 0}
    assert blocks_width(blocks) == 5 and blocks_type(blocks, "as stored", "none") == "float32"
    assert columns_of_types(blocks, types) == [5, 0, 2, 0]
    with Store(tmp_path).writer("features", "0" * 64) as writer:
        write_blocks(writer, 9, blocks, "as stored", "none", Silent())
        numbers = {"num_rows": 7, "num_features": 5, "type_columns": columns_of_types(blocks, types)}
        artifact = writer.publish({}, {}, Summary(numbers=numbers_of("features") | numbers), {})
    table = open_features(artifact)
    expected = np.zeros((7, 5), np.float32)
    expected[:4], expected[[6, 4, 5], :2] = wide, narrow
    assert np.array_equal(table.open(), expected) and table.rows_of(np.arange(9)).tolist() == [
        0,
        1,
        2,
        3,
        -1,
        -1,
        4,
        5,
        6,
    ]
    ptr = np.array([0, 4, 6, 9, 9])
    topology = Topology(indptr=ptr, indices=ptr, in_degree=ptr, out_degree=ptr, node_type_ptr=ptr)
    assert node_types(topology, table) == NodeTypes(starts=(0, 4, 6, 9, 9), columns=(5, 0, 2, 0))
    without = replace(table, type_columns=None)  # as artifacts of before say it: by the rows that are there
    assert node_types(topology, without) == NodeTypes(starts=(0, 4, 6, 9, 9), columns=(5, 0, 5, 0))
    assert node_types(replace(topology, node_type_ptr=None), table) is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["int8", "uint8"], "float32"),
        (["float16", "uint8"], "float16"),
        (["bfloat16", "float16"], "float32"),
        (["float64", "bfloat16"], "float64"),
        (["bfloat16", "bfloat16"], "bfloat16"),
    ],
)
def test_types_of_values_meet_in_one_that_has_them_all(given, expected):
    assert common_type(given) == common_type(given[::-1]) == expected


def test_columns_of_lists_and_numbers_stand_side_by_side(tmp_path):
    graph = Drawn()
    keys = write_parquet(tmp_path, graph)
    frame = pl.read_parquet(tmp_path / "nodes.parquet").with_columns(age=pl.Series(np.arange(60, dtype=np.float32)))
    frame.write_parquet(tmp_path / "nodes.parquet")
    table = TableConfig(columns=("age", "x", "y"))
    rows = build(tmp_path, "edges", table=table, **keys).table.open()
    assert np.array_equal(rows, np.concatenate([np.arange(60)[:, None], graph.x, graph.y[:, None]], axis=1))
    frame.with_columns(x=pl.when(pl.col("id") == 7).then(None).otherwise("x")).write_parquet(tmp_path / "nodes.parquet")
    with pytest.raises(InputError, match="row 7: column 'x' is empty"):
        build(tmp_path, "edges", table=table, **keys)


@pytest.mark.parametrize("form", ["npy", "safetensors", "bfloat16"])
def test_a_file_beside_shuffled_tables(tmp_path, form):
    """Rows of the file are those of the node tables, whose ids are text and in another order than the nodes."""
    graph = Drawn()
    names = np.array([f"n{number:03d}" for number in range(graph.num_nodes)])
    pl.DataFrame({"src": names[graph.src], "dst": names[graph.dst]}).write_parquet(tmp_path / "edges.parquet")
    frame = node_frame(graph, names).with_columns(row=pl.Series(np.arange(60))).sample(fraction=1, shuffle=True, seed=3)
    frame.write_parquet(tmp_path / "nodes.parquet")
    order = frame["row"].to_numpy()
    rows = graph.x[order]
    path = tmp_path / ("x.npy" if form == "npy" else "x.safetensors")
    if form == "npy":
        np.save(path, rows)
    else:
        tensor = torch.from_numpy(rows)
        save_file({"x": tensor.bfloat16() if form == "bfloat16" else tensor, "other": torch.zeros(3)}, path)
    keys = {"edges": tmp_path / "edges.parquet", "nodes": tmp_path / "nodes.parquet", "label_column": "y"}
    tensor = None if form == "npy" else "x"
    built = build(tmp_path, "edges", table=TableConfig(file=path, tensor=tensor), **keys)
    found = np.asarray(built.table.open())
    if form == "bfloat16":
        assert np.array_equal(widened(found), torch.from_numpy(graph.x).bfloat16().float().numpy())
        assert built.numbers["feature_dtype"] == "bfloat16"
    else:
        assert np.array_equal(found, graph.x) and found.dtype == np.float32
    again = build(tmp_path, "edges", table=TableConfig(file=path, tensor=tensor, dtype="float16"), **keys)
    assert again.reused == (True, False) and again.table.dtype == "float16"


def damaged(path):
    path.write_bytes(path.read_bytes()[:-20])


def not_finite(path):
    np.save(path, np.full((60, 2), np.inf, np.float32))


@pytest.mark.parametrize(
    ("name", "change", "keys", "message"),
    [
        (
            "x.npy",
            lambda path: np.save(path, np.zeros((59, 2))),
            {},
            r"x.npy is float64\[59, 2\], not numbers \[60, F\]",
        ),
        ("x.npy", lambda path: path.unlink(), {}, "x.npy does not exist"),
        ("x.npy", damaged, {}, "is no array of plain numbers"),
        ("x.npy", not_finite, {}, "x.npy row 0 column 0 is inf"),
        ("x.safetensors", damaged, {}, "is no whole safetensors file: it is cut short"),
        ("x.safetensors", lambda path: path.write_bytes(b"no tensors here"), {}, "is no whole safetensors file"),
        ("x.safetensors", lambda path: None, {"tensor": "y"}, "has no tensor 'y'; it has x"),
        ("x.txt", lambda path: path.write_text("1"), {}, "ends with neither .npy nor .safetensors"),
        ("x.npy", lambda path: None, {"node_type": "paper"}, "has no node type 'paper'"),
    ],
)
def test_a_wrong_file_is_one_clear_error(tmp_path, name, change, keys, message):
    path = tmp_path / name
    np.save(tmp_path / "x.npy", np.zeros((60, 2), np.float32))
    save_file({"x": torch.zeros((60, 2))}, tmp_path / "x.safetensors")
    change(path)
    with pytest.raises(InputError, match=message) as caught:
        build(tmp_path, "edges", table=TableConfig(file=path, **keys), **write_parquet(tmp_path, Drawn()))
    assert caught.value.remedy and not Store(tmp_path).artifacts()


def test_a_file_may_be_about_one_node_type(tmp_path):
    from tests.assets.sources.test_own_data import write_typed_arrays

    folder = write_typed_arrays(tmp_path, features=False)
    rows = np.arange(10, dtype=np.float16).reshape(5, 2)
    np.save(tmp_path / "authors.npy", rows)
    table = TableConfig(file=tmp_path / "authors.npy", node_type="author")
    built = build(tmp_path, "ogb", table=table, path=folder, undirected=False)
    assert np.array_equal(built.table.open(), rows)
    assert built.table.row_of.tolist() == [0, 1, 2, 3, 4, *[-1] * 10]
    assert built.numbers["num_without_features"] == 10


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tensor": "x"}, "tensor = 'x' needs a file"),
        ({"node_type": "paper"}, "node_type = 'paper' needs a file"),
        ({"dtype": "int4"}, "dtype = 'int4' is not one of"),
    ],
)
def test_impossible_keys(keys, message):
    with pytest.raises(InputError, match=message):
        TableConfig(**keys)


def test_columns_of_a_source_that_has_one_table(tmp_path):
    with pytest.raises(InputError, match="columns = 'x', but source = 'rmat' has one feature table"):
        build_config(tmp_path, config_class("rmat")(nodes=9, edges=9), table=TableConfig(columns="x"))


@pytest.mark.parametrize("normalize", ["none", "row"])
def test_values_that_float32_cannot_hold_are_named_with_their_node(tmp_path, normalize):
    x = np.ones((5, 3))
    x[3, 1], x[4, 0] = -1e300, 1e39
    np.savez(tmp_path / "graph.npz", edge_index=np.array([[0, 1], [1, 2]]), x=x)
    built = build(tmp_path, "npz", path=tmp_path / "graph.npz", normalize=normalize)
    said = {"none": "column 1 of node 3 is -1e+300", "row": None}
    assert built.features.summary["numbers"].get("beyond_float32") == said[normalize]
    with pytest.raises(InputError, match="which float32 cannot hold"):
        build(tmp_path, "npz", path=tmp_path / "graph.npz", table=TableConfig(dtype="float32"))
