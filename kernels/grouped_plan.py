"""The plan of a segment whose disk cache has copies: the densest pages that a disk budget allows (kernels/grouped.py).

How much of a page a batch must want decides both the space and the bytes moved; the less is asked for, the less space is taken. First
full pages are tried. Where they do not fit, the bound is searched: each try lays the segment out, so that what is compared with
the budget are the bytes that will be written. The next bound is interpolated between the largest known to fit and the least that does not.

Source: ours; see kernels/grouped.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.errors import InputError
from kernels.grouped import PACKED, group_rows
from kernels.pages import PAGE_BYTES
from kernels.segment_plan import PlannedSegment, planned, stored_bytes
from kernels.segments import split_segment
from kernels.types import Array

TRIES = 6
"""Layouts that are tried at most."""

ENOUGH = 0.96
"""Share of the budget from which on a layout is taken."""

WINDOW = 32
"""Rows that pages are filled from where less than full pages are asked for."""


def plan_grouped(
    ptr: Any,
    node_ids: Any,
    state: Array,
    row_bytes: int,
    disk_bytes: int,
    *,
    compare: bool = False,
    threads: int = 1,
) -> PlannedSegment | None:
    """Plans one segment with copies within a budget.

    Args:
        ptr, node_ids, state: as in `kernels.segments.split_segment`.
        row_bytes: bytes of a row, 1 or more.
        disk_bytes: that the cache and the chunks' rows may take.
        compare: also count pages for one copy of each row, ordered by id.
        threads: native threads; the result does not depend on it.

    Returns:
        The plan that reads the densest pages of those tried, or None where none of them fits.

    Raises:
        InputError: an argument is out of range.
    """
    if disk_bytes < 0:
        raise InputError(f"disk_bytes = {disk_bytes} is negative", "give 0 or more")
    segment = split_segment(ptr, node_ids, state, threads=threads)

    def lay_out(least: int) -> tuple[tuple[Array, Array], int]:
        """Returns a layout and the bytes that it takes."""
        rows, places = group_rows(
            segment.member_ptr,
            segment.members,
            len(segment.cache_ids),
            row_bytes=row_bytes,
            least_bytes=least,
            window=1 if least == PAGE_BYTES else WINDOW,
            threads=threads,
        )
        packed = np.diff(segment.packed_ptr) + np.diff(
            np.searchsorted(np.flatnonzero(places == PACKED), segment.member_ptr)
        )
        return (rows, places), stored_bytes(len(rows), packed, row_bytes)

    found, space = lay_out(PAGE_BYTES)
    if space > disk_bytes:
        once = (len(segment.cache_ids) + len(segment.packed_ids)) * row_bytes  # about
        found = _search(lay_out, (min(row_bytes, PAGE_BYTES), once), (PAGE_BYTES, space), disk_bytes)
    return found and planned(segment, *found, row_bytes, compare, threads)


def _search(
    lay_out: Callable[[int], tuple[tuple[Array, Array], int]],
    low: tuple[int, int],
    high: tuple[int, int],
    disk_bytes: int,
) -> tuple[Array, Array] | None:
    """Returns the layout with the densest pages of those that fit, or None; low and high are (bound, space)."""
    found, wanted = None, (1 + ENOUGH) / 2 * disk_bytes
    for turn in range(TRIES - 1):
        least = (_between if turn else _guess)(low, high, wanted)
        if not low[0] < least < high[0]:
            break
        tried, space = lay_out(least)
        if space > disk_bytes:
            high = least, space
            continue
        low, found = (least, space), tried
        if space >= ENOUGH * disk_bytes:
            break
    return found


def _guess(low: tuple[int, int], high: tuple[int, int], wanted: float) -> int:
    """Returns the first bound to try: space was seen to grow as 1 - 1 / the rows of a page that must be wanted."""
    share = (wanted - low[1]) / max(1, high[1] - low[1])
    return round(min(0.95 * high[0], low[0] / (1 - min(0.9, max(0.1, share)))))


def _between(low: tuple[int, int], high: tuple[int, int], wanted: float) -> int:
    """Returns a bound between two (bound, space), linear in its logarithm, and not too close to either."""
    share = min(0.9, max(0.1, (wanted - low[1]) / max(1, high[1] - low[1])))
    return round(math.exp(math.log(low[0]) + share * (math.log(high[0]) - math.log(low[0]))))
