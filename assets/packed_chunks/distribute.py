"""The pass over the features: every range of the table is dealt to all lists of rows, and what comes together is written in large pieces.

A list belongs to a `Sink`: a region of a file that takes its rows in ascending order. The dealer gives every list a buffer
(kernels/disk_cache/pack.py) and deals bundles of lists in threads; a thread that finds a buffer full hands it to its sink,
which writes it past the page cache, and goes on. There are more threads than compute, so some wait for the disk while
others copy and digest, and the next range of the table is read meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

from assets.building.stage import Progress
from assets.storage.direct_array import RegionWriter
from assets.storage.read_ranges import read_ranges
from assets.storage.table import FeatureTable
from kernels.disk_cache.pack import PackLists, pack_range
from kernels.errors import InputError
from kernels.rows.aligned import aligned_empty
from kernels.rows.pages import PAGE_BYTES, padded_bytes
from kernels.types import Array

WAITING_THREADS = 4
"""Threads beyond those that compute: so many wait for the disk."""

MOST_BUFFER_BYTES = 4 << 20
"""Of one list; larger writes are not faster."""

BUNDLES_A_THREAD = 4
"""The lists are cut into so many slices for each thread, which take them in turn."""


class Memory(NamedTuple):
    """How the memory of one process is used: two ranges, buffers of lists, and windows (assets/packed_chunks/reorder.py).

    Attributes:
        range_bytes: of the table, twice.
        buffer_bytes: of all lists that are written as they go; at least a page a list is taken anyway.
        window_bytes: of all windows that stay in memory; afterwards, of those that are read back.
    """

    range_bytes: int
    buffer_bytes: int
    window_bytes: int

    @staticmethod
    def of(num_bytes: int) -> Memory:
        """Cuts num_bytes into 2 x 1/8, 1/4, 1/2."""
        return Memory(num_bytes // 8, num_bytes // 4, num_bytes // 2)


class Sink(Protocol):
    """Where the rows of a list go.

    Attributes:
        ids: ids[n], rows of the table, ascending.
        head_bytes: bytes that come before the rows (`Dealer.put`).
        keeps_all: the buffer takes everything and is never written.
    """

    ids: Array
    head_bytes: int
    keeps_all: bool

    def write(self, data: Array) -> None:
        """Takes a full buffer: whole pages."""
        ...

    def finish(self, buffer: Array, used: int) -> None:
        """Takes what is left."""
        ...


class Streamed:
    """Rows that stay as they come: a packed chunk.

    Args:
        ids: ids[n] ascending.
        head_bytes: of the sections in front of the rows.
        region: writes the chunk, and keeps its digest.
    """

    keeps_all = False

    def __init__(self, ids: Array, head_bytes: int, region: RegionWriter):
        self.ids, self.head_bytes, self.region = ids, head_bytes, region

    def write(self, data: Array) -> None:
        """Writes a full buffer."""
        self.region.write(data)

    def finish(self, buffer: Array, used: int) -> None:
        """Writes what is left, padded to whole pages."""
        self.region.fill_up(buffer, used)


class Dealer:
    """The lists of a group and their buffers.

    Args:
        sinks: one a list.
        row_bytes: of a row.
        buffer_bytes: what the buffers take together, but for a page a list and for lists that keep all.
    """

    def __init__(self, sinks: Sequence[Sink], row_bytes: int, buffer_bytes: int):
        self.sinks, self.row_bytes = sinks, row_bytes
        ptr = np.cumsum([0, *(len(sink.ids) for sink in sinks)])
        wanted = [int(padded_bytes(sink.head_bytes + len(sink.ids) * row_bytes)) for sink in sinks]
        streamed = sum(not sink.keeps_all for sink in sinks)
        share = min(MOST_BUFFER_BYTES, buffer_bytes // max(1, streamed)) // PAGE_BYTES * PAGE_BYTES
        room = [
            size if sink.keeps_all else min(size, max(PAGE_BYTES, share))
            for sink, size in zip(sinks, wanted, strict=True)
        ]
        starts = np.cumsum([0, *room])
        ids = np.concatenate([np.zeros(0, np.int32), *(sink.ids for sink in sinks)])
        self.lists = PackLists(ptr=ptr, ids=ids, memory=aligned_empty(int(starts[-1])), starts=starts)
        for number, sink in enumerate(sinks):
            sink.ids = ids[ptr[number] : ptr[number + 1]]  # not kept twice

    def bundles(self, count: int) -> list[tuple[int, int]]:
        """Returns about `count` slices (low, high) of the lists with about equally many rows."""
        ptr = self.lists.ptr
        cuts = np.searchsorted(ptr, ptr[-1] * np.arange(count + 1) // count)
        cuts[0], cuts[-1] = 0, len(self.sinks)
        return [(int(low), int(high)) for low, high in pairwise(np.unique(cuts))]

    def put(self, number: int, data: Array) -> None:
        """Puts u8[n] in front of the rows of a list."""
        lists, buffer, taken = self.lists, self.lists.buffer(number), 0
        while taken < len(data):
            used = int(lists.used[number])
            count = min(len(data) - taken, len(buffer) - used)
            buffer[used : used + count] = data[taken : taken + count]
            taken += count
            lists.used[number] = used + count
            if taken < len(data):
                self._write(number)

    def deal(self, rows: Array, first_row: int, low: int, high: int) -> None:
        """Deals a range to lists low to high - 1; raises InputError as `pack_range`, or when the disk is full."""
        while pack_range(rows, first_row, self.lists, low, high):
            used, starts = self.lists.used[low:high], self.lists.starts[low : high + 1]
            for place in np.flatnonzero((used == np.diff(starts)) & (used > 0)).tolist():
                self._write(low + place)

    def finish(self, number: int) -> None:
        """Hands over what is left of a list."""
        self.sinks[number].finish(self.lists.buffer(number), int(self.lists.used[number]))

    def release(self) -> None:
        """Gives the buffers back to the system; nothing can be dealt any more."""
        self.lists.memory = np.empty(0, np.uint8)

    def _write(self, number: int) -> None:
        self.sinks[number].write(self.lists.buffer(number))
        self.lists.used[number] = 0


def deal(
    table: FeatureTable,
    dealer: Dealer,
    range_bytes: int,
    threads: int,
    progress: Progress,
    prepare: Sequence[Callable[[], None]] = (),
) -> None:
    """Deals all rows of a table.

    Args:
        table: with block digests; every byte of it is read and compared.
        dealer: the lists.
        range_bytes: bytes of the table in memory, twice.
        threads: that compute.
        progress: told in MiB of the table.
        prepare: what puts the heads of lists; done before the first rows come, while they are read.

    Raises:
        InputError: the table is damaged, the lists name rows that it does not have, or the disk is full.
    """
    workers = threads + WAITING_THREADS
    told, total = 0, (table.num_rows * table.row_bytes >> 20) + 1
    progress.start("pack", total, "MiB")
    with ThreadPoolExecutor(workers) as pool:
        prepared = [pool.submit(work) for work in prepare]
        for first_row, rows in read_ranges(table, range_bytes):
            _wait(prepared)
            bundles = dealer.bundles(BUNDLES_A_THREAD * workers)
            _wait([pool.submit(dealer.deal, rows, first_row, low, high) for low, high in bundles])
            now = (first_row + len(rows)) * table.row_bytes >> 20
            progress.advance(now - told)
            told = now
        _wait(prepared)
        if not dealer.lists.complete(table.row_bytes):
            problem = "the plan names nodes that the feature table does not have"
            raise InputError(problem, "build the plan for this graph")
        _wait([pool.submit(dealer.finish, number) for number in range(len(dealer.sinks))])
    progress.advance(total - told)
    progress.done()


def _wait(futures: Sequence[Future[None]]) -> None:
    for each in futures:
        each.result()
