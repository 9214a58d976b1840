"""A segment of batches and its disk cache: rows that several of its batches need are stored once, the others with their batch.

DiskGNN packs every row that a batch needs from disk into the batch's own chunk, so that one sequential read brings it. A row that k
batches need is then stored k times. To save space, consecutive batches form a segment with a disk cache of its own: a row that two or
more batches of the segment need lies there once, and is read by page. A row lies in a chunk or in the cache of the segment, never in both,
though it may be cached in one segment and packed in another.

`split_segment` takes one segment: exact counts by one pass over its (batch, node) pairs, then the split. The paper caches every node with a
count above 1 (Algorithm 2); `most_cached` keeps only the m that most batches of the segment need, which is the second dimension of its
exhaustive search. O(pairs + N / 64) time. Bytes moved: about 16 per pair at random and 8 in order, besides sorting the packed ids.

The split is a threshold on counts (a node wanted twice is shared). Not checked: that a batch names a node once.

Peak memory beside input and result: N / 8 bytes, and 4 N of `state`, which the caller keeps for all segments.

Source: DiskGNN, section 5.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import as_ids, check_threads
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.pages import check_ptr
from graphmill.kernels.rows.slots import ELSEWHERE
from graphmill.kernels.types import Array

ALL = -1
"""Every node that two batches need is cached."""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """The places on disk of the rows of one segment's batches that no static tier holds."""

    # Ascending, ids[c]; the order of the file is decided later.
    cache_ids: Array
    # i64[s+1], ids[p], rows in each batch's chunk, ascending in a batch.
    packed_ptr: Array
    packed_ids: Array
    # i64[s+1], i32[q], rows that each batch reads from the cache, as places in `cache_ids`, in the batch's order.
    member_ptr: Array
    members: Array


@dataclass(frozen=True, kw_only=True)
class SegmentPlan:
    """The places on disk of the rows of B batches in S segments that no static tier holds."""

    # Segment of each batch, ascending, i32[B].
    segment_of: Array
    # i64[S+1], ids[m], rows of each segment's disk cache, in the order of its file.
    cache_ptr: Array
    cache_ids: Array
    # i64[B+1], i32[q], rows of its segment's cache that each batch reads, counted from the segment's first.
    member_ptr: Array
    members: Array
    # i64[B+1], ids[p], rows of each batch's chunk, ascending in a batch.
    packed_ptr: Array
    packed_ids: Array
    # Number, by epoch and step, of the first of these batches.
    first_batch: int = 0

    def group(self, low: int, high: int) -> SegmentPlan:
        """Returns the plan of segments low to high - 1 alone; its segments and batches are numbered from 0."""
        first, last = (int(place) for place in np.searchsorted(self.segment_of, [low, high]))
        cache_ptr, member_ptr, packed_ptr = (
            np.array(ptr[start : stop + 1])
            for ptr, start, stop in (
                (self.cache_ptr, low, high),
                (self.member_ptr, first, last),
                (self.packed_ptr, first, last),
            )
        )
        return SegmentPlan(
            segment_of=np.array(self.segment_of[first:last]) - low,
            cache_ptr=cache_ptr - cache_ptr[0],
            cache_ids=np.asarray(self.cache_ids[cache_ptr[0] : cache_ptr[-1]]),
            member_ptr=member_ptr - member_ptr[0],
            members=np.asarray(self.members[member_ptr[0] : member_ptr[-1]]),
            packed_ptr=packed_ptr - packed_ptr[0],
            packed_ids=np.asarray(self.packed_ids[packed_ptr[0] : packed_ptr[-1]]),
            first_batch=self.first_batch + first,
        )

    def cache(self, segment: int) -> Array:
        """Returns ids[c], the rows of a segment's disk cache, in the order of its file."""
        return self.cache_ids[self.cache_ptr[segment] : self.cache_ptr[segment + 1]]

    def cached(self, batch: int) -> Array:
        """Returns i32[q], the rows of its segment's cache that a batch reads."""
        return self.members[self.member_ptr[batch] : self.member_ptr[batch + 1]]

    def packed(self, batch: int) -> Array:
        """Returns ids[p], ascending, the rows of a batch's chunk."""
        return self.packed_ids[self.packed_ptr[batch] : self.packed_ptr[batch + 1]]

    @property
    def cached_rows(self) -> Array:
        """i64[B]: rows that each batch reads from its segment's cache."""
        return np.diff(self.member_ptr)

    @property
    def packed_rows(self) -> Array:
        """i64[B]: rows of each batch's chunk."""
        return np.diff(self.packed_ptr)


def disk_state(slot: Array) -> Array:
    """Returns i32[N], working memory of the kernels of segments, for a placement's slots: 0 for a row from disk, -1 for any other."""
    return np.where(slot == ELSEWHERE, np.int32(0), np.int32(-1))


def split_segment_reference(ptr: Array, node_ids: Array, state: Array, most_cached: int = ALL) -> Segment:
    """Returns the same as `split_segment` (the rule in NumPy)."""
    batches = [node_ids[ptr[b] : ptr[b + 1]] for b in range(len(ptr) - 1)]
    batches = [ids[state[ids] == 0] for ids in batches]
    found, counts = np.unique(np.concatenate([node_ids[:0], *batches]), return_counts=True)
    shared, counts = found[counts > 1], counts[counts > 1]
    if most_cached != ALL:
        shared = np.sort(shared[np.lexsort((shared, -counts))[:most_cached]])
    packed = [np.sort(ids[~np.isin(ids, shared)]) for ids in batches]
    members = [np.searchsorted(shared, ids[np.isin(ids, shared)]) for ids in batches]
    return Segment(
        cache_ids=shared,
        packed_ptr=np.cumsum([0, *map(len, packed)]),
        packed_ids=np.concatenate([node_ids[:0], *packed]),
        member_ptr=np.cumsum([0, *map(len, members)]),
        members=np.concatenate([np.zeros(0), *members]).astype(np.int32),
    )


def split_segment(ptr: Any, node_ids: Any, state: Array, most_cached: int = ALL, threads: int = 1) -> Segment:
    """Splits the rows of one segment between its disk cache and its batches' chunks.

    Args:
        ptr: i64[s+1], batch b needs node_ids[ptr[b]:ptr[b+1]], each node once.
        node_ids: ids[n], global.
        state: i32[N] of `disk_state`; used as working memory and left as it was.
        most_cached: largest number of nodes in the cache: those that most batches need, equal ones by smaller id; `ALL` for no bound.
    """
    node_ids = as_ids(node_ids, "node_ids")
    ptr = check_ptr(ptr, len(node_ids))
    if most_cached < ALL:
        raise InputError(f"most_cached = {most_cached}", "give 0 or more, or ALL")
    cache_ids, packed_ptr, packed_ids, member_ptr, members = _native.split_segment(
        ptr, node_ids, check_state(state), most_cached, check_threads(threads)
    )
    return Segment(
        cache_ids=cache_ids, packed_ptr=packed_ptr, packed_ids=packed_ids, member_ptr=member_ptr, members=members
    )


def check_state(state: Array) -> Array:
    """Returns the array when native code may write to it as i32[N]; raises InputError otherwise."""
    if state.dtype != np.int32 or state.ndim != 1 or not (state.flags.c_contiguous and state.flags.writeable):
        raise InputError(f"the working memory is {state.dtype}{list(state.shape)}", "give a writable int32[N]")
    return state
