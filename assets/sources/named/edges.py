"""Edges given as arrays by name, as relations.

Peak memory: 1 byte per edge of a graph without types that has `edge_type`, and a slice of 262,144 edges.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from graphmill.assets.sources.arrays.mapped_arrays import STEP_EDGES, array_relation
from graphmill.assets.sources.edge_marks import of_parts, of_times
from graphmill.assets.sources.named.arrays import MASKS, Kind, NamedArrays
from graphmill.assets.sources.named.keys import NamedKeys
from graphmill.assets.sources.splits import mask_ids
from graphmill.assets.sources.typed_graph import EdgeBatch, Relation
from graphmill.kernels.errors import Attempts, InputError, did_you_mean
from graphmill.kernels.types import Array

MOST_TYPES = 256
"""Most relations of a graph."""
SAVE_EDGES = (
    "save edge_index: row, col, _ = data.adj_t.t().coo(); data.edge_index = torch.stack([row, col]); del data.adj_t"
)


def relations_of(data: NamedArrays, keys: NamedKeys) -> list[Relation]:
    """Returns the relations of a graph, whose edges are read slice by slice.

    Args:
        keys: names of weights and times, and what marks edges for a split of links.

    Raises:
        InputError: an edge type lacks edge_index, the weights or the times, or they have another shape or type: all of them at once.
    """
    if not data.edges:
        raise InputError(f"{data.where}: has no edges", "give a graph with at least one edge")
    attempts, found = Attempts(), []
    for kind in data.edges:
        relation = attempts(_relation, data, kind, keys)
        if not data.typed and "edge_type" in data.edges[kind] and relation is not None:
            found += attempts(_by_number, data, kind, relation) or []
        else:
            found.append(relation)
    attempts.settle()
    masked = any(mask in names for names in data.edges.values() for mask in _masks(data))
    if keys.marks == "given" and not masked:
        problem = f"{data.where}: [task] split = 'given', but no edges have {', '.join(_masks(data))}"
        raise InputError(problem, "save masks of edges, or draw the split: split = 'random'")
    return found


def _relation(data: NamedArrays, kind: Kind, keys: NamedKeys) -> Relation:
    where, names = data.place(kind), data.edges[kind]
    if "edge_index" not in names:
        if any(name in names for name in ("adj_t", "adj")):
            raise InputError(f"{where}: lacks edge_index and has adj_t, which is not read", SAVE_EDGES)
        raise InputError(f"{where}: lacks edge_index", "save edge_index, integers [2, E]")
    edges, _ = data.array(kind, "edge_index")
    count = edges.shape[-1] if edges.ndim else 0
    weights = None if keys.weight is None else _weights(data, kind, keys.weight, count)
    return array_relation(edges, kind, f"{where}{data.words.edges}", weights, _marks(data, kind, keys, count))


def _masks(data: NamedArrays) -> tuple[str, ...]:
    """Returns the names of the masks of edges; the data of edges of a graph without types begin with edge_."""
    return MASKS if data.typed else tuple(f"edge_{mask}" for mask in MASKS)


def _marks(data: NamedArrays, kind: Kind, keys: NamedKeys, count: int) -> Array | None:
    """Returns marks f64[E] of an edge type; None if it has none, or links are not split by them."""
    names, where = data.edges[kind], data.place(kind)
    if keys.marks == "time" and keys.time in names:
        return of_times(data.array(kind, str(keys.time), wide=True)[0], count, f"{where}: '{keys.time}'")
    if keys.times:
        has = ", ".join(sorted(name for name in names if name != "edge_index")) or "none"
        problem = (
            f"{where}: no data '{keys.time}' of edges, and `before` of [sampling] needs their times; they have {has}"
        )
        raise InputError(problem, "save the time of each edge")
    masks = _masks(data)
    if keys.marks != "given" or not any(mask in names for mask in masks):
        return None
    if missing := [mask for mask in masks if mask not in names]:
        raise InputError(f"{where}: lacks {', '.join(missing)}", "save all three masks, an empty one too")
    values = {mask: data.array(kind, mask, wide=True)[0] for mask in masks}
    train, valid, test = (mask_ids(values[mask], count, None, f"{where}: '{mask}'", mask, "edge") for mask in masks)
    return of_parts((train, valid, test), count, where)


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
            mark = None if batch.mark is None else batch.mark[mine]
            # Rows count from the first edge of the relation, and edge ids are columns of edge_index.
            yield EdgeBatch(batch.src[mine], batch.dst[mine], weight, mine + (low - first), mark=mark)

    return replace(
        edges,
        kind=(edges.kind[0], str(number), edges.kind[2]),
        num_edges=count,
        batches=batches,
        place=lambda row: edges.place(int(np.flatnonzero(types == number)[row]) if row < count else edges.num_edges),
    )
