"""The pass over the features: every range of the table is distributed to all lists of rows, which are written in large pieces.

A list names the rows that one `Sink` takes: a region of a file whose rows come in ascending order. The distributor gives every list a
buffer (kernels/disk_cache/pack.py). Its threads take bundles of lists: they copy the rows of a range to the buffers, and hand a
buffer that is full to its sink, which writes it past the page cache. It uses more threads than cores, so some wait for the disk while
others copy and digest; the next range of the table is read meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

from graphmill.assets.building.stage import Progress
from graphmill.assets.storage.files.direct_array import RegionWriter
from graphmill.assets.storage.files.read_ranges import read_ranges
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.kernels.disk_cache.pack import PackLists, pack_range
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.aligned import aligned_empty
from graphmill.kernels.rows.pages import PAGE_BYTES, padded_bytes
from graphmill.kernels.types import Array

WAITING_THREADS = 4
"""Number of threads beyond the native ones, which wait for the disk."""
MOST_BUFFER_BYTES = 4 << 20
"""Largest buffer per list; writes above 4 MiB were not faster."""
BUNDLES_PER_THREAD = 4
"""Slices of the lists per thread; threads take them in turn."""


class BufferSizes(NamedTuple):
    """Bytes that one process holds: two ranges of the table, the buffers of lists, and spans (assets/packed_chunks/reorder.py).

    Attributes:
        range_bytes: bytes per range of the table; two ranges are held.
        buffer_bytes: bytes of the buffers of all lists that are written during the pass; each takes at least a page.
        span_bytes: bytes of all spans that stay in memory; after the pass, of those that are read back.
    """

    range_bytes: int
    buffer_bytes: int
    span_bytes: int

    @staticmethod
    def of(num_bytes: int) -> BufferSizes:
        """Returns the sizes for num_bytes: two ranges of 1/8, buffers of 1/4, spans of 1/2."""
        return BufferSizes(num_bytes // 8, num_bytes // 4, num_bytes // 2)


class Sink(Protocol):
    """The target of the rows of a list.

    Attributes:
        ids: ids[n], ascending, rows of the feature table that the sink takes.
        head_bytes: number of bytes before the rows (`RowDistributor.put`).
        keeps_all: whether the buffer takes all rows and is never written.
    """

    ids: Array
    head_bytes: int
    keeps_all: bool

    def write(self, data: Array) -> None:
        """Takes a full buffer u8[n] of whole pages."""
        ...

    def finish(self, buffer: Array, used: int) -> None:
        """Takes the rest of the rows, buffer[:used]."""
        ...


class Streamed:
    """Rows that stay in their order: a packed chunk.

    Args:
        ids: ids[n], ascending, rows of the feature table.
        head_bytes: number of bytes of the sections in front of the rows.
        region: writer of the chunk, or of what is in front of its rows, which keeps the digests of its pages.
    """

    keeps_all = False

    def __init__(self, ids: Array, head_bytes: int, region: RegionWriter):
        self.ids, self.head_bytes, self.region = ids, head_bytes, region

    def write(self, data: Array) -> None:
        """Writes a full buffer."""
        self.region.write(data)

    def finish(self, buffer: Array, used: int) -> None:
        """Writes the rest of the rows, padded to whole pages."""
        self.region.fill_up(buffer, used)


class RowDistributor:
    """The lists of a group and their buffers.

    Args:
        buffer_bytes: bytes of all buffers together, without one page per list and the buffers of sinks that keep all.
    """

    def __init__(self, sinks: Sequence[Sink], row_bytes: int, buffer_bytes: int):
        self.sinks, self.row_bytes = sinks, row_bytes
        ptr = np.cumsum([0, *(len(sink.ids) for sink in sinks)])
        wanted = [int(padded_bytes(sink.head_bytes + len(sink.ids) * row_bytes)) for sink in sinks]
        streamed = sum(not sink.keeps_all for sink in sinks)
        share = min(MOST_BUFFER_BYTES, buffer_bytes // max(1, streamed)) // PAGE_BYTES * PAGE_BYTES
        space = [
            size if sink.keeps_all else min(size, max(PAGE_BYTES, share))
            for sink, size in zip(sinks, wanted, strict=True)
        ]
        starts = np.cumsum([0, *space])
        ids = np.concatenate([np.zeros(0, np.int32), *(sink.ids for sink in sinks)])
        self.lists = PackLists(ptr=ptr, ids=ids, buffers=aligned_empty(int(starts[-1])), starts=starts)
        for number, sink in enumerate(sinks):
            sink.ids = ids[ptr[number] : ptr[number + 1]]  # not held twice

    def bundles(self, count: int) -> list[tuple[int, int]]:
        """Returns about `count` slices (low, high) of the lists with about equally many rows."""
        ptr = self.lists.ptr
        cuts = np.searchsorted(ptr, ptr[-1] * np.arange(count + 1) // count)
        cuts[0], cuts[-1] = 0, len(self.sinks)
        return [(int(low), int(high)) for low, high in pairwise(np.unique(cuts))]

    def put(self, number: int, data: Array) -> None:
        """Puts bytes u8[n] in front of the rows of a list."""
        lists, buffer, taken = self.lists, self.lists.buffer(number), 0
        while taken < len(data):
            used = int(lists.used[number])
            count = min(len(data) - taken, len(buffer) - used)
            buffer[used : used + count] = data[taken : taken + count]
            taken += count
            lists.used[number] = used + count
            if taken < len(data):
                self._write(number)

    def distribute(self, rows: Array, first_row: int, low: int, high: int) -> None:
        """Copies a range of the table to lists low to high - 1, and writes buffers that get full.

        Args:
            rows: u8[r, row_bytes], rows first_row to first_row + r - 1 of the table.
            low, high: range of lists; other threads may take others meanwhile.

        Raises:
            InputError: the lists are not ascending, or the disk is full.
        """
        while pack_range(rows, first_row, self.lists, low, high):
            used, starts = self.lists.used[low:high], self.lists.starts[low : high + 1]
            for place in np.flatnonzero((used == np.diff(starts)) & (used > 0)).tolist():
                self._write(low + place)

    def finish(self, number: int) -> None:
        """Hands the rest of a list to its sink."""
        self.sinks[number].finish(self.lists.buffer(number), int(self.lists.used[number]))

    def release(self) -> None:
        """Releases the buffers; no rows can be distributed any more."""
        self.lists.buffers = np.empty(0, np.uint8)

    def _write(self, number: int) -> None:
        self.sinks[number].write(self.lists.buffer(number))
        self.lists.used[number] = 0


def distribute(
    table: FeatureTable,
    distributor: RowDistributor,
    range_bytes: int,
    threads: int,
    progress: Progress,
    prepare: Sequence[Callable[[], None]] = (),
) -> None:
    """Distributes all rows of a table to the lists.

    Args:
        table: the feature table, with block digests; every byte of it is read and compared.
        range_bytes: bytes per range of the table; two ranges are held.
        progress: listener, which counts MiB of the table.
        prepare: functions that put the heads of lists; they are called while the first range is read, and end before it is distributed.

    Raises:
        InputError: the table is damaged, the lists name rows that it lacks, or the disk is full.
    """
    workers = threads + WAITING_THREADS
    told, total = 0, (table.num_rows * table.row_bytes >> 20) + 1
    progress.start("pack", total, "MiB")
    with ThreadPoolExecutor(workers) as pool:
        prepared = [pool.submit(work) for work in prepare]
        for first_row, rows in read_ranges(table, range_bytes):
            _wait(prepared)
            bundles = distributor.bundles(BUNDLES_PER_THREAD * workers)
            _wait([pool.submit(distributor.distribute, rows, first_row, low, high) for low, high in bundles])
            now = (first_row + len(rows)) * table.row_bytes >> 20
            progress.advance(now - told)
            told = now
        _wait(prepared)
        if not distributor.lists.complete(table.row_bytes):
            problem = "the plan names nodes that the feature table does not have"
            raise InputError(problem, "build the plan for this graph")
        _wait([pool.submit(distributor.finish, number) for number in range(len(distributor.sinks))])
    progress.advance(total - told)
    progress.done()


def _wait(futures: Sequence[Future[None]]) -> None:
    for each in futures:
        each.result()
