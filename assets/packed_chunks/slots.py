"""The slot of each input of a batch: its row in a static tier, in the batch's chunk, or in the disk cache of its segment.

Inputs that the device or the host holds keep the slot of the plan. The others are looked up among the batch's packed nodes, and among the
nodes that the batch reads from its segment's cache. Inputs and both lists are sorted, so all look-ups go from left to right, and no array
as long as the graph is needed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.slots import ELSEWHERE, STAGED, make_slots
from graphmill.kernels.types import Array


class CachedNodes(NamedTuple):
    """The nodes whose rows a batch reads from its segment's disk cache.

    Attributes:
        ids: ids[c], ascending, the nodes, each once.
        rows: i64[c], the row of the cache of each node.
    """

    ids: Array
    rows: Array

    @staticmethod
    def of(cache_ids: Array, members: Array) -> CachedNodes:
        """Returns a batch's rows (`members`, i32[c]) of a cache whose rows have the nodes `cache_ids`, ids[m]; sorted by their node."""
        ids = cache_ids[members]
        order = np.argsort(ids)
        return CachedNodes(ids[order], members[order].astype(np.int64))


def input_slots(slots: Array, input_ids: Array, packed_ids: Array, cached: CachedNodes) -> tuple[Array, Array]:
    """Returns (slots i32[n], places i32[c]) of a batch; places are the rows of its segment's cache that it reads, ascending.

    Args:
        slots: i32[n], the plan's slots of the inputs; the array is written to.
        input_ids: ids[n], global, the inputs, each once.
        packed_ids: ids[p], ascending, the nodes of the batch's chunk.
        cached: the nodes that the batch reads from its segment's cache.

    Raises:
        InputError: an input is in no tier, or a packed row is not an input.
    """
    from_disk = np.flatnonzero(slots == ELSEWHERE)
    order = np.argsort(input_ids[from_disk])
    from_disk = from_disk[order]
    ids = input_ids[from_disk]
    if np.array_equal(ids, packed_ids):  # none of its rows is cached
        slots[from_disk] = make_slots(STAGED, np.arange(len(ids)))
        return slots, np.zeros(0, np.int32)
    packed, at = _among(packed_ids, ids)
    in_cache, row = _among(cached.ids, ids)
    if np.count_nonzero(packed) != len(packed_ids) or not (packed ^ in_cache).all():
        problem = f"a batch needs {len(ids)} rows from disk, the plan packs {len(packed_ids)} for it, or others"
        raise InputError(problem, "build the cache plan for these samples")
    places = cached.rows[row[in_cache]]
    order = np.argsort(places)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    at[in_cache] = len(packed_ids) + rank
    slots[from_disk] = make_slots(STAGED, at)
    return slots, places[order].astype(np.int32)


def _among(ids: Array, wanted: Array) -> tuple[Array, Array]:
    """Returns whether each of `wanted` is in `ids`, both ascending, and its place there; the place of a missing one means nothing."""
    if not len(ids):
        return np.zeros(len(wanted), bool), np.zeros(len(wanted), np.int64)
    at = np.searchsorted(ids, wanted)
    at[at == len(ids)] = 0
    return ids[at] == wanted, at
