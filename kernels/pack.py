"""Packing: one range of feature rows, in memory, is dealt to all the places in a file that want them (DiskGNN, section 5.2).

A group of batches keeps a list of nodes for every packed chunk and every segment cache. Packing a batch at a time would read each row at
random, once for every list that names it. Batched packing goes over the features once, range by range, and deals a whole range to
all lists before it takes the next: reading is sequential, and a row is read once however often it is stored.

The lists are ascending by node id, so each keeps a cursor and nothing is searched: O(rows stored) altogether, each copied once, from the
range into the mapped file. Lists are dealt to in parallel; they share no place, so the bytes do not depend on the team. Where a list's
rows stand in another order than by id (a segment cache), `places` says which row of the list's region each entry is.

Memory: the range; 4 or 8 bytes a stored row for the ids, and 4 for places.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kernels import _native
from kernels.arrays import as_ids, as_int32, check_threads
from kernels.errors import InputError
from kernels.pages import check_ptr
from kernels.types import Array


@dataclass(kw_only=True)
class PackLists:
    """What is packed where.

    Attributes:
        ptr: i64[L+1]; list l wants the nodes ids[ptr[l]:ptr[l+1]], ascending.
        ids: ids[n], rows of the feature table.
        offsets: i64[L], byte of the file at which the region of list l starts; it is as long as the list's rows.
        places: i32[n], row of its region that each entry becomes; None = in the order of the list.
        cursor: i64[L], entries of each list that are packed already, counted from the start of `ids`; moves on.
    """

    ptr: Array
    ids: Array
    offsets: Array
    places: Array | None = None
    cursor: Array = field(init=False)

    def __post_init__(self) -> None:
        """Checks the arrays; raises InputError where they do not fit together."""
        self.ids = as_ids(self.ids, "ids")
        self.ptr = check_ptr(self.ptr, len(self.ids))
        self.offsets = np.require(self.offsets, np.int64, ["C", "A"])
        if self.offsets.shape != (len(self.ptr) - 1,):
            raise InputError(f"{len(self.offsets)} offsets for {len(self.ptr) - 1} lists", "give one a list")
        if self.places is not None:
            self.places = as_int32(self.places, "places", len(self.ids))
        self.cursor = self.ptr[:-1].copy()

    @property
    def done(self) -> bool:
        """Whether every entry is packed."""
        return bool((self.cursor == self.ptr[1:]).all())


def pack_reference(table: Array, lists: PackLists, out: Array) -> None:
    """Writes every list's rows of a whole table u8[N, row_bytes] to out u8[bytes] (the rule in NumPy)."""
    row_bytes = table.shape[1]
    for number, (low, high) in enumerate(zip(lists.ptr[:-1], lists.ptr[1:], strict=True)):
        for entry in range(low, high):
            place = entry - low if lists.places is None else lists.places[entry]
            start = lists.offsets[number] + place * row_bytes
            out[start : start + row_bytes] = table[lists.ids[entry]]


def pack_range(rows: Array, first_row: int, lists: PackLists, out: Array, threads: int = 1) -> int:
    """Deals one range of the table to all lists, and moves their cursors behind it. Ranges come in ascending order, without gaps.

    Args:
        rows: u8[r, row_bytes], rows first_row to first_row + r - 1 of the table.
        first_row: the table's row that comes first.
        lists: who wants what; every entry below first_row is packed already.
        out: u8[bytes], the file, mapped; not `rows`.
        threads: native threads; the bytes do not depend on it.

    Returns:
        Rows written.

    Raises:
        InputError: a list is not ascending, a range was left out, or a place is outside the file or its region.
    """
    if rows.dtype != np.uint8 or rows.ndim != 2 or not rows.flags.c_contiguous:
        raise InputError(f"rows are {rows.dtype}{list(rows.shape)}", "give C-contiguous uint8[r, row_bytes]")
    if out.dtype != np.uint8 or out.ndim != 1 or not (out.flags.c_contiguous and out.flags.writeable):
        raise InputError(f"out is {out.dtype}{list(out.shape)}", "give a writable uint8[bytes]")
    return _native.pack_range(
        rows, first_row, lists.ptr, lists.ids, lists.offsets, lists.places, lists.cursor, out, check_threads(threads)
    )
