"""Packing: one range of feature rows, in memory, is distributed to all the lists that want them (DiskGNN, section 5.2).

Every packed chunk and every segment cache has a list: the nodes whose rows it stores. Packing one batch after the other would read each
row at random, once for every list that names it. Batched packing goes over the features once, range by range, and distributes a whole
range to all lists before it takes the next: reading is sequential, and a row is read once however often it is stored. It is a merge join
of the table with all lists, or a partitioned copy.

The lists are ascending by node id, so each goes on where it stopped and nothing is searched: O(rows stored + lists x ranges) altogether.
Every list has a buffer of its own in which its rows come to lie one after the other. A row is copied once, from the range to the buffer.
When the buffer is full, its owner writes it, in one large piece however few rows a range has for the list, and the list goes on; a row
may be cut by the end of a buffer. Lists share nothing, so several threads may distribute to disjoint ranges of lists at once.

Not checked: that a list names a node once (a row named twice is stored twice), and that a range holds the bytes of its rows.

Memory: the range and the buffers; 4 or 8 bytes per stored row for the ids.
"""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import as_ids
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.pages import check_ptr
from graphmill.kernels.types import Array


@dataclass(kw_only=True)
class PackLists:
    """The lists to pack, and their buffers."""

    # i64[L+1]; list l wants the nodes ids[ptr[l]:ptr[l+1]], ascending.
    ptr: Array
    # Rows of the feature table, ids[n].
    ids: Array
    # The buffers of all lists, one after the other, u8[bytes].
    buffers: Array
    # i64[L+1]; the buffer of list l is buffers[starts[l]:starts[l+1]].
    starts: Array
    # Bytes in each buffer that are not written yet, i64[L]; the writer sets it to 0.
    used: Array = field(init=False)
    # Bytes of each list that were copied so far, over all ranges, i64[L].
    done: Array = field(init=False)

    def __post_init__(self) -> None:
        """Checks the arrays; raises InputError if they do not fit together."""
        self.ids = as_ids(self.ids, "ids")
        self.ptr = check_ptr(self.ptr, len(self.ids))
        usable = self.buffers.dtype == np.uint8 and self.buffers.ndim == 1 and self.buffers.flags.c_contiguous
        if not (usable and self.buffers.flags.writeable):
            problem = f"buffers are {self.buffers.dtype}{list(self.buffers.shape)}"
            raise InputError(problem, "give a writable, contiguous uint8[bytes]")
        self.starts = check_ptr(self.starts, len(self.buffers))
        if len(self.starts) != len(self.ptr):
            raise InputError(f"{len(self.starts) - 1} buffers for {len(self.ptr) - 1} lists", "give one per list")
        self.used, self.done = np.zeros((2, len(self.ptr) - 1), np.int64)

    def __len__(self) -> int:
        return len(self.used)

    def buffer(self, number: int) -> Array:
        """Returns u8[bytes], the buffer of a list."""
        return self.buffers[self.starts[number] : self.starts[number + 1]]

    def complete(self, row_bytes: int) -> bool:
        """Returns whether every row of every list was distributed."""
        return bool((self.done == np.diff(self.ptr) * row_bytes).all())


def pack_reference(table: Array, ptr: Array, ids: Array) -> list[Array]:
    """Returns the bytes u8[...] of every list over a whole table u8[N, row_bytes] (the rule in NumPy)."""
    return [table[ids[low:high]].reshape(-1) for low, high in pairwise(ptr)]


def pack_range(rows: Array, first_row: int, lists: PackLists, low: int = 0, high: int | None = None) -> bool:
    """Distributes one range of the table to lists low to high - 1, as far as their buffers have space.

    Ranges come in ascending order, without gaps. Before the next one comes, empty the full buffers and distribute this one again, until no
    list wants more of it.

    Args:
        rows: u8[r, row_bytes], rows first_row to first_row + r - 1 of the table.
        first_row: number of the first of these rows.
        lists: the lists and their buffers; every entry below first_row was distributed before.
        low, high: range of lists; other threads may distribute to others meanwhile.

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
        rows, first_row, lists.ptr, lists.ids, lists.done, lists.buffers, lists.starts, lists.used, low, high
    )
