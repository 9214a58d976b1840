"""Rows of all nodes that may exceed memory: input features, and the layers of exact inference.

Rows on disk are read in ascending order, a window at a time. `StreamedRows` reads consecutive rows of the features by large reads, past the
page cache if the file does not fit there, and the next window while one is computed with. `MappedRows` are rows that single ranges ask for;
the pages of a window are released before the next is touched. Features that are in memory are read where they lie (`InPlaceRows`), and rows
of layers that do not fit there go to files (trainers/inference/spilled.py).
"""

from __future__ import annotations

import mmap
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from graphmill.assets.storage.files.arrays import forget_pages
from graphmill.assets.storage.files.digests import BLOCK_BYTES
from graphmill.assets.storage.files.verified import VerifiedRows
from graphmill.assets.storage.system.control_group import fits_memory, free_bytes
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.aligned import aligned_empty
from graphmill.kernels.rows.direct_io import PageReader, ReadExecution
from graphmill.kernels.rows.gather import gather
from graphmill.kernels.types import Array
from graphmill.kernels.warn_once import warn_once
from graphmill.trainers.devices.protocol import numpy_dtype
from graphmill.trainers.recipe.costs.exact import tile_rows
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.source import FeatureSource, RowIds, TableSource

APART_BYTES = 16 << 10
"""Bytes that a disk reads in order in the time in which it finds one more row at random."""
STREAM_BYTES = 8 << 20
"""Bytes of a file that are read at once by `StreamedRows`: whole blocks with digests. Two such windows are in memory."""
DIRECT = ReadExecution(depth=8, piece_bytes=1 << 20)
BUFFERED = ReadExecution(method="buffered")
MUCH = 16
"""Sets of rows of which less than these many would fill what is free are given back at once."""
WINDOW_BYTES = 32 << 20
CACHE_LINE = 64
"""Bytes that the processor reads from memory at a time."""
_PAGES_AROUND = 64 << 10
"""Bytes that the operating system may map around a touched page."""


class Rows(Protocol):
    """Rows of all nodes.

    Attributes:
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
    """Rows in memory, float[N, width], to be read or to be written range by range."""

    def __init__(self, values: Tensor):
        self.values, self.width, self.dtype = values, values.shape[1], values.dtype
        self.blocks = [(0, self.width)]

    def block(self, number: int) -> Tensor:
        """Returns float[N, width], all rows: the only block of columns (`ColumnRows`)."""
        return self.values

    def columns(self, first: int, last: int) -> Tensor:
        """Returns float[N, last - first], some columns of all rows."""
        return self.values[:, first:last].contiguous()

    def write(self, low: int, rows: Tensor, first: int = 0) -> None:
        """Puts columns first, first + 1, ... of rows at low, low + 1, ..."""
        self.values[low : low + len(rows), first : first + rows.shape[1]] = rows

    def gather(self, node_ids: Array, threads: int) -> Tensor:
        """Returns float[n, width], row i of node_ids[i]."""
        out = torch.empty((len(node_ids), self.width), dtype=self.dtype)
        gather(self.values.numpy(), node_ids, out.numpy(), threads=threads)
        return out

    def read(self, low: int, high: int) -> Tensor:
        """Returns float[high - low, width], the rows of nodes low to high."""
        return self.values[low:high]


class InPlaceRows(MemoryRows):
    """Features, float[N, F], in memory or in a mapped file that fits there, whose blocks are compared before their first row is read."""

    def __init__(self, features: Any, values: Tensor):
        super().__init__(values)
        self._features: TableSource = features

    def block(self, number: int) -> Tensor:
        """Returns float[N, F], all rows: the only block of columns."""
        return self.read(0, len(self.values))

    def gather(self, node_ids: Array, threads: int) -> Tensor:
        """Returns float[n, F], row i of node_ids[i]."""
        self._features.require(node_ids)
        return super().gather(node_ids, threads)

    def read(self, low: int, high: int) -> Tensor:
        """Returns float[high - low, F], the rows of nodes low to high."""
        self._features.require(np.arange(low, high))
        return super().read(low, high)


class MappedRows:
    """Rows of a mapped file, of any type that `graphmill.kernels.rows.gather` converts.

    Args:
        table: [R, F], the file.
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
            forget_pages(self.table)
            low = high
        return out

    def read(self, low: int, high: int) -> Tensor:
        """Returns float[high - low, width], the rows of nodes low to high."""
        rows = torch.empty((high - low, self.width), dtype=self.dtype)
        self._require(np.arange(low, high) if self.row_of is None else np.asarray(self.row_of[low:high]))
        gather(self.table, np.arange(low, high), rows.numpy(), row_of=self.row_of)
        forget_pages(self.table)
        return rows

    def _require(self, rows: Array) -> None:
        if self.verified is not None:
            self.verified.require(rows)


class StreamedRows(Rows):
    """Rows of a table that are read in order, by large reads; every block is compared with its digest before its first row is used.

    Consecutive calls of `read` read each byte of the file once, and the following window while the caller computes.

    Args:
        features: the source of a table that is a file.
        sparse: gives rows that lie apart.
    """

    def __init__(self, features: TableSource, dtype: torch.dtype, sparse: Rows):
        assert features.stored is not None
        self.table, self.width, self.dtype, self._sparse = features.stored, features.width, dtype, sparse
        self._verified = features.verified or VerifiedRows(self.table)
        self._reader = PageReader(BUFFERED if fits_memory(self.table.num_bytes) else DIRECT)
        try:
            self._file = self._reader.open(self.table.path)
        except InputError as error:  # no direct reads there
            warn_once(f"{error.problem}; rows of an evaluation are read through the page cache")
            self._reader = PageReader(BUFFERED)
            self._file = self._reader.open(self.table.path)
        self._end = self.table.offset + self.table.num_bytes
        self._memory = [aligned_empty(STREAM_BYTES), aligned_empty(STREAM_BYTES)]
        self._thread = ThreadPoolExecutor(1, "stream")
        self._held: tuple[int, Array] = (-1, self._memory[0][:0])
        self._next: tuple[int, Future[Array]] | None = None

    def gather(self, node_ids: Array, threads: int) -> Tensor:
        """Returns float[n, width], row i of node_ids[i]; those that lie close together are read in order, with those between them."""
        order, row_bytes = np.argsort(node_ids, kind="stable"), self.table.row_bytes
        ascending, out = node_ids[order].astype(np.int64), torch.empty((len(node_ids), self.width), dtype=self.dtype)
        first, apart = 0, [order[:0]]
        while first < len(ascending):
            low = int(ascending[first])
            last = int(np.searchsorted(ascending, low + max(1, STREAM_BYTES // row_bytes)))
            places, high = order[first:last], int(ascending[last - 1]) + 1
            if (high - low) * row_bytes <= len(places) * (row_bytes + APART_BYTES):
                part = torch.empty((len(places), self.width), dtype=self.dtype)
                rows, row_of = self._stored(low, high)
                gather(rows, ascending[first:last] - low, part.numpy(), threads=threads, row_of=row_of)
                out[torch.from_numpy(places)] = part
            else:
                apart.append(places)
            first = last
        if len(alone := np.concatenate(apart)):
            out[torch.from_numpy(alone)] = self._sparse.gather(node_ids[alone], threads)
        return out

    def read(self, low: int, high: int) -> Tensor:
        """Returns float[high - low, width], the rows of nodes low to high; zeros for nodes without features."""
        rows, row_of = self._stored(low, high)
        if row_of is None and rows.dtype == numpy_dtype(self.dtype):
            return torch.from_numpy(rows)
        out = torch.empty((high - low, self.width), dtype=self.dtype)
        gather(rows, np.arange(high - low), out.numpy(), row_of=row_of)
        return out

    def _stored(self, low: int, high: int) -> tuple[Array, Array | None]:
        """Returns the rows of nodes low to high as they are in the file, [R, width], and the row of each node, as `MappedRows` has it."""
        table, row_of = self.table, None
        first, last = low, high
        if table.row_of is not None:
            row_of = table.row_of[low:high]
            present = row_of[row_of >= 0]  # rows stand in the order of their nodes
            first, last = (int(present[0]), int(present[-1]) + 1) if len(present) else (0, 0)
            row_of = np.where(row_of >= 0, row_of - first, -1)
        stored = torch.empty((last - first) * table.row_bytes, dtype=torch.uint8)
        self._fill(table.offset + first * table.row_bytes, stored.numpy())
        return stored.numpy().view(table.dtype).reshape(last - first, self.width), row_of

    def _fill(self, start: int, out: Array) -> None:
        """Fills u8[n] with the bytes of the file from `start` on."""
        done = 0
        while done < len(out):
            number, place = divmod(start + done, STREAM_BYTES)
            piece = self._window(number)[place : place + len(out) - done]
            out[done : done + len(piece)] = piece
            done += len(piece)

    def _window(self, number: int) -> Array:
        """Returns a window's bytes; windows that follow one another are read ahead."""
        held, content = self._held
        if held == number:
            return content
        ahead, self._next = self._next, None
        content = ahead[1].result() if ahead else content
        if not ahead or ahead[0] != number:
            content = self._load(number)
        self._held = number, content
        if number == held + 1 and (number + 1) * STREAM_BYTES < self._end:
            self._next = number + 1, self._thread.submit(self._load, number + 1)
        return content

    def _load(self, number: int) -> Array:
        start = number * STREAM_BYTES
        length = min(STREAM_BYTES, self._end - start)
        content, _ = self._reader.read_chunk(self._file, start, length, self._memory[number % 2])
        self._verified.compare(start // BLOCK_BYTES, content)
        return content


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
    """Returns the input rows as a model takes them; those of a file that exceeds the bytes are read by windows."""
    if (values := _in_place(features, dtype)) is not None:
        return InPlaceRows(features, values)
    if not isinstance(features, TableSource) or features.stored is None or features.stored.num_bytes <= memory_bytes:
        return SourceRows(features, dtype)
    table: Any = features.rows
    mapped = MappedRows(table, dtype, features.row_of, features.verified) if features.mapped else None
    return StreamedRows(features, dtype, mapped or SourceRows(features, dtype))


def _in_place(features: Any, dtype: torch.dtype) -> Tensor | None:
    """Returns the features of all nodes, float[N, F], if they lie in memory, or in a file that fits there, as they are computed with."""
    if (
        not isinstance(features, TableSource)
        or features.row_of is not None
        or features.dtype != numpy_dtype(dtype).name
    ):
        return None
    if not features.in_place or (features.mapped and not fits_memory(features.rows.nbytes)):
        return None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nothing writes to it
        values = torch.from_numpy(np.asarray(features.rows))
    return None if values.data_ptr() % CACHE_LINE else values


def empty_rows(num_rows: int, width: int, dtype: torch.dtype) -> Tensor:
    """Returns float[num_rows, width], uninitialised: from the heap, or in a mapping of its own if they are much of what is free.

    The heap keeps what is freed, which spares the next rows their page faults, a fifth of an evaluation. Under a limit it would be missing
    to rows that are made next, which then go to a file; a mapping goes back to the system as soon as nothing holds it.
    """
    num_bytes, free = num_rows * width * dtype.itemsize, free_bytes()
    if not num_bytes or free is None or num_bytes * MUCH <= free:
        return torch.empty((num_rows, width), dtype=dtype)
    # A shared mapping, which is the default, would count as a file's pages, and not as memory of this process.
    mapping = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(mapping, dtype=dtype).view(num_rows, width)


def tile_of(rows: Rows) -> int:
    """Returns the number of nodes that are computed at a time from their rows (`tile_rows`)."""
    return tile_rows(rows.width * rows.dtype.itemsize)
