"""A stored graph as a graph of DGL or as data of PyG, with features, labels and splits.

Both libraries hold the whole graph in memory, features included, and use ids of 64 bits. Memory: 8 bytes per edge for DGL and 16 for PyG,
beside the features; 40 bytes per edge more while a heterograph is made.

A graph with node types or relations becomes a heterograph. Nodes of a type are numbered from 0. A relation "source/relation/target" is the
edge type (source, relation, target), and its reverse edges are (target, "rev_relation", source), whether the graph stores them as a
relation of their own or as the same. Edges are assigned by the types of their ends, so that relations with other names have an edge type
for each pair of node types.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from graphmill.assets.features.read import node_types, open_features, require_nodes
from graphmill.assets.graph.read import Graph, open_graph
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.assets.tasks.labels import labelled, step_values
from graphmill.assets.tasks.relations import REVERSE
from graphmill.kernels.arrays import widen
from graphmill.kernels.errors import InputError, install_extra
from graphmill.kernels.types import Array

MASKS = ("train_mask", "val_mask", "test_mask")
"""Names that both libraries give to the masks of a split."""

Kind = tuple[str, str, str]
"""Node type, relation, node type."""


@dataclass(frozen=True, kw_only=True)
class TypedNodes:
    """The nodes low to high - 1 of a graph.

    Attributes:
        labels: i64[n], -1 unknown, or labels of another kind (assets/tasks/labels.py); None if the type has no labels.
        masks: name -> bool[n]; empty if the type has no labels.
        features: f32[n, F] with the type's own columns, zeros for nodes without; None without features.
    """

    name: str
    low: int
    high: int
    labels: Array | None
    masks: dict[str, Array]
    features: Array | None


@dataclass(frozen=True, kw_only=True)
class TypedEdges:
    """The edges of one relation, by target.

    Attributes:
        src, dst: i64[n] ids within their node types.
        weights: f32[n], or None.
    """

    src: Array
    dst: Array
    weights: Array | None


def has_types(graph: Graph) -> bool:
    """Tells whether a graph has node types or relations."""
    return graph.topology.node_type_ptr is not None or graph.topology.edge_types is not None


def type_starts(graph: Graph) -> dict[str, int]:
    """Returns node type -> its first id, in the order of ids; one type "node" if nodes have no types."""
    pointers = graph.topology.node_type_ptr
    return {"node": 0} if pointers is None else dict(zip(graph.node_types, pointers[:-1].tolist(), strict=True))


def masks_of(graph: Graph) -> dict[str, Array]:
    """Returns name -> bool[N] of the masks of the split."""
    masks = {}
    for name, ids in zip(MASKS, graph.splits, strict=True):
        masks[name] = np.zeros(graph.topology.num_nodes, bool)
        masks[name][np.asarray(ids)] = True
    return masks


def typed_nodes(graph: Graph, table: FeatureTable | None) -> Iterator[TypedNodes]:
    """Yields the nodes of each type with their labels, masks and features."""
    starts, masks = type_starts(graph), masks_of(graph)
    columns = [0] * len(starts) if table is None else [table.width] * len(starts)
    known = None if table is None else node_types(graph.topology, table)
    bounds = pairwise([*starts.values(), graph.topology.num_nodes])
    for name, (low, high), width in zip(starts, bounds, columns if known is None else known.columns, strict=True):
        labels = step_values(np.asarray(graph.labels[low:high])).copy()
        known = bool(labelled(labels).any())
        yield TypedNodes(
            name=name,
            low=low,
            high=high,
            labels=labels if known else None,
            masks={mask: values[low:high].copy() for mask, values in masks.items()} if known else {},
            features=rows_of(table, low, high, width) if table is not None and width else None,
        )


def rows_of(table: FeatureTable, low: int, high: int, width: int) -> Array:
    """Returns f32[high - low, width], the first columns of the nodes low to high - 1; zeros for nodes without features."""
    rows = table.rows_of(np.arange(low, high))
    found = np.zeros((high - low, width), np.float32)
    found[rows >= 0] = widen(np.array(table.open()[rows[rows >= 0]]))[:, :width]
    return found


def typed_edges(graph: Graph) -> dict[Kind, TypedEdges]:
    """Returns the edges of each relation, those without edges included, in the order of the stored relations."""
    topology, starts = graph.topology, np.array([*type_starts(graph).values()])
    names = [*type_starts(graph)]
    src = np.asarray(topology.indices, np.int64)
    dst = np.repeat(np.arange(topology.num_nodes), np.diff(topology.indptr))
    ends = [np.searchsorted(starts, each, side="right") - 1 for each in (src, dst)]
    numbers = np.zeros(len(src), np.uint8) if topology.edge_types is None else np.asarray(topology.edge_types)
    parts: dict[Kind, list[Array]] = {}
    for number, relation in enumerate(graph.relations or ("edge",)):
        stored = _stored_kind(relation, names)
        if stored is not None:
            parts.setdefault(stored, [])
        mine = np.flatnonzero(numbers == number)
        pairs = ends[0][mine] * len(names) + ends[1][mine]
        for pair in np.unique(pairs).tolist():
            kind = _kind(relation, names, names[pair // len(names)], names[pair % len(names)])
            parts.setdefault(kind, []).append(mine[pairs == pair])
    found = {}
    for kind, several in parts.items():
        rows = np.sort(np.concatenate([*several, np.zeros(0, np.int64)]))
        local = [each[rows] - starts[names.index(end)] for each, end in ((src, kind[0]), (dst, kind[2]))]
        weights = None if topology.weights is None else np.array(topology.weights[rows])
        found[kind] = TypedEdges(src=local[0], dst=local[1], weights=weights)
    return found


def _parsed(relation: str, names: list[str]) -> tuple[Kind, bool] | None:
    """Returns the edge type in the name of a relation without its reverse, and whether it is one; None for another name."""
    parts = tuple(relation.removeprefix(REVERSE).split("/"))
    if len(parts) != 3 or parts[0] not in names or parts[2] not in names:
        return None
    return parts, relation.startswith(REVERSE)


def _reversed(kind: Kind) -> Kind:
    return kind[2], f"rev_{kind[1]}", kind[0]


def _stored_kind(relation: str, names: list[str]) -> Kind | None:
    """Returns the edge type of a stored relation; None if its name does not say it."""
    parsed = _parsed(relation, names)
    if parsed is None:
        return None
    return _reversed(parsed[0]) if parsed[1] else parsed[0]


def _kind(relation: str, names: list[str], source: str, target: str) -> Kind:
    """Returns the edge type of the edges of a stored relation between two node types."""
    parsed, stored = _parsed(relation, names), _stored_kind(relation, names)
    if parsed is None or stored is None:
        word = relation.removeprefix(REVERSE)
        return source, f"rev_{word}" if relation.startswith(REVERSE) else word, target
    for kind in (stored, parsed[0], _reversed(parsed[0])):
        if (kind[0], kind[2]) == (source, target):
            return kind
    return source, stored[1], target


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
