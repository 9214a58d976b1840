"""Artifacts as frames and as graphs of other libraries."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import polars as pl
import pytest

from graphmill.assets.features.read import open_features
from graphmill.assets.graph.read import open_graph
from graphmill.assets.pipeline.exports.frames import node_frame
from graphmill.assets.pipeline.exports.graphs import to_dgl, to_pyg
from graphmill.assets.sources.interface import TableConfig
from graphmill.kernels.errors import InputError
from tests.assets.sources.own_data import Drawn, build, write_npz


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A small graph with labels, a split and features of half precision."""
    folder, drawn = tmp_path_factory.mktemp("exports"), Drawn(num_nodes=60, num_edges=300, width=5)
    made = build(folder / "home", "npz", table=TableConfig(dtype="float16"), **write_npz(folder, drawn))
    return made.graph, made.features


def test_nodes_as_a_frame(built):
    graph, _ = built
    opened, frame = open_graph(graph), node_frame(graph)
    assert frame.height == 60 and frame["node_id"].to_list() == list(range(60))
    assert frame["label"].to_numpy().tolist() == np.asarray(opened.labels).tolist()
    for part in ("train", "valid", "test"):
        found = frame.filter(pl.col("split") == part)["node_id"].to_numpy()
        assert found.tolist() == np.asarray(getattr(opened, f"{part}_ids")).tolist()
    assert frame["in_degree"].sum() == frame["out_degree"].sum() == opened.topology.num_edges


class Data(SimpleNamespace):
    """What PyG's class of this name does with its arguments."""


@pytest.mark.parametrize("with_features", [True, False])
def test_a_graph_for_pyg(built, with_features, monkeypatch):
    fake = ModuleType("torch_geometric.data")
    fake.Data = Data  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch_geometric", ModuleType("torch_geometric"))
    monkeypatch.setitem(sys.modules, "torch_geometric.data", fake)
    graph, features = built
    opened, data = open_graph(graph), to_pyg(graph, features if with_features else None)
    sources, targets = data.edge_index.numpy()
    assert targets.tolist() == np.repeat(np.arange(60), np.diff(opened.topology.indptr)).tolist()
    assert sources.tolist() == np.asarray(opened.topology.indices).tolist() and data.num_nodes == 60
    assert data.y.tolist() == np.asarray(opened.labels).tolist()
    masks = (data.train_mask, data.val_mask, data.test_mask)
    for mask, part in zip(masks, ("train", "valid", "test"), strict=True):
        assert np.flatnonzero(mask.numpy()).tolist() == np.asarray(getattr(opened, f"{part}_ids")).tolist()
    assert hasattr(data, "x") == with_features
    if with_features:
        assert np.array_equal(data.x.numpy(), expected_rows(features))


def expected_rows(features):
    table = open_features(features)
    rows = np.asarray(table.rows_of(np.arange(table.num_nodes)))
    return np.array([table.open()[row] if row >= 0 else np.zeros(table.width) for row in rows], np.float32)


def test_a_graph_for_dgl(built):
    dgl = pytest.importorskip("dgl", reason="DGL is not installed on this Python")
    graph, features = built
    opened, made = open_graph(graph), to_dgl(graph, features)
    assert isinstance(made, dgl.DGLGraph) and made.num_nodes() == 60
    sources, targets = made.edges(order="eid")
    assert sources.tolist() == np.asarray(opened.topology.indices).tolist()
    assert targets.tolist() == np.repeat(np.arange(60), np.diff(opened.topology.indptr)).tolist()
    assert np.array_equal(made.ndata["feat"].numpy(), expected_rows(features))
    assert int(made.ndata["train_mask"].sum()) == len(opened.train_ids)


@pytest.mark.parametrize(
    ("convert", "module", "extra"), [(to_pyg, "torch_geometric.data", "pyg"), (to_dgl, "dgl", "dgl")]
)
def test_what_is_not_installed_is_named_with_its_extra(built, convert, module, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf'pip install -e "\.\[{extra}\]"'):
        convert(*built)
