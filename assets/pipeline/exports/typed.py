"""The node types and relations of a stored graph, as libraries with heterographs have them.

Nodes of a type are numbered from 0. A relation "source/relation/target" is the edge type (source, relation, target), and its reverse edges
are (target, "rev_relation", source), whether the graph stores them as a relation of their own or as the same. Edges are assigned by the
types of their ends, so that relations with other names have an edge type for each pair of node types.

Memory: 40 bytes per edge.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from graphmill.assets.features.read import node_types
from graphmill.assets.graph.read import Graph
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.assets.tasks.labels import labelled, step_values
from graphmill.assets.tasks.relations import REVERSE
from graphmill.kernels.arrays import widen
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
