"""Imported graphs: the same bytes from every form, attributes that stay with their edges, ids of any type."""

import datetime
import itertools
import math
import os

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.assets.sources.edges import edge_tables
from graphmill.assets.sources.registry import config_class
from graphmill.assets.sources.tables.config import NodeTable, RelationTable
from graphmill.kernels.errors import InputError
from tests.assets.sources import own_data
from tests.assets.sources.own_data import FORMS, Drawn, build, contents, staging, write_gz

pytestmark = pytest.mark.usefixtures("quick_readers")


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    folder, graph = tmp_path_factory.mktemp("forms"), Drawn()
    return folder, {name: (source, write(folder, graph)) for name, (source, write) in FORMS.items()}


POLICIES = [
    {"undirected": undirected, "duplicates": duplicates, "self_loops": self_loops}
    for undirected, duplicates, self_loops in itertools.product((True, False), ("merge", "keep"), ("drop", "keep"))
]


@pytest.mark.parametrize("form", [name for name in FORMS if name != "npz"])
def test_every_form_gives_the_same_bytes(forms, tmp_path, form):
    _, written = forms
    policies = POLICIES if form in ("Parquet", "OGB binary") else [POLICIES[0], POLICIES[6]]
    for policy in policies:
        reference = build(tmp_path, "npz", **written["npz"][1], **policy)
        artifact = build(tmp_path, written[form][0], **written[form][1], **policy)
        assert contents(artifact) == contents(reference)
        assert artifact.numbers == reference.numbers
        assert artifact.verify() == [] and staging(tmp_path) == []


def test_threads_and_memory_change_no_byte(forms, tmp_path, monkeypatch):
    _, written = forms
    source, keys = written["Parquet"]
    monkeypatch.setattr("graphmill.assets.sources.spool.SORT_BYTES", 2 << 20)  # few edges fit: many ranges
    monkeypatch.setattr("graphmill.assets.sources.spool.BATCH_EDGES", 64)
    whole = [
        {
            (each.stage, name): (each.path / name).read_bytes()
            for each in (built.graph, built.features)
            for name in each.files
        }
        for threads, limit in ((1, "128MiB"), (2, "1GiB"), (8, "256MiB"))
        if (built := build(tmp_path / str(threads), source, threads=threads, **keys, memory_limit=limit))
    ]
    assert whole[0] == whole[1] == whole[2]


@pytest.mark.parametrize("kind", ["text", "sparse integers", "dates", "negative"])
def test_ids_of_any_type_are_numbered_in_their_order(tmp_path, kind):
    graph = Drawn(seed=3)
    numbers = np.arange(graph.num_nodes)
    names = {
        "text": np.array([f"n{i:03d}" for i in numbers]),
        "sparse integers": numbers * 10**12 + 5,
        "dates": numbers.astype("datetime64[D]"),
        "negative": numbers - 7,
    }[kind]
    own_data.edge_frame(graph, names).write_parquet(tmp_path / "edges.parquet")
    frame = own_data.node_frame(graph, names).sample(fraction=1, shuffle=True, seed=1)
    frame.write_parquet(tmp_path / "nodes.parquet")
    keys = {"edges": tmp_path / "edges.parquet", "label_column": "y", "split_column": "part", "features": "f*"}
    artifact = build(tmp_path, "edges", nodes=tmp_path / "nodes.parquet", name_column="part", **keys)
    reference = build(tmp_path, "npz", **own_data.write_npz(tmp_path, graph))
    assert contents(artifact) == contents(reference)
    table = pl.read_parquet(artifact.graph.file("nodes.parquet"))
    assert table["original_id"].to_list() == [
        str(name) if kind in ("text", "dates") else name for name in names.tolist()
    ]
    assert table["name"].to_list() == graph.part_names


@pytest.mark.parametrize("text", [True, False])
def test_without_node_tables_the_nodes_are_those_that_edges_name(tmp_path, text):
    frame = pl.DataFrame({"src": [30, 20, 20], "dst": [20, 10, 40]})
    frame = frame.cast(pl.String) if text else frame
    frame.write_csv(tmp_path / "edges.tsv", separator="\t")
    keys = {"edges": tmp_path / "edges.tsv", "undirected": False, "id_type": "text" if text else "auto"}
    artifact = build(tmp_path, "edges", **keys)
    graph = artifact.opened
    assert graph.topology.indptr.tolist() == [0, 1, 2, 2, 3] and graph.topology.indices.tolist() == [1, 2, 1]
    originals = pl.read_parquet(artifact.graph.file("nodes.parquet"))["original_id"].to_list()
    assert originals == (["10", "20", "30", "40"] if text else [10, 20, 30, 40])
    assert artifact.table.open().tolist() == [[1]] * 4


def test_a_number_of_nodes_keeps_isolated_ones(tmp_path):
    pl.DataFrame({"src": [0, 2], "dst": [2, 3]}).write_parquet(tmp_path / "edges.parquet")
    assert build(tmp_path, "edges", edges=tmp_path / "edges.parquet", num_nodes=9).opened.topology.num_nodes == 9
    with pytest.raises(InputError, match=r"1 of 2 edges name a node that is not in 0 to 2: .*row 1: 2 -> 3"):
        build(tmp_path, "edges", edges=tmp_path / "edges.parquet", num_nodes=3)


def expected_edges(src, dst, weight, kind, policy, *, num_types, own, total):
    """What the columns of a typed, weighted graph must be, edge by edge."""
    found = {}
    for row, (u, v, w, t) in enumerate(zip(src, dst, weight, kind, strict=True)):
        if u == v:
            if policy["self_loops"] == "keep":
                found.setdefault((v, t, u), []).append((row, w))
            continue
        found.setdefault((v, t, u), []).append((row, w))
        if policy["undirected"]:
            found.setdefault((u, t + num_types if own else t, v), []).append((row, w))
    rows = []
    for (v, t, u), entries in sorted(found.items()):
        entries = sorted(entries)
        if policy["duplicates"] == "keep":
            rows += [(v, t, u, row, w) for row, w in entries]
        else:
            value = np.float32(sum(np.float64(w) for _, w in entries)) if total else entries[0][1]
            rows.append((v, t, u, entries[0][0], value))
    return rows


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(POLICIES), st.booleans(), st.booleans(), st.booleans())
def test_weights_types_and_ids_stay_with_their_edges(tmp_path_factory, seed, policy, own, total, text):
    folder, rng = tmp_path_factory.mktemp("typed"), np.random.default_rng(seed)
    count, num_nodes = 80, 12
    src, dst = rng.integers(0, num_nodes, (2, count))
    weight, kind = rng.random(count).astype(np.float32), rng.integers(0, 3, count)
    ids = np.array([f"{i:02d}x" for i in range(num_nodes)]) if text else np.arange(num_nodes)
    frame = pl.DataFrame({"src": ids[src], "dst": ids[dst], "w": weight, "t": np.array(["a", "b", "c"])[kind]})
    frame[:30].write_parquet(folder / "e-0.parquet")
    frame[30:].write_parquet(folder / "e-1.parquet")
    pl.DataFrame({"id": ids}).write_parquet(folder / "nodes.parquet")
    keys = {"weight_column": "w", "type_column": "t", "edge_ids": True, "nodes": folder / "nodes.parquet"}
    keys |= {"reverse_types": "own" if own else "same", "merge_weights": "sum" if total else "first", **policy}
    artifact = build(folder, "edges", edges=(folder / "e-0.parquet", folder / "e-1.parquet"), **keys)
    topology = artifact.opened.topology
    assert topology.weights is not None and topology.edge_types is not None and topology.edge_ids is not None
    rows = np.repeat(np.arange(num_nodes), np.diff(topology.indptr))
    found = list(
        zip(rows.tolist(), topology.edge_types.tolist(), topology.indices.tolist(), topology.edge_ids.tolist(),
            topology.weights.tolist(), strict=True)
    )  # fmt: skip
    num_types = len(set(kind.tolist()))
    ranks = {value: rank for rank, value in enumerate(sorted(set(kind.tolist())))}
    kind = [ranks[value] for value in kind.tolist()]
    wanted = expected_edges(
        src.tolist(), dst.tolist(), weight.tolist(), kind, policy, num_types=num_types, own=own, total=total
    )
    assert found == [(*row[:4], float(np.float32(row[4]))) for row in wanted]
    names = artifact.numbers["edge_types"]
    assert len(names) == num_types * (2 if own and policy["undirected"] else 1)


def test_labels_by_name_and_unknown_ones(tmp_path):
    pl.DataFrame({"src": [0, 1], "dst": [1, 2]}).write_csv(tmp_path / "edges.csv")
    pl.DataFrame({"id": [0, 1, 2], "y": ["dog", None, "cat"]}).write_csv(tmp_path / "nodes.csv")
    keys = {"edges": tmp_path / "edges.csv", "nodes": tmp_path / "nodes.csv", "label_column": "y", "labels": "names"}
    graph = build(tmp_path, "edges", **keys).opened
    assert graph.labels.tolist() == [1, -1, 0] and graph.class_names == ("cat", "dog")


@pytest.mark.parametrize(
    ("values", "labels", "names"),
    [
        (pl.Series("y", [2.0, math.nan, 1.0, None]), [1, -1, 0, -1], ("1", "2")),
        (pl.Series("y", ["b", "  ", "a", None]), [1, -1, 0, -1], ("a", "b")),
        (pl.Series("y", [True, None, False, True]), [1, -1, 0, 1], ("false", "true")),
        (pl.Series("y", ["b", "a", "a", None], pl.Categorical), [1, 0, 0, -1], ("a", "b")),
    ],
)
def test_a_missing_label_is_no_class(tmp_path, values, labels, names):
    pl.DataFrame({"src": [0, 1, 2], "dst": [1, 2, 3]}).write_parquet(tmp_path / "edges.parquet")
    pl.DataFrame({"id": [0, 1, 2, 3]}).with_columns(values).write_parquet(tmp_path / "nodes.parquet")
    keys = {"edges": tmp_path / "edges.parquet", "nodes": tmp_path / "nodes.parquet", "label_column": "y"}
    graph = build(tmp_path, "edges", **keys, labels="names").opened
    assert graph.labels.tolist() == labels and graph.class_names == names


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (pl.Series("y", [0.5, 1.0, math.nan]), "holds 0.5, a number that is not whole"),
        (pl.Series("y", [math.inf, 1.0, 2.0]), "holds inf, a number that is not whole"),
        (pl.Series("y", [[0, 1], [1], []]), "its values name no classes"),
        (pl.Series("y", [datetime.date(2024, 1, 1)] * 3), "is DATE, and its values name no classes"),
    ],
)
def test_values_that_are_no_classes_are_refused(tmp_path, values, problem):
    pl.DataFrame({"src": [0, 1], "dst": [1, 2]}).write_parquet(tmp_path / "edges.parquet")
    pl.DataFrame({"id": [0, 1, 2]}).with_columns(values).write_parquet(tmp_path / "nodes.parquet")
    keys = {"edges": tmp_path / "edges.parquet", "nodes": tmp_path / "nodes.parquet", "label_column": "y"}
    with pytest.raises(InputError, match=problem) as raised:
        build(tmp_path, "edges", **keys, labels="names")
    assert "without [task] a node has one class" in raised.value.remedy


def test_feature_types_are_kept(tmp_path):
    pl.DataFrame({"src": [0, 1], "dst": [1, 2]}).write_parquet(tmp_path / "edges.parquet")
    for dtype, stored in (
        (pl.Int8, "int8"), (pl.UInt8, "uint8"), (pl.Boolean, "uint8"), (pl.Float64, "float64"), (pl.Int64, "float32"),
    ):  # fmt: skip
        series = pl.Series("f", [0, 1, 1]).cast(dtype)
        pl.DataFrame({"id": [0, 1, 2]}).with_columns(series).write_parquet(tmp_path / "nodes.parquet")
        keys = {"edges": tmp_path / "edges.parquet", "nodes": tmp_path / "nodes.parquet"}
        table = build(tmp_path, "edges", features="f", **keys).table
        assert table.dtype == stored and table.open().tolist() == [[0], [1], [1]]


def test_numpy_and_tables_normalise_alike(forms, tmp_path):
    _, written = forms
    pair = [contents(build(tmp_path, written[f][0], **written[f][1], normalize="row")) for f in ("npz", "Parquet")]
    assert pair[0] == pair[1]


def typed_reference(graph):
    """Node ids and edge types of the typed graph below: authors 0 to 4, papers 5 to 14."""
    topology = graph.topology
    assert topology.node_type_ptr.tolist() == [0, 5, 15]
    rows = np.repeat(np.arange(15), np.diff(topology.indptr))
    return sorted(zip(topology.indices.tolist(), rows.tolist(), topology.edge_types.tolist(), strict=True))


WRITES = [(0, 1), (4, 9), (2, 3)]
CITES = [(9, 0), (1, 2)]
TYPED_EDGES = sorted([(a, 5 + p, 0) for a, p in WRITES] + [(5 + p, 5 + q, 1) for p, q in CITES])
PAPER_X = np.arange(20, dtype=np.float32).reshape(10, 2)


def check_typed(artifact):
    graph, table = artifact.opened, artifact.table
    assert typed_reference(graph) == TYPED_EDGES
    assert np.array_equal(table.open(), PAPER_X) and table.row_of.tolist() == [-1] * 5 + list(range(10))
    assert graph.labels.tolist() == [-1] * 5 + [0, 1] * 5
    numbers = artifact.numbers
    assert numbers["node_types"] == ["author", "paper"] and numbers["num_without_features"] == 5
    assert numbers["edge_types"] == ["author/writes/paper", "paper/cites/paper"]
    return graph


def test_heterographs_of_dgl_become_typed(tmp_path):
    os.environ.setdefault("DGLBACKEND", "pytorch")
    import dgl
    import torch

    ends = {("author", "writes", "paper"): WRITES, ("paper", "cites", "paper"): CITES}
    made = dgl.heterograph(
        {
            key: (torch.tensor([a for a, _ in pairs]), torch.tensor([b for _, b in pairs]))
            for key, pairs in ends.items()
        },
        num_nodes_dict={"author": 5, "paper": 10},
    )
    made.nodes["paper"].data["feat"] = torch.tensor(PAPER_X)
    made.nodes["paper"].data["label"] = torch.tensor([0, 1] * 5)
    for key in ends:
        made.edges[key].data["w"] = torch.arange(made.num_edges(key)).float()
    dgl.save_graphs(str(tmp_path / "graph.bin"), [made])
    graph = check_typed(build(tmp_path, "dgl", path=tmp_path / "graph.bin", undirected=False, weight="w"))
    assert sorted(graph.topology.weights.tolist()) == [0, 0, 1, 1, 2]


def test_typed_folders_of_ogb(tmp_path):
    mag, lsc = tmp_path / "ogbn_mag", write_typed_arrays(tmp_path)
    write_gz(mag / "raw/num-node-dict.csv.gz", [["paper", "author"], [10, 5]])
    write_gz(mag / "raw/triplet-type-list.csv.gz", [["paper", "cites", "paper"], ["author", "writes", "paper"]])
    for name, pairs in (("author___writes___paper", WRITES), ("paper___cites___paper", CITES)):
        write_gz(mag / f"raw/relations/{name}/edge.csv.gz", pairs)
        write_gz(mag / f"raw/relations/{name}/num-edge-list.csv.gz", [[len(pairs)]])
    write_gz(mag / "raw/node-feat/paper/node-feat.csv.gz", PAPER_X.tolist())
    write_gz(mag / "raw/node-label/paper/node-label.csv.gz", [[0], [1]] * 5)
    for part, ids in (("train", [0, 1]), ("valid", [2]), ("test", [3])):
        write_gz(mag / f"split/time/paper/{part}.csv.gz", [[i] for i in ids])
    for folder in (mag, lsc):
        graph = check_typed(build(tmp_path, "ogb", path=folder, undirected=False))
        assert graph.train_ids.tolist() == [5, 6] and graph.valid_ids.tolist() == [7] and graph.test_ids.tolist() == [8]


def write_typed_arrays(tmp_path, *, features=True):
    """Returns a folder in the form of MAG240M: authors 0 to 4, papers 5 to 14."""
    folder = tmp_path / "typed"
    for name, pairs in (("author___writes___paper", WRITES), ("paper___cites___paper", CITES)):
        (folder / "processed" / name).mkdir(parents=True)
        np.save(folder / "processed" / name / "edge_index.npy", np.array(pairs).T)
    (folder / "processed" / "paper").mkdir()
    if features:
        np.save(folder / "processed/paper/node_feat.npy", PAPER_X)
    np.save(folder / "processed/paper/node_label.npy", np.array([0, 1] * 5, np.float32))
    write_split_dict(folder / "split_dict.pt")
    return folder


def write_split_dict(path):
    import torch

    torch.save({"train": np.array([0, 1]), "valid": np.array([2]), "test": np.array([3])}, path)


def test_a_graph_that_is_sampled_carries_its_attributes(tmp_path):
    from graphmill.kernels.sampling.sample import Sampler
    from graphmill.kernels.types import BatchKey

    frame = pl.DataFrame({"src": [0, 1, 2], "dst": [3, 3, 3], "w": [0.5, 1.5, 2.5], "t": [2, 0, 1]})
    frame.write_parquet(tmp_path / "edges.parquet")
    keys = {"weight_column": "w", "type_column": "t", "edge_ids": True, "undirected": False}
    topology = build(tmp_path, "edges", edges=tmp_path / "edges.parquet", **keys).opened.topology
    (block,) = Sampler(topology, [-1], seed=0).sample(BatchKey(0, 0, 0), [3], edge_ids=True)
    assert block.edge_type.tolist() == [0, 1, 2] and block.edge_id.tolist() == [1, 2, 0]
    assert block.weight.tolist() == [1.5, 2.5, 0.5]


def test_surveys_say_what_is_built(forms, tmp_path):
    _, written = forms
    for source, keys in written.values():
        config = config_class(source)(**keys, duplicates="keep", self_loops="keep")
        survey = config.survey()
        numbers = build(tmp_path, source, **keys, duplicates="keep", self_loops="keep").numbers
        assert survey.num_nodes == numbers["num_nodes"] and survey.num_features == numbers["num_features"]
        assert survey.table_bytes == numbers["feature_bytes"]
        # A self-loop is its own reverse, so it is stored once.
        assert numbers["num_edges"] == survey.num_edges - numbers["num_self_loops"]
        assert survey.memory_bytes > 512 << 20 and "would be built" in survey.lines()


def test_a_survey_refuses_class_names_that_are_read_as_numbers(tmp_path):
    """The build would refuse them after the edges were read."""
    pl.DataFrame({"src": [0, 1], "dst": [1, 2]}).write_parquet(tmp_path / "edges.parquet")
    pl.DataFrame({"id": [0, 1, 2], "y": ["a", "b", "a"]}).write_parquet(tmp_path / "nodes.parquet")
    table = NodeTable(path=tmp_path / "nodes.parquet", id_column="id", label_column="y")
    relation = RelationTable(path=tmp_path / "edges.parquet", source_type="n", target_type="n")
    plain = {"edges": tmp_path / "edges.parquet", "nodes": table.path, "label_column": "y"}
    for source, keys in (("edges", plain), ("tables", {"nodes": {"n": table}, "edges": {"e": relation}})):
        with pytest.raises(InputError, match="column 'y' is VARCHAR, not class numbers") as error:
            config_class(source)(**keys).survey()
        assert 'labels = "names"' in error.value.remedy


def test_the_place_of_tables_is_not_their_content(forms, tmp_path):
    folder, written = forms
    artifact = build(tmp_path, "edges", **written["Parquet"][1])
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in (*folder.glob("edges-*.parquet"), folder / "nodes.parquet"):
        (moved / path.name).write_bytes(path.read_bytes())
    keys = written["Parquet"][1] | {"edges": moved / "edges-*.parquet", "nodes": moved / "nodes.parquet"}
    assert build(tmp_path, "edges", **keys, memory_limit="1GiB").reused == (True, True)
    assert artifact.graph.run_record()["locations"] and artifact.features.run_record()["locations"]


def test_too_many_edge_types(tmp_path, monkeypatch):
    assert edge_tables.EXAMPLES == 3
    pl.DataFrame({"src": [0] * 300, "dst": [1] * 300, "t": np.arange(300)}).write_parquet(tmp_path / "edges.parquet")
    with pytest.raises(InputError, match="more than 256 edge types"):
        build(tmp_path, "edges", edges=tmp_path / "edges.parquet", type_column="t")
    pl.DataFrame({"src": [0] * 200, "dst": [1] * 200, "t": np.arange(200)}).write_parquet(tmp_path / "edges.parquet")
    with pytest.raises(InputError, match="400 edge types, reverse ones included"):
        build(tmp_path, "edges", edges=tmp_path / "edges.parquet", type_column="t", reverse_types="own")
