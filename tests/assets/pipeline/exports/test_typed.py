"""Graphs with node types and relations as heterographs: the way out and back keeps edges, features, labels and splits."""

from typing import Any

import numpy as np
import pytest
import torch

from graphmill.assets.pipeline.exports.graphs import to_dgl, to_pyg, typed_edges
from graphmill.assets.sources.interface import TableConfig
from tests.assets.sources.own_data import Drawn, build, write_npz

pytestmark = pytest.mark.usefixtures("quick_readers")

TYPES = ("paper", "author", "institution")
KINDS = ("paper", "cites", "paper"), ("author", "writes", "paper"), ("author", "affiliated_with", "institution")
REVERSE = tuple((target, f"rev_{name}", source) for source, name, target in KINDS)


@pytest.fixture(scope="module", params=["own", "same"])
def built(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("typed")
    keys = {"nodes": 600, "edges": 4000, "features": 6, "reverse_types": request.param}
    return build(folder, "typed_citation", **keys)


def edges_of(built):
    """Edge type -> sorted pairs of ids within the node types."""
    found = {
        kind: sorted(zip(each.src.tolist(), each.dst.tolist(), strict=True))
        for kind, each in typed_edges(built.opened).items()
    }
    return {kind: pairs for kind, pairs in found.items() if pairs}


def nodes_of(built):
    """Node type -> (labels, three masks, feature rows) of its nodes."""
    graph, table = built.opened, built.table
    bounds = dict(
        zip(
            graph.node_types,
            zip(graph.topology.node_type_ptr, graph.topology.node_type_ptr[1:], strict=False),
            strict=True,
        )
    )
    found = {}
    for name, (low, high) in bounds.items():
        ids = np.arange(low, high)
        rows = np.asarray(table.rows_of(ids))
        features = np.asarray(table.open()[rows[rows >= 0]], np.float32)
        found[name] = (
            graph.labels[low:high].tolist(),
            [np.isin(ids, part).tolist() for part in graph.splits],
            features.tolist(),
        )
    return found


def test_a_typed_graph_for_pyg(built):
    pytest.importorskip("torch_geometric")
    made = to_pyg(built.graph, built.features)
    assert tuple(made.node_types) == TYPES and made.num_nodes == 600
    assert {*KINDS, *REVERSE} - {*made.edge_types} <= {REVERSE[0]}, (
        "reverse citations are citations if they have the same type"
    )
    assert made["paper"].x.shape == (made["paper"].num_nodes, 6) and "x" not in made["author"]
    assert "y" in made["paper"] and "y" not in made["author"] and "train_mask" not in made["institution"]
    assert made.validate()
    writes, written = made[KINDS[1]].edge_index, made[REVERSE[1]].edge_index
    assert sorted(map(tuple, writes.T.tolist())) == sorted(map(tuple, written.flip(0).T.tolist()))


def test_the_way_through_pyg_and_back(built, tmp_path):
    pytest.importorskip("torch_geometric")
    torch.save(to_pyg(built.graph, built.features), tmp_path / "graph.pt")
    back = build(tmp_path, "pyg", path=tmp_path / "graph.pt", undirected=False, self_loops="keep")
    assert edges_of(back) == edges_of(built) and nodes_of(back) == nodes_of(built)


def test_the_way_through_dgl_and_back(built, tmp_path):
    dgl = pytest.importorskip("dgl")
    made = to_dgl(built.graph, built.features)
    assert made.ntypes == sorted(TYPES) and made.nodes["paper"].data["feat"].shape[1] == 6
    dgl.save_graphs(str(tmp_path / "graph.bin"), [made])
    back = build(tmp_path, "dgl", path=tmp_path / "graph.bin", undirected=False, self_loops="keep")
    assert edges_of(back) == edges_of(built) and nodes_of(back) == nodes_of(built)


def test_one_type_on_request(built):
    pytest.importorskip("torch_geometric")
    made, graph = to_pyg(built.graph, built.features, homogeneous=True), built.opened
    assert made.x.shape == (600, 6) and made.edge_type.tolist() == graph.topology.edge_types.tolist()
    assert torch.bincount(made.node_type).tolist() == np.diff(graph.topology.node_type_ptr).tolist()
    pytest.importorskip("dgl")
    other = to_dgl(built.graph, built.features, homogeneous=True)
    assert len(other.ntypes) == 1 and torch.equal(other.edata["edge_type"], made.edge_type)
    assert torch.equal(other.ndata["node_type"], made.node_type) and torch.equal(other.ndata["val_mask"], made.val_mask)


def write_tables(folder) -> dict[str, Any]:
    """Edges with relations of plain names and weights, of nodes without types."""
    (folder / "edges.csv").write_text("src,dst,kind,w\n0,1,likes,0.5\n1,2,knows,2\n2,0,likes,3\n")
    (folder / "nodes.csv").write_text("id,f,y\n0,1.5,0\n1,2.5,1\n2,3.5,0\n")
    keys = {"edges": folder / "edges.csv", "nodes": folder / "nodes.csv", "features": "f", "label_column": "y"}
    return keys | {"type_column": "kind", "weight_column": "w"}


@pytest.mark.parametrize("own", ["own", "same"])
def test_relations_of_one_node_type_have_their_weights(tmp_path, own):
    pytest.importorskip("torch_geometric")
    built = build(tmp_path / "home", "edges", **write_tables(tmp_path) | {"reverse_types": own})
    made = to_pyg(built.graph, built.features)
    kinds = [
        ("node", name, "node") for name in ("knows", "likes", *(("rev_knows", "rev_likes") if own == "own" else ()))
    ]
    assert sorted(made.edge_types) == kinds
    assert sorted(made["node", "likes", "node"].edge_weight.tolist()) == (
        [0.5, 3] if own == "own" else [0.5, 0.5, 3, 3]
    )
    assert made["node"].x.tolist() == [[1.5], [2.5], [3.5]] and made["node"].y.tolist() == [0, 1, 0]
    pytest.importorskip("dgl")
    other = to_dgl(built.graph, built.features)
    assert other.edges["knows"].data["weight"].tolist() == made["node", "knows", "node"].edge_weight.tolist()


def test_a_graph_without_types_comes_back_through_both(tmp_path):
    torch_geometric, dgl = pytest.importorskip("torch_geometric"), pytest.importorskip("dgl")
    built = build(tmp_path / "npz", "npz", **write_npz(tmp_path, Drawn()), table=TableConfig(dtype="float32"))
    made, other = to_pyg(built.graph, built.features), to_dgl(built.graph, built.features)
    assert type(made) is torch_geometric.data.Data
    torch.save(made, tmp_path / "graph.pt")
    dgl.save_graphs(str(tmp_path / "graph.bin"), [other])
    for source, name in (("pyg", "graph.pt"), ("dgl", "graph.bin")):
        back = build(tmp_path / source, source, path=tmp_path / name, undirected=False)
        for array in ("indptr", "indices", "labels", "train_ids", "valid_ids", "test_ids"):
            assert np.array_equal(back.graph.array(array), built.graph.array(array))
        assert np.array_equal(back.table.open(), built.table.open())
