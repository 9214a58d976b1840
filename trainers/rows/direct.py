"""Rows that are read for each batch past the page cache, for a table that is larger than the memory that is free.

A mapped table is read through the page cache. If it does not fit there, a row of a few hundred bytes that is asked for at random costs the
bytes that the system reads around it (tens of times its pages), and pages that other rows need are thrown away. Here the rows of a batch
are sorted and merged into ranges of pages (kernels/rows/direct_io.py), each page that arrives is compared with its digest, and the page
cache is left to the topology.

Memory: per thread a reader's buffer (`depth` ranges of `range_pages` pages: 2 MiB here), and `WINDOW_BYTES` if rows are converted.
"""

from __future__ import annotations

import threading

import numpy as np

from assets.storage.digests import page_digests_of
from assets.storage.table import FeatureTable
from assets.storage.verified import damaged_file, verify_once
from kernels.errors import InputError
from kernels.rows.aligned import aligned_empty
from kernels.rows.direct_io import DirectFile, PageReader, ReadExecution
from kernels.rows.gather import gather
from kernels.types import Array
from trainers.record.ledger import Ledger, Line
from trainers.rows.source import TableSource

DISK = Line("disk", "feature")
WINDOW_BYTES = 8 << 20
"""Bytes of rows that are read before they are converted to the type of a batch."""
READING = ReadExecution(depth=64, range_pages=8)
"""Rows at random are ranges of one or two pages, and a disk answers many of them at once."""


class DirectSource(TableSource):
    """Rows of a table by direct reads; zeros for nodes without features, for which no byte is moved.

    Args:
        table: the table, with digests; of one that has none of pages they are computed first, in one pass that compares the file.
        threads: number of threads of a conversion.
        reading: the way in which the file is read.

    Raises:
        InputError: the file is damaged, or its file system allows no direct reads.
    """

    in_place = False

    def __init__(self, table: FeatureTable, threads: int = 1, reading: ReadExecution = READING):
        super().__init__(table.open(), False, threads, table.row_of)
        self.table, self._reading, self._own = table, reading, threading.local()
        self._digests = table.page_digest
        if self._digests is None:
            assert table.block_digest is not None, f"{table.path} has no digests"
            verify_once(table.path, table.block_digest, table.offset + table.num_bytes)
            self._digests = page_digests_of(table.path, table.offset)
        self._reader()

    def copy_rows(self, rows: Array, out: Array, ledger: Ledger) -> None:
        """Writes row rows[i] of the table to row i of out, in the stored type, and books the reads.

        Args:
            rows: ids[n], rows of the table.
            out: stored dtype[n, F], in C order.
            ledger: receives requests and bytes.

        Raises:
            InputError: a page does not match its digest, or a read failed.
        """
        if not self.row_bytes or not len(rows):
            return
        reader, file = self._reader()
        seen = out.view(np.uint8).reshape(len(rows), self.row_bytes)
        try:
            _, moved = reader.read_rows(
                file, rows, row_bytes=self.row_bytes, offset=self.table.offset, out=seen, digests=self._digests
            )
        except InputError as error:
            raise damaged_file(self.table.path, error.problem) from error
        ledger.move(DISK, requests=moved.requests, asked_bytes=moved.asked_bytes, moved_bytes=moved.moved_bytes)

    def fill(self, node_ids: Array, out: Array, ledger: Ledger) -> None:
        """Writes row i of out: float[n, F] from node_ids[i], converted to out's type, and books the reads."""
        rows = node_ids if self.row_of is None else self.row_of[node_ids]
        if self.row_of is None and out.dtype.name == self.dtype and out.flags.c_contiguous:
            self.copy_rows(rows, out, ledger)
            return
        step = max(1, WINDOW_BYTES // max(1, self.row_bytes))
        for low in range(0, len(rows), step):
            part = rows[low : low + step]
            present = part >= 0
            window = self._window(int(np.count_nonzero(present)))
            self.copy_rows(part[present], window, ledger)
            # Zeros are written for nodes without a row.
            place = np.cumsum(present) - 1
            place[~present] = -1
            gather(window, np.arange(len(part)), out[low : low + step], threads=self.threads, row_of=place)

    def _reader(self) -> tuple[PageReader, DirectFile]:
        """Returns this thread's reader and open file."""
        if not hasattr(self._own, "reader"):
            self._own.reader = PageReader(self._reading)
            self._own.file = self._own.reader.open(self.table.path)
        return self._own.reader, self._own.file

    def _window(self, count: int) -> Array:
        """Returns stored dtype[count, F] of this thread's memory."""
        num_bytes = count * self.row_bytes
        if not hasattr(self._own, "window") or len(self._own.window) < num_bytes:
            self._own.window = aligned_empty(num_bytes)
        return self._own.window[:num_bytes].view(self.rows.dtype).reshape(count, self.width)
