"""Packing: one range of feature rows, in memory, is dealt to all the lists that want them (DiskGNN, section 5.2).

A group of batches keeps a list of nodes for every packed chunk and every segment cache. Packing a batch at a time would read each row at
random, once for every list that names it. Batched packing goes over the features once, range by range, and deals a whole range to
all lists before it takes the next: reading is sequential, and a row is read once however often it is stored.

The lists are ascending by node id, so each goes on where it stopped and nothing is searched: O(rows stored + lists a range) altogether.
Every list has a buffer of its own in which its rows come to lie one after the other. A row is copied once, from the range to the buffer.
When the buffer is full, its owner writes it, in one large piece however few rows a range has for the list, and the list goes on; a row
may be cut by the end of a buffer. Lists share nothing, so several threads may deal to disjoint slices of them at once.

Memory: the range and the buffers; 4 or 8 bytes a stored row for the ids.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from kernels import _native
from kernels.arrays import as_ids
from kernels.errors import InputError
from kernels.rows.pages import check_ptr
from kernels.types import Array


@dataclass(kw_only=True)
class PackLists:
    """What is packed, and the buffers that it comes to.

    Attributes:
        ptr: i64[L+1]; list l wants the nodes ids[ptr[l]:ptr[l+1]], ascending.
        ids: ids[n], rows of the feature table.
        memory: u8[bytes], the buffers.
        starts: i64[L+1]; the buffer of list l is memory[starts[l]:starts[l+1]].
        used: i64[L], bytes in each buffer that wait for being written; whoever writes them sets it to 0.
        done: i64[L], bytes of each list that were copied so far, over all ranges.
    """

    ptr: Array
    ids: Array
    memory: Array
    starts: Array
    used: Array = field(init=False)
    done: Array = field(init=False)

    def __post_init__(self) -> None:
        """Checks the arrays; raises InputError where they do not fit together."""
        self.ids = as_ids(self.ids, "ids")
        self.ptr = check_ptr(self.ptr, len(self.ids))
        usable = self.memory.dtype == np.uint8 and self.memory.ndim == 1 and self.memory.flags.c_contiguous
        if not (usable and self.memory.flags.writeable):
            problem = f"memory is {self.memory.dtype}{list(self.memory.shape)}"
            raise InputError(problem, "give a writable, contiguous uint8[bytes]")
        self.starts = check_ptr(self.starts, len(self.memory))
        if len(self.starts) != len(self.ptr):
            raise InputError(f"{len(self.starts) - 1} buffers for {len(self.ptr) - 1} lists", "give one a list")
        self.used, self.done = np.zeros((2, len(self.ptr) - 1), np.int64)

    def __len__(self) -> int:
        """L."""
        return len(self.used)

    def buffer(self, number: int) -> Array:
        """Returns u8[room], the buffer of a list."""
        return self.memory[self.starts[number] : self.starts[number + 1]]

    def complete(self, row_bytes: int) -> bool:
        """Returns whether every entry of every list was dealt."""
        return bool((self.done == np.diff(self.ptr) * row_bytes).all())


def pack_reference(table: Array, ptr: Array, ids: Array) -> list[Array]:
    """Returns the bytes u8[...] of every list over a whole table u8[N, row_bytes] (the rule in NumPy)."""
    return [table[ids[low:high]].reshape(-1) for low, high in pairwise(ptr)]


def pack_range(rows: Array, first_row: int, lists: PackLists, low: int = 0, high: int | None = None) -> bool:
    """Deals one range of the table to lists low to high - 1, as far as their buffers have room.

    Ranges come in ascending order, without gaps. Before the next one comes, empty the full buffers and deal this one again, until nobody
    wants more of it.

    Args:
        rows: u8[r, row_bytes], rows first_row to first_row + r - 1 of the table.
        first_row: the table's row that comes first.
        lists: who wants what; every entry below first_row is dealt already.
        low, high: which lists; other threads may deal to others meanwhile.

    Returns:
        Whether a list wants more of this range than its buffer could take.

    Raises:
        InputError: a list is not ascending, or a range was left out.
    """
    if rows.dtype != np.uint8 or rows.ndim != 2 or not rows.flags.c_contiguous or not rows.shape[1]:
        raise InputError(f"rows are {rows.dtype}{list(rows.shape)}", "give C-contiguous uint8[r, row_bytes]")
    high = len(lists) if high is None else high
    if not 0 <= low <= high <= len(lists):
        raise InputError(f"lists {low} to {high - 1} of {len(lists)}", "give lists that there are")
    return _native.pack_range(
        rows, first_row, lists.ptr, lists.ids, lists.done, lists.memory, lists.starts, lists.used, low, high
    )
