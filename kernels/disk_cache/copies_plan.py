"""The plan of a segment whose disk cache has copies: the densest pages and the longest reads that a disk budget allows.

The share of a page that a batch must want, and the number of pages one after the other, decide both the space and the bytes read
(kernels/disk_cache/copies.py). Full pages are tried first, in longer ranges as long as they fit. If full pages do not fit, a smaller share
is searched for. Each try lays the segment out, so that the budget is compared with the bytes that will be written. The next bound is
interpolated between the largest known to fit and the least that does not.

This is a search by regula falsi for the largest layout within a budget. It takes `TRIES` steps at most, so a better layout may exist.

Source: ours; see kernels/disk_cache/copies.py.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from graphmill.kernels.disk_cache.copies import NOT_CACHED, place_copies
from graphmill.kernels.disk_cache.segment_plan import CountedPlan, count_plan, stored_bytes
from graphmill.kernels.disk_cache.segments import Segment, split_segment
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.kernels.types import Array

TRIES = 6
"""Largest number of layouts with less than full pages that are tried."""
ENOUGH = 0.96
"""Share of the budget from which on a layout is taken."""
RANGES = (8, 32)
"""Least lengths of ranges in pages, tried in turn while the budget has space for them."""
AMPLE = 0.45
"""Share of full packing from which on the first of `RANGES` is tried before single pages; full pages were seen to take 0.4 to 0.47."""
WINDOW = 32
"""Number of rows that a page is filled from if batches need not want full pages, and rows do not straddle."""


class _Bound(NamedTuple):
    """Bytes of a page that batches must want in a layout, and the bytes that the layout takes."""

    least: int
    space: int


def plan_copies(
    ptr: Any, node_ids: Any, state: Array, row_bytes: int, disk_bytes: int, *, compare: bool = False, threads: int = 1
) -> CountedPlan | None:
    """Plans one segment with copies within a budget.

    Args:
        ptr, node_ids, state: arguments of `graphmill.kernels.disk_cache.segments.split_segment`.
        row_bytes: bytes per row, 1 or more.
        disk_bytes: bytes that the cache and the chunks' rows may take.
        compare: whether pages are also counted for one copy of each row, ordered by id.

    Returns:
        The plan that reads the densest pages, or the longest ranges of full ones, of those tried; None if none of them fits.
    """
    if disk_bytes < 0:
        raise InputError(f"disk_bytes = {disk_bytes} is negative", "give 0 or more")
    tries = _Tries(split_segment(ptr, node_ids, state, threads=threads), row_bytes, disk_bytes, threads)
    found = tries.full_pages() or tries.sparse_pages()
    return found and count_plan(tries.segment, *found, row_bytes, compare, threads)


class _Tries:
    """Layouts of one segment and their sizes."""

    def __init__(self, segment: Segment, row_bytes: int, disk_bytes: int, threads: int):
        self.segment, self._row_bytes, self._disk_bytes, self._threads = segment, row_bytes, disk_bytes, threads
        self._straddles = PAGE_BYTES % row_bytes != 0
        self._range = 2 if self._straddles else 1  # of full pages: the ends of ranges cost rows that straddle pages
        self._full_space = 0

    def full_pages(self) -> tuple[Array, Array] | None:
        """Returns the layout with the longest ranges of full pages that fits, or None."""
        steps = (self._range, *RANGES)
        packing = (len(self.segment.members) + len(self.segment.packed_ids)) * self._row_bytes
        first = int(self._disk_bytes >= AMPLE * packing)
        found = None
        for step in steps[first:]:
            layout, space = self._lay_out(PAGE_BYTES, step)
            if space > self._disk_bytes:
                break
            found = layout
            if space >= ENOUGH * self._disk_bytes:
                break
        if found is None and first:
            layout, space = self._lay_out(PAGE_BYTES, self._range)
            found = layout if space <= self._disk_bytes else None
        self._full_space = space
        return found

    def sparse_pages(self) -> tuple[Array, Array] | None:
        """Returns the layout with the densest pages of those that fit, or None."""
        once = (len(self.segment.cache_ids) + len(self.segment.packed_ids)) * self._row_bytes  # about
        least = min(self._row_bytes, PAGE_BYTES) // (4 if self._straddles else 1)  # a page may hold a bit of a row
        low, high = _Bound(max(1, least), once), _Bound(PAGE_BYTES, self._full_space)
        found, wanted = None, (1 + ENOUGH) / 2 * self._disk_bytes
        for turn in range(TRIES):
            least = (_between if turn else _guess)(low, high, wanted)
            if not low.least < least < high.least:
                break
            layout, space = self._lay_out(least, 1, 1 if self._straddles else WINDOW)
            if space > self._disk_bytes:
                high = _Bound(least, space)
                continue
            low, found = _Bound(least, space), layout
            if space >= ENOUGH * self._disk_bytes:
                break
        return found

    def _lay_out(self, least: int, least_range: int, window: int = 1) -> tuple[tuple[Array, Array], int]:
        segment = self.segment
        rows, places = place_copies(
            segment.member_ptr,
            segment.members,
            len(segment.cache_ids),
            row_bytes=self._row_bytes,
            least_bytes=least,
            least_range=least_range,
            window=window,
            threads=self._threads,
        )
        packed = np.diff(segment.packed_ptr)
        packed += np.diff(np.searchsorted(np.flatnonzero(places == NOT_CACHED), segment.member_ptr))
        return (rows, places), stored_bytes(len(rows), packed, self._row_bytes)


def _guess(low: _Bound, high: _Bound, wanted: float) -> int:
    """Returns the first bound to try: space was seen to grow as 1 - 1 / the rows of a page that must be wanted."""
    share = (wanted - low.space) / max(1, high.space - low.space)
    return round(min(0.95 * high.least, low.least / (1 - min(0.9, max(0.1, share)))))


def _between(low: _Bound, high: _Bound, wanted: float) -> int:
    """Returns a bound between two, linear in its logarithm, and not too close to either."""
    share = min(0.9, max(0.1, (wanted - low.space) / max(1, high.space - low.space)))
    return round(math.exp(math.log(low.least) + share * (math.log(high.least) - math.log(low.least))))
