"""Graphs from NumPy archives: what is read, and one clear error for each thing that can be wrong."""

import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.assets.building.stage import Silent
from graphmill.assets.sources.interface import TableConfig
from graphmill.assets.sources.npz import source
from graphmill.assets.sources.npz.source import NpzConfig
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import build_config

EDGES = np.array([[0, 1, 2, 3], [1, 2, 3, 0]])


def build(folder, arrays, **keys):
    np.savez(folder / "graph.npz", **arrays)
    return build_file(folder, folder / "graph.npz", **keys)


def build_file(folder, path, **keys):
    try:
        return build_config(folder / "home", NpzConfig(path=Path(path), **keys), threads=1)
    finally:
        staging = folder / "home" / "store" / ".staging"
        assert not staging.exists() or not list(staging.iterdir())


def whole(**changes):
    arrays = {
        "edge_index": EDGES,
        "num_nodes": np.int64(4),
        "x": np.arange(8, dtype=np.float32).reshape(4, 2),
        "y": np.array([0, 1, 0, -1]),
        "train": np.array([0]),
        "val": np.array([1]),
        "test": np.array([2]),
    } | changes
    return {name: array for name, array in arrays.items() if array is not None}


def test_reads_every_array(tmp_path):
    built = build(tmp_path, whole(), undirected=False)
    graph = built.opened
    assert graph.topology.indptr.tolist() == [0, 1, 2, 3, 4]
    assert graph.topology.indices.tolist() == [3, 0, 1, 2]
    assert built.table.open().tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert graph.labels.tolist() == [0, 1, 0, -1] and graph.num_classes == 2
    assert [part.tolist() for part in (graph.train_ids, graph.valid_ids, graph.test_ids)] == [[0], [1], [2]]
    assert graph.train_ids.dtype == graph.topology.indices.dtype == np.int32


def test_edges_alone_are_a_graph(tmp_path):
    artifact = build(tmp_path, {"edge_index": EDGES})
    graph = artifact.opened
    assert graph.topology.num_nodes == 4 and graph.topology.num_edges == 8
    assert artifact.table.open().tolist() == [[1]] * 4
    assert graph.num_classes == 0 and len(graph.train_ids) == 0
    assert artifact.verify() == []


def test_policies_for_loops_and_duplicates(tmp_path):
    edges = np.array([[0, 0, 1, 2, 2], [1, 1, 0, 2, 0]])
    for undirected, duplicates, self_loops, expected in (
        (True, "merge", "drop", 4), (False, "merge", "drop", 3), (False, "keep", "drop", 4), (False, "keep", "keep", 5),
    ):  # fmt: skip
        keys = {"undirected": undirected, "duplicates": duplicates, "self_loops": self_loops}
        artifact = build(tmp_path, {"edge_index": edges}, **keys)
        assert artifact.numbers["num_edges"] == expected
        assert artifact.numbers["num_self_loops"] == 1


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_sparse_and_dense_features_are_the_same(tmp_path_factory, num_nodes, width, seed):
    folder = tmp_path_factory.mktemp("features")
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, (num_nodes, width)).astype(np.int8) * rng.integers(0, 2, (num_nodes, width), np.int8)
    rows, columns = np.nonzero(x)
    edges = {"edge_index": rng.integers(0, num_nodes, (2, 50)), "num_nodes": np.int64(num_nodes)}
    sparse = edges | {
        "x_indptr": np.searchsorted(rows, np.arange(num_nodes + 1)),
        "x_indices": columns,
        "x_data": x[rows, columns],
        "x_shape": np.array(x.shape),
    }
    for arrays in (sparse, edges | {"x": x}, edges | {"x": np.asfortranarray(x)}):
        np.savez(folder / "graph.npz", **arrays)
        with NpzConfig(path=folder / "graph.npz").opened((), folder, None, Silent()) as opened:
            (block,) = opened.blocks(TableConfig())
            table = np.concatenate([rows for _, rows in block.slices()])
        assert block.dtype == table.dtype == np.int8 and np.array_equal(table, x)


def test_rows_are_normalised_by_their_absolute_sum(tmp_path):
    x = np.array([[1, 3], [0, 0], [-1, 1], [5, 0]], np.int8)
    table = build(tmp_path, whole(x=x), normalize="row").table
    assert table.dtype == "float32"
    assert table.open().tolist() == [[0.25, 0.75], [0, 0], [-0.5, 0.5], [1, 0]]


def test_one_mask_is_one_split_and_inspect_shows_it(tmp_path):
    lists = dict.fromkeys(("train", "val", "test"))
    masks = {f"{part}_masks": np.arange(4) == place for place, part in enumerate(("train", "val", "test"))}
    graph = build(tmp_path, whole(**lists, **masks)).opened
    assert [part.tolist() for part in (graph.train_ids, graph.valid_ids, graph.test_ids)] == [[0], [1], [2]]
    shown = NpzConfig(path=tmp_path / "graph.npz").survey().lines()
    assert any("1 split, number 0: train 1, validation 1, test 1" in line for line in shown)
    assert any("2 classes, 1 nodes without a label" in line for line in shown)
    np.savez(
        tmp_path / "graph.npz", **whole(edge_index=np.concatenate([EDGES.T] * 2), extra=np.zeros(3), x=None, feat=EDGES)
    )
    survey = NpzConfig(path=tmp_path / "graph.npz", undirected=False).survey()
    assert survey.num_edges == 8
    assert set(survey.notes) == {
        "not read: arrays extra, feat", "rename feat to x, so that it is read",
        "edge_index is [E, 2] and cannot be built: save edge_index.T"
    }  # fmt: skip


def test_masks_are_chosen_by_split(tmp_path):
    masks = {name: np.zeros((2, 4), bool) for name in ("train_masks", "val_masks", "test_masks")}
    masks["train_masks"][1, 2] = masks["val_masks"][1, 0] = masks["train_masks"][0, 1] = True
    lists = {"train": None, "val": None, "test": None}
    graph = build(tmp_path, whole(**lists, **masks), split=1).opened
    assert graph.train_ids.tolist() == [2] and graph.valid_ids.tolist() == [0] and graph.test_ids.tolist() == []
    assert build(tmp_path, whole(**lists, **masks)).opened.train_ids.tolist() == [1]
    both = whole(**masks)
    assert build(tmp_path, both).opened.train_ids.tolist() == sorted(both["train"].tolist()), "ids win without `split`"
    assert build(tmp_path, both, split=1).opened.train_ids.tolist() == [2], "masks win with it"
    with pytest.raises(InputError, match="train_masks: split = 2, but there are 2"):
        build(tmp_path, whole(**lists, **masks), split=2)


def test_gnn_benchmark_form_with_pickled_names(tmp_path):
    arrays = {
        "adj_indptr": np.array([0, 1, 2, 2]), "adj_indices": np.array([1, 2]), "adj_data": np.ones(2, np.float32),
        "adj_shape": np.array([3, 3]), "attr_indptr": np.array([0, 1, 1, 2]), "attr_indices": np.array([1, 0]),
        "attr_data": np.ones(2, np.float32), "attr_shape": np.array([3, 2]), "labels": np.array([0, 1, 1]),
        "class_names": np.array(["a", None], dtype=object),
    }  # fmt: skip
    built = build(tmp_path, arrays, undirected=False)
    graph = built.opened
    assert graph.topology.indptr.tolist() == [0, 0, 1, 2] and graph.topology.indices.tolist() == [0, 1]
    assert built.table.open().tolist() == [[0, 1], [0, 0], [1, 0]]
    assert graph.class_names == ("0", "1")
    plain = build(tmp_path, arrays | {"class_names": np.array(["cat", "dog"])}).opened
    assert plain.class_names == ("cat", "dog")


NAN = np.zeros((4, 2), np.float32)
NAN[2, 1] = np.nan
BAD = {
    "ids out of range": (whole(edge_index=np.array([[0, 9], [1, -2]])), r"1 of 2 edges .* edge 1 is 9 -> -2"),
    "nan features": (whole(x=NAN), "row 2 column 1 is nan"),
    "infinite features": (whole(x=np.full((4, 1), np.inf)), "row 0 column 0 is inf"),
    "overlap": (whole(val=np.array([0]), test=np.array([0, 1])), "train and valid overlap in 1 nodes: 0"),
    "ids twice": (whole(train=np.array([0, 0])), "train: 1 ids occur twice: 0"),
    "split outside": (whole(test=np.array([7])), r"test: 1 ids outside \[0, 4\): 7"),
    "no label": (whole(test=np.array([3])), "test: 1 nodes have no label: 3"),
    "half a split": (whole(val=None), "the split lacks val"),
    "no edges": (whole(edge_index=np.zeros((2, 0), np.int64)), "has no edges"),
    "loops only": (whole(edge_index=np.array([[1], [1]])), "has edges: 0 edges after loops"),
    "transposed": (whole(edge_index=EDGES.T), r"shape \[4, 2\], not \[2, E\]; it looks transposed"),
    "float edges": (whole(edge_index=EDGES * 1.0), "edge_index is float64, not integers"),
    "flat edges": (whole(edge_index=EDGES[0]), r"shape \[4\], not \[2, E\]"),
    "missing edges": (whole(edge_index=None), "has no edge_index; it holds num_nodes"),
    "ragged": (whole(y=np.zeros(3, int)), "disagree about the number of nodes: num_nodes 4, y 3, x 4"),
    "labels too low": (whole(y=np.array([0, -5, 0, 0])), "node 1 has -5"),
    "labels too high": (whole(y=np.array([0, 99, 0, 0])), "node 1 has 99"),
    "text features": (whole(x=np.full((4, 2), "a")), "features of type <U1 cannot be trained on"),
    "complex features": (whole(x=np.zeros((4, 2), complex)), "complex128 cannot be trained on"),
    "flat features": (whole(x=np.zeros(4)), r"x has shape \[4\], not \[N, F\]"),
    "other name of x": (whole(x=None, features=np.ones((4, 2))), "'features' is not read .did you mean 'x'"),
    "other name of y": (whole(y=None, node_labels=np.zeros(4, int)), "'node_labels' is not read .did you mean 'y'"),
    "mask of other nodes": (whole(train=np.zeros(5, bool)), r"train has shape \[5\], not \[4\]"),
    "misspelt": (whole(train_mask=np.zeros((1, 4), bool)), "did you mean 'train_masks'"),
    "pickled edges": (whole(edge_index=np.array([[0], [{}]], dtype=object)), "pickled Python objects"),
    "pickled extra": (whole(notes=np.array([{}], dtype=object)), "'notes' holds pickled Python objects"),
    "ragged lists": (whole(x=np.array([[1], [1, 2], [], []], dtype=object)), "'x' holds pickled Python objects"),
    "half sparse": (whole(x=None, x_indptr=np.zeros(5, int)), "lack x_indices, x_data, x_shape"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_arrays_are_one_clear_error(tmp_path, case):
    arrays, message = BAD[case]
    with pytest.raises(InputError, match=message) as caught:
        build(tmp_path, arrays)
    assert caught.value.remedy
    assert not [each for each in Store(tmp_path / "home").artifacts() if each.stage == "graph"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_indptr": np.array([0, 2, 1, 2, 2])}, "x_indptr falls after row 1"),
        ({"x_indptr": np.array([0, 1, 2, 2, 9])}, "runs from 0 to 9, not from 0 to 2"),
        ({"x_indices": np.array([0, 7])}, "x row 1 has column 7 of 2"),
        ({"x_indptr": np.array([0, 2, 2, 2, 2]), "x_indices": np.array([1, 1])}, "row 0 has a column twice"),
        ({"x_shape": np.array([5, 2])}, r"x_shape is \[5, 2\], not \[4, F\]"),
        ({"x_data": np.ones(3)}, "values for"),
    ],
)
def test_bad_sparse_features(tmp_path, change, message):
    sparse = {
        "x_indptr": np.array([0, 1, 2, 2, 2]), "x_indices": np.array([0, 1]),
        "x_data": np.ones(2), "x_shape": np.array([4, 2]),
    }  # fmt: skip
    with pytest.raises(InputError, match=message):
        build(tmp_path, whole(x=None, **(sparse | change)))


def test_missing_file_and_no_archive(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.npz"):
        build_file(tmp_path, tmp_path / "nowhere.npz")
    (tmp_path / "text.npz").write_text("not a zip")
    with pytest.raises(InputError, match="is no npz archive, or a truncated one"):
        build_file(tmp_path, tmp_path / "text.npz")
    with pytest.raises(InputError):
        build_file(tmp_path, tmp_path)


@pytest.mark.parametrize("moved", [1000, 1 << 30, -1000])
def test_a_directory_that_names_wrong_places_is_one_error(tmp_path, moved):
    """A bit of the archive's last record: the members seem to begin before the file, or behind it."""
    np.savez(tmp_path / "graph.npz", **whole())
    data = bytearray((tmp_path / "graph.npz").read_bytes())
    place = data.rindex(b"PK\x05\x06") + 16
    (offset,) = struct.unpack_from("<I", data, place)
    struct.pack_into("<I", data, place, offset + moved)
    (tmp_path / "graph.npz").write_bytes(data)
    with pytest.raises(InputError, match=r"is damaged|truncated"):
        build_file(tmp_path, tmp_path / "graph.npz")


def test_damaged_bytes_and_lying_headers(tmp_path):
    np.savez(tmp_path / "good.npz", **whole(x=np.ones((4, 4096), np.float32)))
    good = (tmp_path / "good.npz").read_bytes()
    place = good.index(np.ones(8, np.float32).tobytes()) + 4000
    (tmp_path / "flipped.npz").write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
    with pytest.raises(InputError, match="array 'x' is damaged: Bad CRC"):
        build_file(tmp_path, tmp_path / "flipped.npz")
    (tmp_path / "cut.npz").write_bytes(good[: len(good) // 2])
    with pytest.raises(InputError, match="truncated"):
        build_file(tmp_path, tmp_path / "cut.npz")
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (4, 99999999999), }"
    with zipfile.ZipFile(tmp_path / "liar.npz", "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + bytes([118, 0]) + header.ljust(117) + b"\n" + bytes(32))
        archive.write(tmp_path / "good.npz", "edge_index.npy")
    with pytest.raises(InputError, match="is damaged"):
        build_file(tmp_path, tmp_path / "liar.npz")


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    np.savez(tmp_path / "graph.npz", **whole())
    read = source.EdgeListSource.blocks

    def read_then_change(*arguments):
        found = read(*arguments)
        np.savez(tmp_path / "graph.npz", **whole(y=np.array([1, 1, 0, -1])))
        return found

    monkeypatch.setattr(source.EdgeListSource, "blocks", read_then_change)
    with pytest.raises(InputError, match="changed while it was built: npz"):
        build_file(tmp_path, tmp_path / "graph.npz")
    assert Store(tmp_path / "home").artifacts() == []


def test_the_path_is_not_the_content(tmp_path):
    for name in ("one.npz", "two.npz"):
        np.savez(tmp_path / name, **whole())
    first, second = (build_file(tmp_path, tmp_path / name) for name in ("one.npz", "two.npz"))
    assert first.versions == second.versions and second.reused == (True, True)
    divided = build_file(tmp_path, tmp_path / "one.npz", normalize="row")
    assert divided.reused == (True, False)


REAL = os.environ.get("GRAPHMILL_TEST_DATA")


@pytest.mark.skipif(not REAL, reason="GRAPHMILL_TEST_DATA names no folder of real graphs")
@pytest.mark.parametrize(
    ("name", "nodes", "edges", "width", "classes", "split"),
    [
        ("cora", 2708, 10556, 1433, 7, (140, 500, 1000)),
        ("photo", 7650, 238162, 745, 8, (4590, 1530, 1530)),
        ("minesweeper", 10000, 78804, 7, 2, (5000, 2500, 2500)),
    ],
)
def test_real_graphs(tmp_path, name, nodes, edges, width, classes, split):
    path = Path(REAL or "") / f"{name}.npz"
    built = build_file(tmp_path, path)
    graph = built.opened
    assert (graph.topology.num_nodes, graph.topology.num_edges) == (nodes, edges)
    assert (built.table.width, graph.num_classes) == (width, classes)
    assert (len(graph.train_ids), len(graph.valid_ids), len(graph.test_ids)) == split
    assert np.array_equal(graph.topology.in_degree, graph.topology.out_degree)


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"x": np.ones(4)}, r"x has shape \[4\], not \[N, F\]"),
        ({"x": np.ones((4, 2, 3))}, r"x has shape \[4, 2, 3\], not \[N, F\]"),
        ({"y": np.int64(3)}, "y is one number, not a label for each node"),
        ({"x_data": np.ones(2), "x_shape": np.array([1, 2, 3])}, r"x_shape holds \[1, 2, 3\]"),
        ({"edge_index": np.int64(3)}, r"the edges have the shape \[\]"),
    ],
)
def test_a_survey_of_arrays_of_other_shapes_is_one_message(tmp_path, arrays, problem):
    np.savez(tmp_path / "graph.npz", **{"edge_index": np.array([[0, 1], [1, 0]])} | arrays)
    with pytest.raises(InputError, match=problem):
        NpzConfig(path=tmp_path / "graph.npz").survey()
