"""Edges given as arrays by name, as relations.

Peak memory: 1 byte per edge of a graph without types that has `edge_type`, and a slice of 262,144 edges.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from graphmill.assets.sources.arrays.mapped_arrays import STEP_EDGES, array_relation
from graphmill.assets.sources.named.arrays import Kind, NamedArrays
from graphmill.assets.sources.typed_graph import EdgeBatch, Relation
from graphmill.kernels.errors import Attempts, InputError, did_you_mean
from graphmill.kernels.types import Array

MOST_TYPES = 256
"""Most relations of a graph."""
SAVE_EDGES = (
    "save edge_index: row, col, _ = data.adj_t.t().coo(); data.edge_index = torch.stack([row, col]); del data.adj_t"
)


def relations_of(data: NamedArrays, weight: str | None) -> list[Relation]:
    """Returns the relations of a graph, whose edges are read slice by slice.

    Args:
        weight: name of the weights, None without.

    Raises:
        InputError: an edge type lacks edge_index or the weights, or they have another shape or type: all of them at once.
    """
    if not data.edges:
        raise InputError(f"{data.where}: has no edges", "give a graph with at least one edge")
    attempts, found = Attempts(), []
    for kind in data.edges:
        relation = attempts(_relation, data, kind, weight)
        if not data.typed and "edge_type" in data.edges[kind] and relation is not None:
            found += attempts(_by_number, data, kind, relation) or []
        else:
            found.append(relation)
    attempts.settle()
    return found


def _relation(data: NamedArrays, kind: Kind, weight: str | None) -> Relation:
    where, names = data.place(kind), data.edges[kind]
    if "edge_index" not in names:
        if any(name in names for name in ("adj_t", "adj")):
            raise InputError(f"{where}: lacks edge_index and has adj_t, which is not read", SAVE_EDGES)
        raise InputError(f"{where}: lacks edge_index", "save edge_index, integers [2, E]")
    edges, _ = data.array(kind, "edge_index")
    weights = None if weight is None else _weights(data, kind, weight, edges.shape[-1] if edges.ndim else 0)
    return array_relation(edges, kind, f"{where}{data.words.edges}", weights)


def _weights(data: NamedArrays, kind: Kind, name: str, count: int) -> Array:
    """Returns numbers [E]."""
    where, words = data.place(kind), data.words
    if name not in data.edges[kind]:
        has = sorted(each for each in data.edges[kind] if each != "edge_index")
        hint, shown = did_you_mean(name, has, chr(39)), ", ".join(has) or "none"
        problem = words.no_weight.format(where=where, name=name, hint=hint, has=shown)
        raise InputError(problem, "correct `weight` in [graph]")
    values, _ = data.array(kind, name, wide=True)
    if values.shape not in ((count,), (count, 1)) or values.dtype.kind not in "biuf":
        problem, remedy = words.wide_weight
        told = {"type": values.dtype, "shape": list(values.shape), "count": count, "kind": "/".join(kind)}
        raise InputError(problem.format(file=data.where, where=where, name=name, **told), remedy)
    return values.reshape(-1)


def _by_number(data: NamedArrays, kind: Kind, edges: Relation) -> list[Relation]:
    """Returns the relations that `edge_type` [E] numbers."""
    where = f"{data.place(kind)}: 'edge_type'"
    types, _ = data.array(kind, "edge_type")
    if types.shape not in ((edges.num_edges,), (edges.num_edges, 1)) or types.dtype.kind not in "iu":
        problem = f"{where} is {types.dtype}{list(types.shape)}, not integers [{edges.num_edges}]"
        raise InputError(problem, "give the number of its relation for each edge")
    types = types.reshape(-1)
    if len(types) and not 0 <= types.min() <= types.max() < MOST_TYPES:
        problem = f"{where} runs from {types.min()} to {types.max()}, not within [0, {MOST_TYPES})"
        raise InputError(problem, "number the relations from 0: edge_type = edge_type.unique(return_inverse=True)[1]")
    types = types.astype(np.uint8)
    counts = np.bincount(types)
    firsts = np.cumsum(counts) - counts
    return [_numbered(edges, types, number, int(counts[number]), int(firsts[number])) for number in range(len(counts))]


def _numbered(edges: Relation, types: Array, number: int, count: int, first: int) -> Relation:
    """Returns the edges of one number as a relation of that name; `first` edges have lower numbers."""

    def batches() -> Iterator[EdgeBatch]:
        for step, batch in enumerate(edges.batches()):
            low = step * STEP_EDGES
            mine = np.flatnonzero(types[low : low + len(batch.src)] == number)
            weight = None if batch.weight is None else batch.weight[mine]
            # Rows count from the first edge of the relation, and edge ids are columns of edge_index.
            yield EdgeBatch(batch.src[mine], batch.dst[mine], weight, mine + (low - first))

    return replace(
        edges,
        kind=(edges.kind[0], str(number), edges.kind[2]),
        num_edges=count,
        batches=batches,
        place=lambda row: edges.place(int(np.flatnonzero(types == number)[row]) if row < count else edges.num_edges),
    )
