"""Page-aligned buffers that are used again: direct reads land in them, and fresh memory costs a page fault every 4 KiB.

Large ones ask the system for large pages. A direct read is handed to the device as a list of the pieces of memory it goes to, and in
small pages that is a list of 4 KiB pieces: reads of 256 KiB ran at 0.8 GB/s into small pages and at 1.5 GB/s into large ones
(docs/log.md). Memory of malloc may have either; so large buffers are mapped by themselves.
"""

from __future__ import annotations

import mmap
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.kernels.types import Array

LARGE_BYTES = 2 << 20
"""Bytes from which on a buffer lies in large pages of memory; also the bytes of such a page."""


def aligned_empty(num_bytes: int) -> Array:
    """Returns u8[num_bytes], uninitialised, that starts on a page.

    From `LARGE_BYTES` on, it lies in large pages of memory if the system has them.

    Raises:
        MemoryError: the memory does not suffice.
    """
    if num_bytes < 0:
        raise InputError(f"a buffer of {num_bytes} bytes", "give a size of 0 or more")
    if num_bytes >= LARGE_BYTES:
        return _map_large(num_bytes)
    raw = np.empty(num_bytes + PAGE_BYTES, np.uint8)
    start = -raw.ctypes.data % PAGE_BYTES
    return raw[start : start + num_bytes]


def _map_large(num_bytes: int) -> Array:
    try:
        mapped = mmap.mmap(-1, num_bytes + LARGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no memory for a buffer of {num_bytes} bytes") from error
    raw = np.frombuffer(mapped, np.uint8)  # keeps the mapping for as long as a view of it lives
    start = -raw.ctypes.data % LARGE_BYTES
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them; only speed is lost
            # Whole large pages only: the last bytes must not take more memory than they have.
            mapped.madvise(mmap.MADV_HUGEPAGE, start, num_bytes // LARGE_BYTES * LARGE_BYTES)
    return raw[start : start + num_bytes]


def space_for(num_bytes: int) -> int:
    """Returns the size of the buffer that a pool lends for `num_bytes`: whole pages, rounded up to an eighth of the power of two below.

    Batches differ a little in size. Rounded, they fit into each other's buffers, and memory is not faulted in anew for each that is the
    largest yet.
    """
    step = max(PAGE_BYTES, 1 << max(0, num_bytes.bit_length() - 4))
    return -(-num_bytes // step) * step


class AlignedBuffer:
    """Page-aligned bytes on loan from a pool; a view of `data`, u8[capacity], that outlives `release` shows the next borrower's bytes."""

    def __init__(self, data: Array, pool: BufferPool):
        self.data = data
        self._pool: BufferPool | None = pool

    def __enter__(self) -> AlignedBuffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release_later(self) -> None:
        """Gives the memory back at the pool's next `take`; takes no lock, so a finalizer may call it at any point."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.returned.append(self.data)

    def release(self) -> None:
        """Gives the memory back to the pool; a second call does nothing."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.give_back(self.data)


class BufferPool:
    """Lends page-aligned buffers; safe to use from many threads.

    Returned buffers are kept for the next borrower. Kept and lent ones together take no more than lent ones have taken at once: a new
    buffer may take the place of kept ones that are too small, small ones first.

    Args:
        pin: function that gets the memory of every new buffer, so that a device reads it in place; None for none.
    """

    def __init__(self, pin: Callable[[Array], Any] | None = None):
        self.pin, self.lent_bytes = pin, 0
        self.returned: deque[Array] = deque()
        self.kept_bytes = self._most_lent = 0
        self._kept: list[Array] = []
        self._lock = threading.Lock()

    def take(self, num_bytes: int) -> AlignedBuffer:
        """Lends a buffer of num_bytes or more: the smallest kept one that is large enough, or a new one of `space_for(num_bytes)`."""
        while self.returned:
            with suppress(IndexError):  # another thread was faster
                self.give_back(self.returned.popleft())
        with self._lock:
            fitting = [place for place, data in enumerate(self._kept) if data.nbytes >= num_bytes]
            best = min(fitting, key=lambda place: self._kept[place].nbytes, default=None)
            space = space_for(num_bytes) if best is None else self._kept[best].nbytes
            lent = self.lent_bytes + space
            if best is None:
                self._keep_at_most(max(0, self._most_lent - lent))
                data = aligned_empty(space)
            else:
                data = self._kept.pop(best)
                self.kept_bytes -= space
            self.lent_bytes, self._most_lent = lent, max(self._most_lent, lent)
        if best is None and self.pin is not None:
            self.pin(data)
        return AlignedBuffer(data, self)

    def give_back(self, data: Array) -> None:
        """Takes lent memory back, for the next borrower or for the system. `AlignedBuffer.release` calls it."""
        with self._lock:
            self.lent_bytes -= data.nbytes
            self.kept_bytes += data.nbytes
            self._kept.append(data)
            self._kept.sort(key=lambda each: each.nbytes, reverse=True)

    def _keep_at_most(self, num_bytes: int) -> None:
        """Returns kept buffers to the system, small ones first, until the others take no more than some bytes."""
        while self.kept_bytes > num_bytes:
            self.kept_bytes -= self._kept.pop().nbytes
