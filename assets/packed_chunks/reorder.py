"""Rows that a file holds in another order than the table, some of them more than once: segment caches, and images of the static tiers.

The rows come in ascending order, as one pass over the table brings them, and their places are all over a region of the file. Writing each
at its place would touch every page of the region once for every range of the table. So a region is cut into spans: consecutive rows of the
region, each span with a list of its own. The rows of a span gather in ascending order, each once. When the span is complete, it is put in
order in memory and written in large pieces. A span that does not fit into memory during the pass is stored in its own place of the file,
which is at least as large, and read back: its bytes are written twice and read once, in large pieces.

This is a distribution sort in two passes, with the known target of every row as its key.
"""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from graphmill.assets.packed_chunks.distribute import MOST_BUFFER_BYTES, WAITING_THREADS, RowDistributor
from graphmill.assets.storage.files.direct_array import DirectArray, RegionWriter
from graphmill.kernels.ranges import node_ranges
from graphmill.kernels.rows.aligned import aligned_empty
from graphmill.kernels.rows.gather import gather
from graphmill.kernels.rows.pages import PAGE_BYTES, padded_bytes
from graphmill.kernels.types import Array

SPANS_AT_A_TIME = 2
"""Spans that are read back and put in order at the same time."""


class Span:
    """Consecutive rows of a region; a `Sink` of assets/packed_chunks/distribute.py.

    Args:
        start, end: first byte, on a page, and the byte behind; whole pages except at the end of the file.
        rows: ids[n], rows of the table in the order of the file.
        keeps_all: whether the rows stay in memory during the pass.
        page_words: u64[pages or more], which gets the digests of the span's pages; None computes none.
    """

    head_bytes = 0

    def __init__(
        self, file: DirectArray, start: int, end: int, rows: Array, *, keeps_all: bool, page_words: Array | None
    ):
        self.file, self.start, self.end, self.keeps_all, self.page_words = file, start, end, keeps_all, page_words
        ascending, self.place = np.sort(rows), np.empty(len(rows), np.int32)
        self.ids = ascending[np.append(True, ascending[1:] != ascending[:-1])[: len(rows)]]
        for low, high in node_ranges(len(rows)):  # of each row of the file, its place among the ascending ones
            self.place[low:high] = np.searchsorted(self.ids, rows[low:high])
        self._kept = start

    def write(self, data: Array) -> None:
        """Stores a full buffer in the span's place of the file."""
        self.file.write(self._kept, data)
        self._kept += len(data)

    def finish(self, buffer: Array, used: int) -> None:
        """Stores the rest there as well."""
        if not self.keeps_all and used:
            self.write(buffer[: padded_bytes(used)])

    def write_in_order(self, kept: Array | None, row_bytes: int) -> None:
        """Writes the rows in the order of the file: `kept` u8[...], ascending, each once; None reads them back."""
        num_rows, size = len(self.place), len(self.ids) * row_bytes
        if kept is None:
            kept = aligned_empty(int(padded_bytes(size)))
            self.file.read(self.start, kept)
        rows = kept[:size].reshape(-1, row_bytes)
        step = max(1, (MOST_BUFFER_BYTES - PAGE_BYTES) // row_bytes)
        piece = aligned_empty(int(padded_bytes(PAGE_BYTES + min(step, num_rows) * row_bytes)))
        region, used = RegionWriter(self.file, self.start, self.end, page_words=self.page_words), 0
        for first in range(0, num_rows, step):
            places = self.place[first : first + step]
            out = piece[used : used + len(places) * row_bytes]
            gather(rows, places, out.reshape(len(places), row_bytes))
            used += len(out)
            pages = used // PAGE_BYTES * PAGE_BYTES
            region.write(piece[:pages])
            piece[: used - pages] = piece[pages:used]  # less than a page
            used -= pages
        region.fill_up(piece, used)


class Reorderer:
    """Cuts regions into spans, and decides which of them stay in memory.

    Args:
        span_bytes: bytes of all spans that stay in memory; one that is read back takes at most half, unless its fewest rows take more.
    """

    def __init__(self, row_bytes: int, span_bytes: int):
        granule = PAGE_BYTES // math.gcd(row_bytes, PAGE_BYTES)  # rows that take whole pages
        fitting = span_bytes // SPANS_AT_A_TIME // (granule * row_bytes)
        self.row_bytes, self._rows, self._left = row_bytes, max(1, fitting) * granule, span_bytes
        self.spans: list[Span] = []

    def add(self, file: DirectArray, start: int, end: int, rows: Array, page_words: Array | None = None) -> None:
        """Adds a region, which ends with its rows or with padding behind them.

        Args:
            start, end: its first byte, on a page, and the byte behind.
            rows: ids[n], rows of the table in the order of the region.
            page_words: u64[pages of the region], which gets the digests of its pages; None computes none.
        """
        for first in range(0, len(rows), self._rows):
            ids = rows[first : first + self._rows]
            stop = first + len(ids)
            size = int(padded_bytes(len(ids) * self.row_bytes))
            keeps_all = size <= self._left
            self._left -= size if keeps_all else 0
            low = start + first * self.row_bytes
            high = end if stop == len(rows) else start + stop * self.row_bytes
            words = None if page_words is None else page_words[(low - start) // PAGE_BYTES :]
            self.spans.append(Span(file, low, high, ids, keeps_all=keeps_all, page_words=words))

    def write_in_order(self, distributor: RowDistributor, threads: int) -> None:
        """Writes the rows of all spans, which are among the sinks, in order, those in memory first; releases the distributor's buffers."""
        row_bytes = self.row_bytes

        def write_span(number: int) -> None:
            span = distributor.sinks[number]
            assert isinstance(span, Span)
            span.write_in_order(distributor.lists.buffer(number) if span.keeps_all else None, row_bytes)

        spans = [number for number, sink in enumerate(distributor.sinks) if isinstance(sink, Span)]
        for workers, numbers in (
            (threads + WAITING_THREADS, [each for each in spans if distributor.sinks[each].keeps_all]),
            (SPANS_AT_A_TIME, [each for each in spans if not distributor.sinks[each].keeps_all]),
        ):
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(write_span, numbers))
            distributor.release()
