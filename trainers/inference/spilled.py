"""Rows of all nodes in unnamed files: the layers of exact inference that do not fit in memory.

`ColumnRows` has the rows of a layer in blocks of columns, each of which fits in memory: sums over a block of columns read sources at random
from memory, and the file in order. Rows of `SpilledRows` stand one after the other, for ranges that gather some of them.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from graphmill.assets.storage.system.filesystem import reporting_full_disk
from graphmill.kernels.types import Array
from graphmill.trainers.devices.protocol import numpy_dtype
from graphmill.trainers.inference.windows import CACHE_LINE, MappedRows, Rows, empty_rows


class SpilledFile:
    """An unnamed file of a fixed size, which is gone when the process is; raises InputError if the disk has no space."""

    def __init__(self, num_bytes: int, folder: Path):
        num_bytes = max(1, num_bytes)
        folder.mkdir(parents=True, exist_ok=True)
        self.file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        with reporting_full_disk(folder, num_bytes):
            os.posix_fallocate(self.file.fileno(), 0, num_bytes)

    def write(self, start: int, values: Tensor) -> None:
        """Writes a contiguous tensor at a byte, through the file, so that writing maps no page of it."""
        content, done = values.contiguous().numpy().reshape(-1).view(np.uint8).data, 0
        while done < len(content):
            done += os.pwrite(self.file.fileno(), content[done:], start + done)

    def read(self, start: int, out: Tensor) -> None:
        """Fills a contiguous tensor from a byte on."""
        content, done = out.numpy().reshape(-1).view(np.uint8).data, 0
        while done < len(content):
            done += os.preadv(self.file.fileno(), [content[done:]], start + done)


def file_rows(num_rows: int, width: int, dtype: torch.dtype, folder: Path) -> Tensor:
    """Returns float[num_rows, width] of zeros, mapped from an unnamed file that is gone with the tensor.

    Raises:
        InputError: the disk has no space.
    """
    file = SpilledFile(num_rows * width * dtype.itemsize, folder).file
    return torch.from_numpy(np.memmap(file, numpy_dtype(dtype), mode="r+", shape=(num_rows, width)))


class SpilledRows(MappedRows):
    """Rows in an unnamed file, row after row; raises InputError if the disk has no space."""

    def __init__(self, num_rows: int, width: int, folder: Path, dtype: torch.dtype = torch.float32):
        self.spilled = SpilledFile(num_rows * width * dtype.itemsize, folder)
        table = np.memmap(self.spilled.file, numpy_dtype(dtype), mode="r", shape=(num_rows, width))
        super().__init__(table, dtype)

    def write(self, low: int, rows: Tensor, first: int = 0) -> None:
        """Puts rows at low, low + 1, ..., all of their columns."""
        self.spilled.write(low * self.row_bytes, rows)


class ColumnRows(Rows):
    """Rows in an unnamed file, block of columns after block of columns.

    Args:
        blocks: first column of each block and the one behind its last (`column_blocks`).

    Raises:
        InputError: the disk has no space.
    """

    def __init__(self, num_rows: int, width: int, folder: Path, dtype: torch.dtype, blocks: list[tuple[int, int]]):
        self.num_rows, self.width, self.dtype, self.blocks = num_rows, width, dtype, blocks
        self._spilled = SpilledFile(num_rows * width * dtype.itemsize, folder)

    def write(self, low: int, rows: Tensor, first: int = 0) -> None:
        """Puts columns first, first + 1, ... of rows at low, low + 1, ...: whole blocks."""
        for number, (begin, end) in enumerate(self.blocks):
            if first <= begin and end <= first + rows.shape[1]:
                self._spilled.write(self._place(number, low), rows[:, begin - first : end - first])

    def gather(self, node_ids: Array, threads: int) -> Tensor:
        """Returns float[n, width], row i of node_ids[i], ascending; those between them are read, too."""
        low = int(node_ids[0]) if len(node_ids) else 0
        high = int(node_ids[-1]) + 1 if len(node_ids) else 0
        return self.read(low, high)[torch.from_numpy(node_ids - low)]

    def read(self, low: int, high: int) -> Tensor:
        """Returns float[high - low, width], the rows of nodes low to high."""
        parts = [torch.empty((high - low, last - first), dtype=self.dtype) for first, last in self.blocks]
        return torch.cat([self._read(number, low, part) for number, part in enumerate(parts)], dim=1)

    def block(self, number: int) -> Tensor:
        """Returns float[num_rows, columns of the block], read in order."""
        first, last = self.blocks[number]
        return self._read(number, 0, empty_rows(self.num_rows, last - first, self.dtype))

    def columns(self, first: int, last: int) -> Tensor:
        """Returns float[num_rows, last - first], some columns of all rows."""
        out = torch.empty((self.num_rows, last - first), dtype=self.dtype)
        for number, (low, high) in enumerate(self.blocks):
            if low < last and first < high:
                low, high, start = max(low, first), min(high, last), low
                out[:, low - first : high - first] = self.block(number)[:, low - start : high - start]
        return out

    def _read(self, number: int, low: int, out: Tensor) -> Tensor:
        self._spilled.read(self._place(number, low), out)
        return out

    def _place(self, number: int, low: int) -> int:
        first, last = self.blocks[number]
        return (first * self.num_rows + low * (last - first)) * self.dtype.itemsize


def column_blocks(num_rows: int, width: int, dtype: torch.dtype, block_bytes: int, unit: int) -> list[tuple[int, int]]:
    """Cuts columns into blocks.

    Args:
        block_bytes: bound on the bytes of a block; one column at least.
        unit: columns that belong together, such as those of a head: a block has whole units, or a part of one. 0 = a cache line.

    Returns:
        The first column of each block and the one behind its last.
    """
    unit = unit or CACHE_LINE // dtype.itemsize
    most = max(1, block_bytes // max(1, num_rows * dtype.itemsize))
    group = max(1, most // unit) * unit
    groups = [(low, min(low + group, width)) for low in range(0, width, group)]
    return [(low, min(low + most, end)) for start, end in groups for low in range(start, end, most)]
