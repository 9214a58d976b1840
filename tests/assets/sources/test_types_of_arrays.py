"""Every array of an archive in every type: it is read, or refused in words, and `inspect` and a build agree."""

import itertools

import numpy as np
import pytest

from graphmill.assets.sources.interface import TableConfig
from graphmill.assets.sources.registry import config_class
from graphmill.jobs.commands.pipelines.inspect_source import survey_of
from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import build_config

EDGES = {
    "edge_index": [[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]],
    "num_nodes": [5],
    "y": [0, 1, 0, 1, 0],
    "train": [0, 1], "val": [2], "test": [3, 4],
    "x_indptr": [0, 1, 2, 2, 2, 3], "x_indices": [0, 1, 2], "x_data": [1, 2, 3], "x_shape": [5, 3],
}  # fmt: skip
ADJACENCY = {
    "adj_indptr": [0, 1, 2, 3, 4, 5], "adj_indices": [1, 2, 3, 4, 0], "adj_data": [1] * 5, "adj_shape": [5, 5],
    "labels": [0, 1, 0, 1, 0], "attr_matrix": [[1, 2]] * 5,
}  # fmt: skip
FEATURES = ("x_indptr", "x_indices", "x_data", "x_shape")
LEFT_OUT = [
    (),
    ("num_nodes",),
    ("num_nodes", "y", "train", "val", "test", *FEATURES),
    FEATURES,
    ("labels", "attr_matrix"),
]
"""Arrays that an archive may lack; others then give the number of nodes."""
TYPES = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "?", ">u4", ">u8", ">i8", "c8", "U3", "S3")


@pytest.mark.parametrize("form", [EDGES, ADJACENCY], ids=["edge_index", "adjacency"])
def test_every_type_of_every_array_is_inspected(tmp_path, form):
    tried = 0
    for left_out, name, kind in itertools.product(LEFT_OUT, form, TYPES):
        if name in left_out or not set(left_out) <= form.keys():
            continue
        arrays = {key: np.array(values) for key, values in form.items() if key not in left_out}
        np.savez(tmp_path / "graph.npz", **(arrays | {name: arrays[name].astype(kind)}))
        tried += 1
        try:
            found = survey_of(str(tmp_path / "graph.npz"))
        except InputError:
            continue
        if kind.strip(">")[0] in "ui":
            assert not found.problems and found.num_nodes == 5, (name, kind, left_out)
    assert tried > 100


@pytest.mark.parametrize("array", ["attr_matrix", "features.npy"])
def test_features_without_columns_are_refused(tmp_path, array):
    arrays = {key: np.array(values) for key, values in ADJACENCY.items()}
    table = None
    if array == "attr_matrix":
        arrays[array] = np.zeros((5, 0), np.float32)
    else:
        np.save(tmp_path / array, np.zeros((5, 0), np.float32))
        table = TableConfig(file=tmp_path / array)
    np.savez(tmp_path / "graph.npz", **arrays)
    with pytest.raises(InputError, match=r"0 columns|no columns"):
        build_config(tmp_path / "home", config_class("npz")(path=tmp_path / "graph.npz"), table=table)


@pytest.mark.parametrize("kind", ["u1", "u8", ">u8"])
def test_unsigned_arrays_make_the_graph_of_signed_ones(tmp_path, kind):
    made = []
    for number, dtype in enumerate(("i8", kind)):
        path = tmp_path / f"{number}.npz"
        np.savez(path, **{name: np.array(values).astype(dtype) for name, values in EDGES.items()})
        made.append(build_config(tmp_path / "home", config_class("npz")(path=path)))
    for name in ("indptr", "indices", "labels", "train_ids"):
        assert (made[0].graph.path / f"{name}.npy").read_bytes() == (made[1].graph.path / f"{name}.npy").read_bytes()


def test_an_id_beyond_signed_integers_is_named(tmp_path):
    edges = np.array([[0, 1, 2**64 - 1], [1, 2, 0]], np.uint64)
    np.savez(tmp_path / "graph.npz", edge_index=edges)
    with pytest.raises(InputError, match=r"edge_index holds 18446744073709551615, .* it is -1 of int64"):
        survey_of(str(tmp_path / "graph.npz"))
