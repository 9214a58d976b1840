"""Where input rows come from: `FeatureSource`s.

A source marks where each row is (pure, on sampler threads), stages what needs blocking I/O, and writes the batch's rows in one gather
that also converts to the model's dtype. Here are the two that need no cache: the whole table in memory, and the table as a mapped file.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch

from assets.verified import read_table
from kernels.gather import gather
from kernels.types import Array, FeatureTable
from trainers.ledger import Ledger, Line


class FeatureSource(Protocol):
    """What a trainer needs of a place that holds feature rows.

    Attributes:
        width, dtype, row_bytes: columns, stored NumPy dtype and stored bytes of a row.
        collective: every rank must call for every batch, in order, from one thread.
    """

    width: int
    dtype: str
    row_bytes: int
    collective: bool

    def gather(self, node_ids: Array, out: torch.Tensor, ledger: Ledger) -> None:
        """Writes row i of out: float[n, F] from node_ids[i] (global), converted to out's dtype, and books the bytes."""
        ...


class _Table:
    """Rows of one array, wherever its pages are."""

    collective = False

    def __init__(self, rows: Array, line: Line, threads: int):
        self.rows, self.line, self.threads = rows, line, threads
        self.width = rows.shape[1]
        self.dtype = rows.dtype.name
        self.row_bytes = self.width * rows.dtype.itemsize

    def gather(self, node_ids: Array, out: torch.Tensor, ledger: Ledger) -> None:
        """Writes row i of out: float[n, F] from node_ids[i] (global), converted to out's dtype, and books the bytes."""
        gather(self.rows, node_ids, out.numpy(), threads=self.threads)
        asked = len(node_ids) * self.row_bytes
        moved = 0 if self.line.link == "mapped" else asked
        ledger.move(self.line, requests=1, asked_bytes=asked, moved_bytes=moved)


class MemorySource(_Table):
    """The whole table in memory, every byte verified as it is read; peak memory is the table's bytes."""

    def __init__(self, table: FeatureTable, threads: int = 1):
        super().__init__(read_table(table, threads), Line("h2d", "feature"), threads)


class MappedSource(_Table):
    """The table as a mapped file; the page cache decides what stays. Counts asked bytes only, and does not verify digests."""

    def __init__(self, table: FeatureTable, threads: int = 1):
        super().__init__(table.open(), Line("mapped", "feature"), threads)


def open_source(table: FeatureTable, where: str, threads: int = 1) -> Any:
    """Returns the source for a train table's `features` ("memory" or "mapped")."""
    return {"memory": MemorySource, "mapped": MappedSource}[where](table, threads)
