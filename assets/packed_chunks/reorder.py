"""Rows that a file holds in another order than the table, some of them more than once: segment caches, and images of the static tiers.

They come in ascending order, as one pass over the table brings them, and belong all over a region. Writing each at its place would touch
every page of the region once for every range. So a region is cut into windows, each of which is a list of its own: its rows gather in
ascending order, each once, and when all are there the window is put in order in memory and written in large pieces. A window that memory
has no room for during the pass is kept in its own place of the file, which is at least as large, and read back: its bytes are written
twice and read once, all of it in large pieces.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from assets.packed_chunks.distribute import MOST_BUFFER_BYTES, WAITING_THREADS, Dealer
from assets.storage.direct_array import DirectArray, RegionWriter
from kernels.rows.aligned import aligned_empty
from kernels.rows.gather import gather
from kernels.rows.pages import PAGE_BYTES, padded_bytes
from kernels.types import Array

WINDOWS_AT_A_TIME = 2
"""Windows that are read back and put in order side by side."""


class Window:
    """Consecutive rows of a region; a `Sink` of assets/packed_chunks/distribute.py.

    Args:
        file: where they go.
        start, end: first byte, on a page, and the byte behind; whole pages but at the end of the file.
        node_ids: ids[n], rows of the table in the order of the file.
        keeps_all: they stay in memory during the pass.
        page_words: u64[pages or more], gets the digests of its pages; None computes none.
    """

    head_bytes = 0

    def __init__(
        self, file: DirectArray, start: int, end: int, node_ids: Array, *, keeps_all: bool, page_words: Array | None
    ):
        self.file, self.start, self.end, self.keeps_all, self.page_words = file, start, end, keeps_all, page_words
        self.ids, place = np.unique(node_ids, return_inverse=True)
        self.place = place.astype(np.int32)  # of each row of the file among the ascending ones
        self._kept = start

    def write(self, data: Array) -> None:
        """Keeps a full buffer in the window's place of the file."""
        self.file.write(self._kept, data)
        self._kept += len(data)

    def finish(self, buffer: Array, used: int) -> None:
        """Keeps the rest there as well."""
        if not self.keeps_all and used:
            self.write(buffer[: padded_bytes(used)])

    def settle(self, kept: Array | None, row_bytes: int) -> None:
        """Writes the rows in their order.

        Args:
            kept: u8[...], the ascending rows, each once; None reads them back.
            row_bytes: of a row.

        Raises:
            InputError: the disk is full.
        """
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


class Placing:
    """Cuts regions into windows, and says which of them stay in memory.

    Args:
        row_bytes: of a row.
        window_bytes: of all windows that stay in memory; a window that is read back has at most half of it, but for rows that
            take more before they end on a page.
    """

    def __init__(self, row_bytes: int, window_bytes: int):
        granule = PAGE_BYTES // math.gcd(row_bytes, PAGE_BYTES)  # rows that take whole pages
        fitting = window_bytes // WINDOWS_AT_A_TIME // (granule * row_bytes)
        self.row_bytes, self._rows, self._left = row_bytes, max(1, fitting) * granule, window_bytes
        self.windows: list[Window] = []

    def add(self, file: DirectArray, start: int, end: int, node_ids: Array, page_words: Array | None = None) -> None:
        """Adds a region, which ends with its rows or with padding behind them.

        Args:
            file: where it is.
            start, end: its first byte, on a page, and the byte behind.
            node_ids: ids[n], rows of the table in the order of the region.
            page_words: u64[pages of the region], gets the digests of its pages; None computes none.
        """
        for first in range(0, len(node_ids), self._rows):
            ids = node_ids[first : first + self._rows]
            stop = first + len(ids)
            size = int(padded_bytes(len(ids) * self.row_bytes))
            keeps_all = size <= self._left
            self._left -= size if keeps_all else 0
            low = start + first * self.row_bytes
            high = end if stop == len(node_ids) else start + stop * self.row_bytes
            words = None if page_words is None else page_words[(low - start) // PAGE_BYTES :]
            self.windows.append(Window(file, low, high, ids, keeps_all=keeps_all, page_words=words))

    def settle(self, dealer: Dealer, threads: int) -> None:
        """Writes all windows in order, those in memory first; empties the dealer's buffers.

        Args:
            dealer: has dealt everything, to the windows among others.
            threads: that compute.

        Raises:
            InputError: the disk is full.
        """
        row_bytes = self.row_bytes

        def settle(number: int) -> None:
            window = dealer.sinks[number]
            assert isinstance(window, Window)
            window.settle(dealer.lists.buffer(number) if window.keeps_all else None, row_bytes)

        windows = [number for number, sink in enumerate(dealer.sinks) if isinstance(sink, Window)]
        for workers, numbers in (
            (threads + WAITING_THREADS, [each for each in windows if dealer.sinks[each].keeps_all]),
            (WINDOWS_AT_A_TIME, [each for each in windows if not dealer.sinks[each].keeps_all]),
        ):
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(settle, numbers))
            dealer.release()
