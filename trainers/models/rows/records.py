"""One file of records of rows, float[n, 3, H]: mapped where all of it fits in the memory, else read and written past the page cache.

Records of drawn rows lie on pages of their own. A mapping reads such a page at a time, and what is written to it waits in the page cache,
which a control group counts: a group full of pages that wait for the disk stops the training until they are there. Past the page cache
many requests are under way, and none of their pages stays. What stays are the records that were read or written last (`RecentRecords`): a
step writes what its batch has read.

A new file is filled with zeros, in order. If it were reserved alone, the file system would note for each run of pages whether it was
written, and every record would begin one: a file of 300 MB with 50,000 written records took 13 s to remove, and 0.05 s after zeros (ext4
without a journal, on a disk that is told of freed blocks).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.assets.storage.files.arrays import DATA_OFFSET
from graphmill.kernels.rows.aligned import aligned_empty
from graphmill.kernels.rows.direct_io import PageReader
from graphmill.kernels.rows.pages import padded_bytes
from graphmill.trainers.recipe.costs.node_rows import RECENT_BYTES

ZEROS_BYTES = 4 << 20


class MappedRecords:
    """Records of a mapped file, float[n, 3, H]."""

    def __init__(self, path: Path, array: Any):
        self._records = torch.from_numpy(array)
        self.descriptor = os.open(path, os.O_RDWR)

    def read(self, rows: Tensor, parts: int) -> Tensor:
        """Returns float[k, parts, H], the first parts of the records of rows i64[k]."""
        return self._records[:, :parts].index_select(0, rows)

    def write(self, rows: Tensor, records: Tensor) -> None:
        """Replaces the records of distinct rows i64[k] by float[k, 3, H]."""
        self._records.index_copy_(0, rows, records)

    def close(self) -> None:
        """Closes the file."""
        os.close(self.descriptor)


class DirectRecords:
    """Records of a file that is read and written past the page cache.

    Args:
        reader: reads and writes; files of one table share it.
        shape: 3 and H.
        new: whether the file is only reserved so far.

    Attributes:
        direct: whether the file system has such reads; else the page cache has what was written until it is synced.
    """

    def __init__(self, path: Path, reader: PageReader, shape: tuple[int, int], dtype: torch.dtype, *, new: bool):
        end = padded_bytes(path.stat().st_size)
        os.truncate(path, end)
        self._reader, self._shape, self._dtype = reader, shape, dtype
        self._file = reader.open(path, writes=True)
        self.descriptor, self.direct = self._file.fileno(), self._file.direct
        if new and self.direct:
            zeros = aligned_empty(min(ZEROS_BYTES, end))
            zeros[:] = 0
            # What a write leaves out is reserved and reads as zeros, too.
            for low in range(DATA_OFFSET, end, ZEROS_BYTES):
                os.pwrite(self.descriptor, zeros[: end - low].data, low)

    def read(self, rows: Tensor, parts: int) -> Tensor:
        """Returns float[k, parts, H], the first parts of the records of rows i64[k]."""
        out = torch.empty((len(rows), *self._shape), dtype=self._dtype)
        self._reader.read_rows(self._file, rows.numpy(), row_bytes=out[0].nbytes, offset=DATA_OFFSET, out=_bytes(out))
        return out[:, :parts]

    def write(self, rows: Tensor, records: Tensor) -> None:
        """Replaces the records of distinct rows i64[k] by float[k, 3, H]."""
        self._reader.write_rows(self._file, rows.numpy(), _bytes(records), offset=DATA_OFFSET)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class RecentRecords:
    """The present records of rows that were read or written last, each in the place that its number has modulo that of places.

    A row displaces the one that had its place. So the rows of a batch are there when its step needs them again, all but those that share a
    place, and rows that most batches read are there most of the time.

    Args:
        shape: rows of the table, 3 and H.
    """

    def __init__(self, shape: tuple[int, int, int], dtype: torch.dtype):
        num = max(1, min(shape[0], RECENT_BYTES // (dtype.itemsize * shape[1] * shape[2])))
        self._rows = torch.full((num,), -1)
        self._records = torch.empty((num, *shape[1:]), dtype=dtype)

    def find(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Returns float[k, 3, H], the records of rows i64[k], and i64[m], the places in it of rows that are not here."""
        places = rows % len(self._rows)
        return self._records.index_select(0, places), (self._rows[places] != rows).nonzero()[:, 0]

    def put(self, rows: Tensor, records: Tensor) -> None:
        """Takes the records float[k, 3, H] of rows i64[k]; of rows with one place, one."""
        places = rows % len(self._rows)
        self._rows[places] = rows
        at = (self._rows[places] == rows).nonzero()[:, 0]
        self._records.index_copy_(0, places[at], records[at])

    def clear(self) -> None:
        """Forgets all rows."""
        self._rows.fill_(-1)


def _bytes(records: Tensor) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return records.reshape(len(records), -1).numpy().view(np.uint8)
