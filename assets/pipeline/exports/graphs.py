"""A stored graph as a graph of DGL or as data of PyG, with features, labels and splits.

A graph with node types or relations becomes a heterograph (assets/pipeline/exports/typed.py). Both libraries hold the whole graph in
memory, features included, and use ids of 64 bits. Memory: 8 bytes per edge for DGL and 16 for PyG, beside the features; 40 bytes per edge
more while a heterograph is made.
"""

import os
from typing import Any

import numpy as np

from graphmill.assets.features.read import open_features, require_nodes
from graphmill.assets.graph.read import Graph, open_graph
from graphmill.assets.pipeline.exports.typed import TypedNodes, has_types, masks_of, rows_of, typed_edges, typed_nodes
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.assets.tasks.labels import step_values
from graphmill.kernels.errors import InputError, install_extra
from graphmill.kernels.types import Array


def to_pyg(graph: Artifact, features: Artifact | None = None, *, homogeneous: bool = False) -> Any:
    """Returns a graph as `torch_geometric.data.Data`, or as `HeteroData` if it has node types or relations.

    `Data` has edge_index int64[2, E] from row 0 to row 1, in the order of targets; y int64[N], -1 unknown; train_mask, val_mask and
    test_mask bool[N]; edge_weight if the graph has weights; x float32[N, F] with features, zeros for nodes without.

    `HeteroData` has num_nodes and x float32[n, F] of each node type, F its own columns, no x for a type without features; y and the masks
    of types with labels; edge_index and edge_weight of each edge type, ids counted within the node types.

    Args:
        homogeneous: whether a graph with types becomes `Data`, too, with node_type int64[N] and edge_type int64[E], which number the types.

    Raises:
        InputError: PyG is not installed, or an artifact is of another stage.
    """
    try:
        import torch_geometric.data as pyg  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise InputError(f"PyG cannot be imported: {error}", install_extra("pyg")) from error
    import torch

    opened = open_graph(graph)
    table = _table(features, opened)
    if has_types(opened) and not homogeneous:
        made = pyg.HeteroData()
        for each in typed_nodes(opened, table):
            made[each.name].num_nodes = each.high - each.low
            for name, values in _named(each, "x", "y").items():
                made[each.name][name] = torch.from_numpy(values)
        for kind, edges in typed_edges(opened).items():
            made[kind].edge_index = torch.from_numpy(np.stack([edges.src, edges.dst]))
            if edges.weights is not None:
                made[kind].edge_weight = torch.from_numpy(edges.weights)
        return made
    targets = np.repeat(np.arange(opened.topology.num_nodes), np.diff(opened.topology.indptr))
    sources = np.asarray(opened.topology.indices, np.int64)
    values = {"edge_index": np.stack([sources, targets]), "y": _labels(opened), **masks_of(opened), **_numbers(opened)}
    if opened.topology.weights is not None:
        values["edge_weight"] = np.array(opened.topology.weights)
    if table is not None:
        values["x"] = rows_of(table, 0, table.num_nodes, table.width)
    tensors = {name: torch.from_numpy(each) for name, each in values.items()}
    return pyg.Data(**tensors, num_nodes=opened.topology.num_nodes)


def to_dgl(graph: Artifact, features: Artifact | None = None, *, homogeneous: bool = False) -> Any:
    """Returns a graph as a `dgl.DGLGraph`, a heterograph if it has node types or relations.

    Without types `ndata` has label int64[N], -1 unknown; train_mask, val_mask and test_mask bool[N]; and feat float32[N, F] with features,
    zeros for nodes without. `edata` has weight if the graph has weights.

    A heterograph has feat float32[n, F] of each node type, F its own columns, no feat for a type without features; label and the masks of
    types with labels; and weight of each edge type. DGL sorts node types by name.

    Args:
        homogeneous: whether types become ndata["node_type"] int64[N] and edata["edge_type"] int64[E] of a graph of one type.

    Raises:
        InputError: DGL is not installed, or an artifact is of another stage.
    """
    os.environ["DGLBACKEND"] = "pytorch"  # whatever another project has set
    try:
        import dgl
    except ImportError as error:
        raise InputError(f"DGL cannot be imported: {error}", f"{install_extra('dgl')} on Python 3.11") from error
    import torch

    opened = open_graph(graph)
    table = _table(features, opened)
    if has_types(opened) and not homogeneous:
        return _heterograph(dgl, opened, table)
    indptr = torch.from_numpy(np.array(opened.topology.indptr, np.int64))
    indices = torch.from_numpy(np.array(opened.topology.indices, np.int64))
    made = dgl.graph(("csc", (indptr, indices, torch.arange(len(indices)))), num_nodes=opened.topology.num_nodes)
    numbers = _numbers(opened)
    of_edges = {"edge_type": numbers.pop("edge_type")} if "edge_type" in numbers else {}
    if opened.topology.weights is not None:
        of_edges["weight"] = np.array(opened.topology.weights)
    of_nodes = {"label": _labels(opened), **masks_of(opened), **numbers}
    if table is not None:
        of_nodes["feat"] = rows_of(table, 0, table.num_nodes, table.width)
    for frame, values in ((made.ndata, of_nodes), (made.edata, of_edges)):
        for name, each in values.items():
            frame[name] = torch.from_numpy(each)
    return made


def _heterograph(dgl: Any, graph: Graph, table: FeatureTable | None) -> Any:
    """Returns a graph with types as a heterograph of DGL, the given module."""
    import torch

    edges, nodes = typed_edges(graph), [*typed_nodes(graph, table)]
    ends = {kind: (torch.from_numpy(each.src), torch.from_numpy(each.dst)) for kind, each in edges.items()}
    made = dgl.heterograph(ends, num_nodes_dict={each.name: each.high - each.low for each in nodes})
    for each in nodes:
        for name, values in _named(each, "feat", "label").items():
            made.nodes[each.name].data[name] = torch.from_numpy(values)
    for kind, each in edges.items():
        if each.weights is not None:
            made.edges[kind].data["weight"] = torch.from_numpy(each.weights)
    return made


def _named(nodes: TypedNodes, features: str, labels: str) -> dict[str, Array]:
    """Returns the arrays of a node type that exist, by the names of a library."""
    values = {features: nodes.features, labels: nodes.labels, **nodes.masks}
    return {name: each for name, each in values.items() if each is not None}


def _labels(graph: Graph) -> Array:
    return step_values(np.asarray(graph.labels)).copy()


def _numbers(graph: Graph) -> dict[str, Array]:
    """Returns node_type i64[N] and edge_type i64[E] of a graph that has them."""
    topology, found = graph.topology, {}
    if topology.node_type_ptr is not None:
        counts = np.diff(topology.node_type_ptr)
        found["node_type"] = np.repeat(np.arange(len(counts)), counts)
    if topology.edge_types is not None:
        found["edge_type"] = np.asarray(topology.edge_types, np.int64)
    return found


def _table(features: Artifact | None, graph: Graph) -> FeatureTable | None:
    """Returns the features after comparing all of their rows with the digests; None without features."""
    if features is None:
        return None
    features.file("rows.npy")
    opened = open_features(features)
    require_nodes(opened, graph.topology.num_nodes, "the graph")
    return opened
