"""Edges of a PyG file as relations.

Peak memory: 1 byte per edge of a `Data` object with `edge_type`, and a slice of 262,144 edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from graphmill.assets.sources.pyg.stores import ONE_TYPE, SAVE_EDGES, Kind, Stores
from graphmill.assets.sources.pyg.values import as_array, data_of
from graphmill.assets.sources.readers.mapped_arrays import STEP_EDGES, array_relation
from graphmill.assets.sources.typed_graph import EdgeBatch, Relation
from graphmill.kernels.errors import Attempts, InputError, did_you_mean
from graphmill.kernels.types import Array

MOST_TYPES = 256
"""Most relations of a graph."""


def relations_of(stores: Stores, path: Path, weight: str | None) -> list[Relation]:
    """Returns the relations of a file, whose edges are read slice by slice.

    Args:
        stores: the data of the graph.
        path: the file, for errors.
        weight: name of the weights, None without.

    Raises:
        InputError: an edge type lacks edge_index or the weights, or they have another shape or type: all of them at once.
    """
    if not stores.edges:
        raise InputError(f"{path}: has no edges", "give a graph with at least one edge")
    attempts, found = Attempts(), []
    for kind in stores.edges:
        relation = attempts(_relation, stores, kind, path, weight)
        if not stores.typed and "edge_type" in stores.edges[kind] and relation is not None:
            found += attempts(_by_number, stores, kind, path, relation) or []
        else:
            found.append(relation)
    attempts.settle()
    return found


def _relation(stores: Stores, kind: Kind, path: Path, weight: str | None) -> Relation:
    where, data = data_of(stores, path, kind), stores.edges[kind]
    if "edge_index" not in data:
        if any(name in data for name in ("adj_t", "adj")):
            raise InputError(f"{where}: lacks edge_index and has adj_t, which is not read", SAVE_EDGES)
        raise InputError(f"{where}: lacks edge_index", "save edge_index, integers [2, E]")
    edges, _ = as_array(data["edge_index"], f"{where}: 'edge_index'")
    weights = None if weight is None else _weights(data, weight, where, edges.shape[-1] if edges.ndim else 0)
    return array_relation(edges, kind, f"{where}: 'edge_index'", weights)


def _weights(data: dict[str, object], weight: str, where: str, count: int) -> Array:
    """Returns numbers [E]."""
    if weight not in data:
        has = sorted(name for name in data if name != "edge_index")
        problem = f"{where}: no data '{weight}' of edges{did_you_mean(weight, has, chr(39))}; they have {', '.join(has) or 'none'}"
        raise InputError(problem, "correct `weight` in [graph]")
    values, _ = as_array(data[weight], f"{where}: '{weight}'", wide=True)
    if values.shape not in ((count,), (count, 1)) or values.dtype.kind not in "biuf":
        problem = f"{where}: '{weight}' is {values.dtype}{list(values.shape)}, not weights [{count}] or [{count}, 1]"
        raise InputError(problem, "keep one number per edge")
    return values.reshape(-1)


def _by_number(stores: Stores, kind: Kind, path: Path, edges: Relation) -> list[Relation]:
    """Returns the relations that `edge_type` [E] numbers."""
    where = f"{data_of(stores, path, kind)}: 'edge_type'"
    types, _ = as_array(stores.edges[kind]["edge_type"], where)
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
        kind=(ONE_TYPE, str(number), ONE_TYPE),
        num_edges=count,
        batches=batches,
        place=lambda row: edges.place(int(np.flatnonzero(types == number)[row]) if row < count else edges.num_edges),
    )
