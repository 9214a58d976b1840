"""Counts of a training's evaluations before it starts: rows, edges and reads of those nodes that the scored ones reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from graphmill.assets.graph.read import Graph
from graphmill.assets.sampling.drawing import Drawing
from graphmill.assets.sizes import parse_size
from graphmill.kernels.types import Array
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.gathered import TILE_BYTES, TILE_ROWS
from graphmill.trainers.inference.needed import find_needed, pays
from graphmill.trainers.inference.windows import APART_BYTES
from graphmill.trainers.recipe.config import ModelConfig
from graphmill.trainers.recipe.costs.course import Scored
from graphmill.trainers.training.training import scored_splits


def count_scored(
    semantic: ModelConfig, graph: Graph, drawing: Drawing | None, row_bytes: int, *, exact: bool
) -> tuple[Scored, Scored]:
    """Returns the counts of an evaluation between epochs, and of that at the end.

    Args:
        semantic: the recipe.
        graph, drawing: the graph, and the way in which mini-batches draw neighbours.
        row_bytes: bytes of a row of the features.
        exact: whether evaluations are exact.
    """
    splits = scored_splits(semantic.train, graph)
    valid, *final = (np.array(getattr(graph, f"{split}_ids")) for split in ("valid", *splits))
    if not exact:
        return Scored((len(valid),)), Scored(tuple(map(len, final)))
    first, last = (_exact(semantic, graph, drawing, row_bytes, nodes) for nodes in (valid, np.concatenate(final)))
    return first, last


def _exact(semantic: ModelConfig, graph: Graph, drawing: Drawing | None, row_bytes: int, node_ids: Array) -> Scored:
    train, topology = semantic.train, graph.topology
    layers, count = train.layers, topology.num_nodes
    if not pays(len(node_ids), count):
        every = (float(count),) * (layers + 1)
        return Scored((len(node_ids),), every, (float(topology.num_edges),) * layers, count)
    bounds = Bounds(workspace_bytes=parse_size(train.eval_workspace), threads=train.num_threads, drawing=drawing)
    whole, ends = bounds.whole(topology), bounds.ends(topology)
    needed = find_needed(whole, ends, np.sort(node_ids), layers, bounds.fitting_bytes // 2)
    in_order = apart = 0
    for wanted, span in _tiles(partial(needed.flags, 0), count, row_bytes):
        close = span * row_bytes <= wanted * (row_bytes + APART_BYTES)
        in_order, apart = in_order + close * span, apart + (not close) * wanted
    return Scored((len(node_ids),), needed.num_nodes, needed.num_edges, in_order, apart)


def _tiles(flags: Callable[[int, int], Array], count: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    """Yields (rows that are wanted, rows from the first to the last one that is read) of each tile with a wanted row.

    Args:
        flags: (low, high) -> bool[high - low], whether rows from low to high are wanted.
        count: N.
        row_bytes: bytes of a row.
    """
    least, most = TILE_ROWS
    tile = min(most, max(least, 1 << (max(1, TILE_BYTES // max(1, row_bytes)).bit_length() - 1)))
    for low in range(0, count, tile):
        high = min(low + tile, count)
        places = np.flatnonzero(flags(low, high))
        if len(places):
            whole = 2 * len(places) >= high - low
            yield len(places), high - low if whole else int(places[-1] - places[0]) + 1
