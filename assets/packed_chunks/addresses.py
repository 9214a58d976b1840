"""Where each input of a batch will be found: its slot in a static tier, in the batch's chunk, or in the disk cache of its segment.

Inputs that the device or the host holds keep the slot of the plan. The others are looked up among the batch's packed nodes and those that
the plan has it read from its segment's cache, both ascending, after they were sorted: all look-ups go from left to right, and nothing as
long as the graph is needed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernels.errors import InputError
from kernels.rows.slots import ELSEWHERE, STAGED, pack
from kernels.types import Array


class CachedNodes(NamedTuple):
    """What a batch reads from its segment's disk cache.

    Attributes:
        ids: ids[c] ascending, each once.
        rows: i64[c], where each is in the cache.
    """

    ids: Array
    rows: Array

    @staticmethod
    def of(cache_ids: Array, members: Array) -> CachedNodes:
        """Sorts a batch's rows of a cache, i32[c], by their node; cache_ids: ids[m], in the order of the cache."""
        ids = cache_ids[members]
        order = np.argsort(ids)
        return CachedNodes(ids[order], members[order].astype(np.int64))


def addresses(slots: Array, input_ids: Array, packed_ids: Array, cached: CachedNodes) -> tuple[Array, Array]:
    """Returns (slots i32[n], places i32[c]) of a batch: places ascending, rows of the segment's cache.

    Args:
        slots: i32[n] of the plan, of the inputs; it is written to.
        input_ids: ids[n] global, each once.
        packed_ids: ids[p] ascending, what is packed with the batch.
        cached: what the plan has it read from the cache of its segment.

    Raises:
        InputError: an input is in no tier, or a packed row is no input.
    """
    from_disk = np.flatnonzero(slots == ELSEWHERE)
    order = np.argsort(input_ids[from_disk])
    from_disk = from_disk[order]
    ids = input_ids[from_disk]
    if np.array_equal(ids, packed_ids):  # nothing of it is cached
        slots[from_disk] = pack(STAGED, np.arange(len(ids)))
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
    slots[from_disk] = pack(STAGED, at)
    return slots, places[order].astype(np.int32)


def _among(ids: Array, wanted: Array) -> tuple[Array, Array]:
    """Returns which of `wanted` are in `ids`, both ascending, and where; where it is not, the place means nothing."""
    if not len(ids):
        return np.zeros(len(wanted), bool), np.zeros(len(wanted), np.int64)
    at = np.searchsorted(ids, wanted)
    at[at == len(ids)] = 0
    return ids[at] == wanted, at
