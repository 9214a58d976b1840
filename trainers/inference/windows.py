"""Rows of all nodes that may exceed memory: input features, and the layers of exact inference.

Rows on disk are read in ascending order, a window at a time, and the pages of a window are released before the next is touched. So the
process holds one window of a file however large it is, and a disk reads forwards.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from graphmill.assets.storage.filesystem import reporting_full_disk
from graphmill.assets.storage.verified import VerifiedRows
from graphmill.kernels.rows.gather import gather
from graphmill.kernels.types import Array
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.source import FeatureSource, MappedSource, RowIds

WINDOW_BYTES = 32 << 20
_PAGES_AROUND = 64 << 10
"""Bytes that the operating system may map around a touched page."""


class Rows(Protocol):
    """Rows of all nodes.

    Attributes:
        width: number of columns.
        dtype: type of the rows that are returned.
    """

    width: int
    dtype: torch.dtype

    def gather(self, node_ids: Array, threads: int) -> Tensor:
        """Returns float[n, width], row i of node_ids[i]."""
        ...

    def read(self, low: int, high: int) -> Tensor:
        """Returns float[high - low, width], the rows of nodes low to high."""
        return self.gather(np.arange(low, high), 1)


class MemoryRows:
    """Rows in memory, to be written range by range."""

    def __init__(self, num_rows: int, width: int, dtype: torch.dtype = torch.float32):
        self.values, self.width, self.dtype = torch.empty((num_rows, width), dtype=dtype), width, dtype

    def write(self, low: int, rows: Tensor) -> None:
        """Puts rows at low, low + 1, ..."""
        self.values[low : low + len(rows)] = rows

    def gather(self, node_ids: Array, threads: int) -> Tensor:
        """Returns float[n, width], row i of node_ids[i]."""
        out = torch.empty((len(node_ids), self.width), dtype=self.dtype)
        gather(self.values.numpy(), node_ids, out.numpy(), threads=threads)
        return out

    def read(self, low: int, high: int) -> Tensor:
        """Returns float[high - low, width], the rows of nodes low to high."""
        return self.values[low:high]


class MappedRows:
    """Rows of a mapped file, of any type that `graphmill.kernels.rows.gather` converts.

    Args:
        table: [R, F], the file.
        dtype: type of the rows that are returned.
        row_of: ids[N], row of each node, -1 for one without features, whose row is zeros; None if nodes are rows.
        verified: compares blocks of the file before their first row is read; None for files that have no digests.
    """

    def __init__(
        self,
        table: np.memmap[Any, Any],
        dtype: torch.dtype = torch.float32,
        row_of: Array | None = None,
        verified: VerifiedRows | None = None,
    ):
        self.table, self.row_of, self.width, self.dtype = table, row_of, table.shape[1], dtype
        self.verified = verified
        self.row_bytes = self.width * table.dtype.itemsize

    def gather(self, node_ids: Array, threads: int) -> Tensor:
        """Returns float[n, width], row i of node_ids[i]; holds one window of the file."""
        out = torch.empty((len(node_ids), self.width), dtype=self.dtype)
        rows = node_ids if self.row_of is None else self.row_of[node_ids]
        order = np.argsort(rows, kind="stable")
        # Mapped bytes for a row: its own pages and those around them, or all rows up to the next, whichever is less.
        places = np.maximum(rows[order].astype(np.int64), 0) * self.row_bytes
        steps = np.minimum(np.diff(places, prepend=places[:1]), _PAGES_AROUND + self.row_bytes)
        filled = np.cumsum(np.maximum(steps, self.row_bytes))
        low = 0
        while low < len(order):
            base = filled[low - 1] if low else 0
            high = max(low + 1, int(np.searchsorted(filled, base + WINDOW_BYTES, side="right")))
            part = torch.empty((high - low, self.width), dtype=self.dtype)
            self._require(rows[order[low:high]])
            gather(self.table, node_ids[order[low:high]], part.numpy(), threads=threads, row_of=self.row_of)
            out[torch.from_numpy(order[low:high])] = part
            forget(self.table)
            low = high
        return out

    def read(self, low: int, high: int) -> Tensor:
        """Returns float[high - low, width], the rows of nodes low to high."""
        rows = torch.empty((high - low, self.width), dtype=self.dtype)
        self._require(np.arange(low, high) if self.row_of is None else np.asarray(self.row_of[low:high]))
        gather(self.table, np.arange(low, high), rows.numpy(), row_of=self.row_of)
        forget(self.table)
        return rows

    def _require(self, rows: Array) -> None:
        if self.verified is not None:
            self.verified.require(rows)


class SpilledRows(MappedRows):
    """Rows in an unnamed file: it is gone when the process is, however it ends.

    Args:
        num_rows, width, dtype: shape and type of the rows.
        folder: a folder on a disk with space for them.

    Raises:
        InputError: the disk has no space.
    """

    def __init__(self, num_rows: int, width: int, folder: Path, dtype: torch.dtype = torch.float32):
        num_bytes = max(1, num_rows * width * dtype.itemsize)
        folder.mkdir(parents=True, exist_ok=True)
        self.file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        with reporting_full_disk(folder, num_bytes):
            os.posix_fallocate(self.file.fileno(), 0, num_bytes)
        super().__init__(np.memmap(self.file, numpy_dtype(dtype), mode="r", shape=(num_rows, width)), dtype)

    def write(self, low: int, rows: Tensor) -> None:
        """Puts rows at low, low + 1, ... through the file, so that writing maps no page of it."""
        content = rows.contiguous().numpy().reshape(-1).view(np.uint8).data
        place, done = low * self.row_bytes, 0
        while done < len(content):
            done += os.pwrite(self.file.fileno(), content[done:], place + done)


class SourceRows(Rows):
    """Input rows from the trainer's source of features."""

    def __init__(self, features: FeatureSource, dtype: torch.dtype = torch.float32):
        self.features, self.width, self.dtype = features, features.width, dtype

    def gather(self, node_ids: Array, threads: int) -> Tensor:
        """Returns float[n, width], row i of node_ids[i]."""
        out = torch.empty((len(node_ids), self.width), dtype=self.dtype)
        self.features.gather(RowIds(node_ids), out, Ledger())
        return out


def input_rows(features: FeatureSource, memory_bytes: int, dtype: torch.dtype = torch.float32) -> Rows:
    """Returns the input rows as a model takes them; a mapped table that exceeds the bytes is read by windows."""
    if isinstance(features, MappedSource) and len(features.rows) * features.row_bytes > memory_bytes:
        table: Any = features.rows
        return MappedRows(table, dtype, features.row_of, features.verified)
    return SourceRows(features, dtype)


def numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    """Returns the NumPy type of a torch type."""
    return torch.empty(0, dtype=dtype).numpy().dtype


def forget(array: Array) -> None:
    """Releases the pages of a mapped file; they are read again when they are touched. Other arrays stay as they are."""
    mapping = getattr(array, "_mmap", None)
    if isinstance(mapping, mmap.mmap):
        mapping.madvise(mmap.MADV_DONTNEED)
