"""Rows that are read for each batch past the page cache, for a table that is larger than the memory that is free.

A mapped table is read through the page cache. If it does not fit there, a row of a few hundred bytes that is asked for at random costs the
bytes that the system reads around it (tens of times its pages), and pages that other rows need are thrown away. Here the rows of a batch
are sorted and merged into ranges of pages (kernels/rows/direct_io.py), each page that arrives is compared with its digest, and the page
cache is left to the topology.

Memory: per thread a reader's buffer (`depth` ranges of `range_pages` pages: 2 MiB here), and `WINDOW_BYTES` if rows are converted.
"""

import threading
from collections.abc import Sequence

import numpy as np

from graphmill.assets.storage.files.digests import page_digests_of
from graphmill.assets.storage.files.verified import damaged_file, verify_once
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.aligned import aligned_empty
from graphmill.kernels.rows.direct_io import DirectFile, PageReader, ReadExecution
from graphmill.kernels.rows.gather import gather
from graphmill.kernels.types import Array
from graphmill.trainers.record.ledger import Ledger, Line
from graphmill.trainers.rows.source import TableSource

DISK = Line("disk", "feature")
WINDOW_BYTES = 8 << 20
"""Bytes of rows that are read before they are converted to the type of a batch."""
READING = ReadExecution(depth=64, range_pages=8)
"""Rows at random are ranges of one or two pages, and a disk answers many of them at once."""


class DirectTables:
    """Rows of tables of one type, read past the page cache, every page compared; any number of threads may read.

    Args:
        tables: the tables, with digests; of one that has none of pages they are computed first, in one pass that compares the file.

    Raises:
        InputError: a file is damaged, or its file system allows no direct reads.
    """

    def __init__(self, tables: Sequence[FeatureTable], reading: ReadExecution = READING):
        self.tables, self._reading, self._own = tables, reading, threading.local()
        self._digests = [_page_digests(table) for table in tables]
        for number in range(len(tables)):
            self._opened(number)

    def read(self, number: int, rows: Array, out: Array, ledger: Ledger) -> None:
        """Writes row rows[i] of a table to row i of out, in the stored type, and books the reads.

        Args:
            rows: ids[n], rows of the table.
            out: stored dtype[n, F], in C order.

        Raises:
            InputError: a page does not match its digest, or a read failed.
        """
        table = self.tables[number]
        if not table.row_bytes or not len(rows):
            return
        reader, file = self._opened(number)
        seen = out.view(np.uint8).reshape(len(rows), table.row_bytes)
        try:
            _, moved = reader.read_rows(
                file, rows, row_bytes=table.row_bytes, offset=table.offset, out=seen, digests=self._digests[number]
            )
        except InputError as error:
            raise damaged_file(table.path, error.problem) from error
        ledger.move(DISK, requests=moved.requests, asked_bytes=moved.asked_bytes, moved_bytes=moved.moved_bytes)

    def window(self, count: int) -> Array:
        """Returns stored dtype[count, F] of this thread's memory, which the thread's next call uses again."""
        table = self.tables[0]
        num_bytes = count * table.row_bytes
        if not hasattr(self._own, "window") or len(self._own.window) < num_bytes:
            self._own.window = aligned_empty(num_bytes)
        return self._own.window[:num_bytes].view(table.dtype).reshape(count, table.width)

    def _opened(self, number: int) -> tuple[PageReader, DirectFile]:
        """Returns this thread's reader and open file of a table."""
        if not hasattr(self._own, "reader"):
            self._own.reader, self._own.files = PageReader(self._reading), {}
        if number not in self._own.files:
            self._own.files[number] = self._own.reader.open(self.tables[number].path)
        return self._own.reader, self._own.files[number]


def _page_digests(table: FeatureTable) -> Array:
    """Returns the digests of a table's pages, computed now if its artifact has none."""
    if table.page_digest is not None:
        return table.page_digest
    assert table.block_digest is not None, f"{table.path} has no digests"
    verify_once(table.path, table.block_digest, table.offset + table.num_bytes)
    return page_digests_of(table.path, table.offset)


class DirectSource(TableSource):
    """Rows of a table by direct reads; zeros for nodes without features, for which no byte is moved.

    Raises:
        InputError: the file is damaged, or its file system allows no direct reads.
    """

    in_place = False

    def __init__(self, table: FeatureTable, threads: int = 1, reading: ReadExecution = READING):
        super().__init__(table.open(), False, threads, table.row_of)
        self.stored = table
        self._tables = DirectTables([table], reading)

    def copy_rows(self, rows: Array, out: Array, ledger: Ledger) -> None:
        """Writes rows of the table to stored dtype[n, F] in C order, and books the reads; raises InputError if one fails or is damaged."""
        self._tables.read(0, rows, out, ledger)

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
            window = self._tables.window(int(np.count_nonzero(present)))
            self.copy_rows(part[present], window, ledger)
            # Zeros are written for nodes without a row.
            place = np.cumsum(present) - 1
            place[~present] = -1
            gather(window, np.arange(len(part)), out[low : low + step], threads=self.threads, row_of=place)
