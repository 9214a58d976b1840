"""The plan of one segment of batches: the cached rows in order, the packed rows, and the pages that each batch will read.

A segment is split (kernels/disk_cache/segments.py), its cache is put in order (kernels/disk_cache/orders.py) or given
copies (kernels/disk_cache/copies.py), and the pages that each batch then touches are counted (kernels/rows/pages.py).
Nothing is estimated: the packer writes these rows at these places, so the trainer reads these pages.

With one copy of each row, `order` is "filled", pages filled from the Gray-code order of the memberships in batches; "gray", that order
itself; "minhash", DiskGNN's Algorithm 1 with two hashes; or "id", ascending node ids, the baseline of all.

Source: DiskGNN, section 5.1, Algorithm 1 (order) and Algorithm 2 (segments).
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from graphmill.kernels.disk_cache.copies import NOT_CACHED
from graphmill.kernels.disk_cache.orders import WINDOW, gray_order, minhash_order, rows_of_page
from graphmill.kernels.disk_cache.segments import ALL, Segment, SegmentPlan, split_segment
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.pages import PAGE_BYTES, padded_bytes, touched_pages
from graphmill.kernels.types import Array

Order = Literal["filled", "gray", "minhash", "id"]


@dataclass(frozen=True, kw_only=True)
class CountedPlan(SegmentPlan):
    """The plan of one segment of s batches, and the reads that it takes.

    Attributes:
        pages, runs: i64[s], pages of the cache that each batch reads, and the ranges of adjacent ones.
        pages_by_id: i64[s], the pages if the cache held each row once, by node id; None if they were not counted.
    """

    pages: Array
    runs: Array
    pages_by_id: Array | None
    row_bytes: int

    @property
    def amplification(self) -> float:
        """Bytes that the batches read for each byte that they need."""
        asked = int(self.asked_bytes.sum())
        return int(self.moved_bytes.sum()) / asked if asked else 1.0

    @property
    def packed_bytes(self) -> Array:
        """i64[s]: bytes of the rows section of each batch's chunk, whole pages."""
        return padded_bytes(self.packed_rows * self.row_bytes)

    @property
    def moved_bytes(self) -> Array:
        """i64[s]: bytes that each batch reads from disk."""
        return self.packed_bytes + self.pages * PAGE_BYTES

    @property
    def asked_bytes(self) -> Array:
        """i64[s]: bytes of the rows that each batch needs from disk."""
        return (self.packed_rows + self.cached_rows) * self.row_bytes

    @property
    def disk_bytes(self) -> int:
        """Bytes that the segment takes on disk: its cache and its chunks' rows, each in whole pages."""
        return stored_bytes(len(self.cache_ids), self.packed_rows, self.row_bytes)


def stored_bytes(cached: int, packed_rows: Array, row_bytes: int) -> int:
    """Returns the bytes that a segment takes on disk with packed_rows i64[s], the rows of each batch's chunk."""
    return padded_bytes(cached * row_bytes) + int(padded_bytes(packed_rows * row_bytes).sum())


def plan_segment(
    ptr: Any,
    node_ids: Any,
    state: Array,
    row_bytes: int,
    *,
    order: Order = "filled",
    seed: int = 0,
    most_cached: int = ALL,
    compare: bool = False,
    threads: int = 1,
) -> CountedPlan:
    """Plans one segment.

    Args:
        ptr, node_ids, state, most_cached: arguments of `split_segment`.
        seed: seed of the run, which draws the permutations of "minhash".
        compare: whether pages are also counted for the order by id.
    """
    if order not in get_args(Order):
        raise InputError(f"order = {order!r}", f"give one of {', '.join(get_args(Order))}")
    segment = split_segment(ptr, node_ids, state, most_cached, threads)
    places = _order_rows(segment, row_bytes, order, seed, threads)
    row_of = np.empty(len(places), np.int32)
    row_of[places] = np.arange(len(places), dtype=np.int32)
    return count_plan(segment, places, row_of[segment.members], row_bytes, compare, threads)


def count_plan(
    segment: Segment, rows: Array, places: Array, row_bytes: int, compare: bool, threads: int
) -> CountedPlan:
    """Returns the plan of a segment for a layout of its cache, with pages and ranges counted.

    Args:
        rows: i32[c], index in the segment's `cache_ids` of the row at each place of the file.
        places: i32[q], the place where each of the segment's `members` is read, or `graphmill.kernels.disk_cache.copies.NOT_CACHED`.
        row_bytes, compare, threads: arguments of `plan_segment`.
    """
    cached = places != NOT_CACHED
    member_ptr, members, nodes = segment.member_ptr, places, segment.members
    packed_ptr, packed_ids = segment.packed_ptr, segment.packed_ids
    if not cached.all():
        batch = np.repeat(np.arange(len(member_ptr) - 1), np.diff(member_ptr))
        member_ptr, members, nodes = _pointers(batch[cached], len(member_ptr) - 1), places[cached], nodes[cached]
        alone = np.repeat(np.arange(len(packed_ptr) - 1), np.diff(packed_ptr))
        owner = np.concatenate([alone, batch[~cached]])
        ids = np.concatenate([packed_ids, segment.cache_ids[segment.members[~cached]]])
        packed_ids, packed_ptr = ids[np.lexsort((ids, owner))], _pointers(owner, len(packed_ptr) - 1)
    pages, runs = touched_pages(member_ptr, members, len(rows), row_bytes, threads)
    by_id = touched_pages(member_ptr, nodes, len(segment.cache_ids), row_bytes, threads)[0] if compare else None
    return CountedPlan(
        segment_of=np.zeros(len(packed_ptr) - 1, np.int32),
        cache_ptr=np.array([0, len(rows)], np.int64),
        cache_ids=segment.cache_ids[rows],
        packed_ptr=packed_ptr,
        packed_ids=packed_ids,
        member_ptr=member_ptr,
        members=members,
        pages=pages,
        runs=runs,
        pages_by_id=by_id,
        row_bytes=row_bytes,
    )


def _pointers(owner: Array, count: int) -> Array:
    """Returns i64[count+1], where each owner's entries begin once they are sorted by owner."""
    return np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=count))])


def _order_rows(segment: Segment, row_bytes: int, order: Order, seed: int, threads: int) -> Array:
    """Returns i32[c]: the place in `cache_ids` of each row of the file."""
    if order == "id" or len(segment.cache_ids) == 0:
        return np.arange(len(segment.cache_ids), dtype=np.int32)
    if order == "minhash":
        return minhash_order(segment.member_ptr, segment.members, seed=seed)
    row_bytes = row_bytes if order == "filled" else 0
    window = max(WINDOW, rows_of_page(row_bytes))
    return gray_order(segment.member_ptr, segment.members, row_bytes=row_bytes, window=window, threads=threads)
