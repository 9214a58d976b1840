"""A disk cache with copies: it holds a row once for each set of batches that can share its page, instead of once.

DiskGNN's segment cache holds a row once, in one place, and every batch of the segment reads the page that it is on. If batches have little
in common, no order of the rows helps: a row wanted by nine of 200 batches cannot stand beside rows that the same nine want. But it can
stand beside rows that two or three of the nine want, again beside rows that three others want, and once more for the rest. Such copies take
about half the space of packing every row with every batch, and hardly a byte is moved that no batch needs. In storage systems this is
called replication for locality; here the copies follow from known reads.

The copies are found batch by batch. A batch brings the rows that it wants and that no copy serves yet into the file. They are put in
the order of the reflected Gray code of their later uses, so that rows with the same next uses stand together, and `window` > 1 fills
pages from that order: a page takes the row whose batches it has most, by the sum of squares. A later batch then takes a page when it wants
enough of it, `least_bytes`; its rows there are served. If it wants less, it waits, and brings the rows itself when its turn comes. A page
that no later batch takes is not written: its rows are packed with the batch that brought them.

`least_bytes` trades space for bytes read, steadily: at a full page every page that is read is wanted whole; at one row every row is stored
once. Between multiples of a row the bound differs from page to page, so that the trade has no steps. If there is space for more than full
pages take, `least_range` makes a batch take no fewer pages one after the other, which makes reads long. Rows whose width does not divide a
page are served if their batch takes all pages that they lie on; the ends of a range are then read in vain, and long ranges make them few.

Cost: q uses of m rows, c copies that are stored. O(q + c (k + log(rows per batch))) with k the later uses of a row, and c * window * k
for filling. Memory: 16 m + 16 q bytes, and while a batch is placed 80 bytes per row, 12 per later use and a bit per page and batch.
Nothing depends on the number of threads.

Not checked: that a batch names a row once. The result is not an optimum: batches are taken in their order, and nothing is taken back.

Source: the layout is ours. It replaces DiskGNN's, section 5.1.
"""

from typing import Any

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import check_threads
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.pages import PAGE_BYTES, check_ptr
from graphmill.kernels.types import Array

LATER = 128
"""Number of batches after its own that a row's place in the order depends on."""
NOT_CACHED = -1
"""The place of a use whose row is not in the cache file: it is packed with its batch."""
_GOLDEN = 0x9E3779B97F4A7C15
_FILLED = 4096


def place_copies_reference(
    member_ptr: Array,
    members: Array,
    num_rows: int,
    row_bytes: int,
    least_bytes: int,
    least_range: int = 1,
    window: int = 1,
) -> tuple[Array, Array]:
    """Returns the same as `place_copies` (the rule in plain Python)."""
    num_batches = len(member_ptr) - 1
    batches = [members[member_ptr[b] : member_ptr[b + 1]].tolist() for b in range(num_batches)]
    uses: list[list[int]] = [[] for _ in range(num_rows)]
    for b, rows in enumerate(batches):
        for row in rows:
            uses[row].append(b)
    file: list[int] = []
    place: dict[tuple[int, int], int] = {}
    for b, rows in enumerate(batches):
        later = {
            row: [u for u in uses[row] if u > b and (u, row) not in place] for row in rows if (b, row) not in place
        }
        order = sorted(later, key=lambda row: (_gray_place(b, later[row]), row))
        if window > 1:
            order = _fill_reference(order, later, len(file), row_bytes, window)
        pages = [_pages_of(len(file) + i, row_bytes) for i in range(len(order))]
        taken = _in_ranges(_taken_reference(order, later, len(file), row_bytes, least_bytes), least_range)
        served = [
            {u for u in later[row] if all((page, u) in taken for page in pages[i])} for i, row in enumerate(order)
        ]
        written = {page for i in range(len(order)) if served[i] for page in pages[i]}
        for i, row in enumerate(order):
            place[b, row] = NOT_CACHED
            if written & set(pages[i]):
                place |= {(u, row): len(file) for u in (b, *served[i])}
                file.append(row)
    places = [place[b, row] for b, rows in enumerate(batches) for row in rows]
    return np.array(file, np.int32), np.array(places, np.int32)


def _gray_place(batch: int, later: list[int]) -> list[int]:
    bits = np.zeros(LATER, np.int64)
    bits[[u - batch - 1 for u in later if u - batch <= LATER]] = 1
    return (np.cumsum(bits) % 2).tolist()


def _pages_of(row: int, row_bytes: int) -> range:
    return range(row * row_bytes // PAGE_BYTES, ((row + 1) * row_bytes - 1) // PAGE_BYTES + 1)


def _fill_reference(
    order: list[int], later: dict[int, list[int]], start: int, row_bytes: int, window: int
) -> list[int]:
    out: list[int] = []
    for first in range(0, len(order), _FILLED):
        rest = order[first : first + _FILLED]
        have: dict[int, int] = {}
        for _ in range(len(rest)):
            place = start + len(out)
            opens = len(out) == first or place * row_bytes // PAGE_BYTES != (place - 1) * row_bytes // PAGE_BYTES
            if opens:
                have = {}
            worth = [sum(have.get(u, 0) ** 2 for u in later[row]) for row in rest[:window]]
            row = rest.pop(0 if opens else int(np.argmax(worth)))  # the earliest of equals
            for u in later[row]:
                have[u] = have.get(u, 0) + 1
            out.append(row)
    return out


def _taken_reference(
    order: list[int], later: dict[int, list[int]], start: int, row_bytes: int, least_bytes: int
) -> set[tuple[int, int]]:
    """Returns the (page, batch) pairs of full pages that later batches take."""
    wanted: dict[tuple[int, int], int] = {}
    for i, row in enumerate(order):
        low, high = (start + i) * row_bytes, (start + i + 1) * row_bytes
        for page in _pages_of(start + i, row_bytes):
            here = min(high, (page + 1) * PAGE_BYTES) - max(low, page * PAGE_BYTES)
            for u in later[row]:
                wanted[page, u] = wanted.get((page, u), 0) + here
    full, step = (start + len(order)) * row_bytes // PAGE_BYTES, min(row_bytes, PAGE_BYTES)
    bound = {page: least_bytes - step + (((page * _GOLDEN % 2**64) >> 32) * step >> 32) for page, _ in wanted}
    return {(page, u) for (page, u), count in wanted.items() if page < full and count >= bound[page]}


def _in_ranges(taken: set[tuple[int, int]], least_range: int) -> set[tuple[int, int]]:
    """Returns the pairs whose page is in a range of at least `least_range` pages that the batch takes."""
    kept = set()
    for page, batch in taken:
        if (page - 1, batch) not in taken:
            end = page
            while (end, batch) in taken:
                end += 1
            if end - page >= least_range:
                kept |= {(each, batch) for each in range(page, end)}
    return kept


def place_copies(
    member_ptr: Any,
    members: Array,
    num_rows: int,
    *,
    row_bytes: int,
    least_bytes: int = PAGE_BYTES,
    least_range: int = 1,
    window: int = 1,
    threads: int = 1,
) -> tuple[Array, Array]:
    """Lays out a disk cache with copies.

    Args:
        member_ptr: i64[s+1]; batch b wants the rows members[member_ptr[b]:member_ptr[b+1]], each once.
        members: i32[q], numbers of rows, 0 to num_rows - 1.
        num_rows: m, number of rows that any batch wants.
        row_bytes: bytes per row, 1 or more.
        least_bytes: bytes of a page that a later batch must want in order to take the page, 0 to a page.
        least_range: pages one after the other that a later batch must take, 1 or more.
        window: number of rows that a page is filled from; 1 leaves the Gray order.

    Returns:
        rows i32[c], the row at each place of the file, and places i32[q], the place where each use reads its row or `NOT_CACHED`.
    """
    member_ptr = check_ptr(member_ptr, len(members))
    if members.dtype != np.int32 or not members.flags.c_contiguous:
        raise InputError(f"members are {members.dtype}", "give int32, one after the other")
    if len(members) and not 0 <= members.min() <= members.max() < num_rows:
        raise InputError(f"members run from {members.min()} to {members.max()}", f"give rows 0 to {num_rows - 1}")
    if row_bytes < 1 or not 0 <= least_bytes <= PAGE_BYTES or least_range < 1 or not 1 <= window <= _FILLED:
        problem = (
            f"row_bytes = {row_bytes}, least_bytes = {least_bytes}, least_range = {least_range}, window = {window}"
        )
        raise InputError(problem, f"give 1 byte or more, 0 to {PAGE_BYTES}, 1 page or more, and 1 to {_FILLED} rows")
    return _native.place_copies(
        member_ptr, members, num_rows, row_bytes, PAGE_BYTES, least_bytes, least_range, window, check_threads(threads)
    )
