"""The drawn neighbours of one layer of many batches, on disk until the batches are put together.

A pass over the graph answers batch after batch in each window: counts, sources, and what belongs to the edges. What a batch got of some
windows is one piece of the file, since the pieces of one window are smaller than pages; the batches of a group stand one after the other
there. The pieces of a batch, in the order of windows, are its rows in the order of nodes. Only their places are in memory, and the last
rows, which are never written. The file is read at random, so the system is told to read no pages ahead.

A layer is read once for each layer below it, and once more in the end. So the high bytes of numbers that are zero in all of them are left
out: ids of 16M nodes take 3 bytes, and counts of at most 255 neighbours one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from graphmill.kernels.types import Array

ARRAY_BYTES = 112
"""Memory of an array beside its elements."""


class SpillColumn(NamedTuple):
    """An array of the file: the type of its elements, and how many bytes of each are stored, the low ones."""

    dtype: np.dtype
    num_bytes: int

    @staticmethod
    def of(dtype: np.dtype, largest: int | None = None) -> SpillColumn:
        """Returns the column of numbers from 0 to `largest`; without one, of values of which every byte counts."""
        needed = dtype.itemsize if largest is None else -(-largest.bit_length() // 8)
        return SpillColumn(dtype, max(1, min(dtype.itemsize, needed)))

    def narrow(self, values: Array) -> Array:
        """Returns u8[n, num_bytes], the stored bytes of dtype[n]."""
        return np.ascontiguousarray(
            values.view(np.uint8).reshape(len(values), self.dtype.itemsize)[:, : self.num_bytes]
        )

    def widen(self, stored: Array) -> Array:
        """Returns dtype[n], the values of u8[n, num_bytes]."""
        values = np.zeros((len(stored), self.dtype.itemsize), np.uint8)
        values[:, : self.num_bytes] = stored
        return values.view(self.dtype)[:, 0]


class SpilledEdges(NamedTuple):
    """A piece of a batch in the file: its first byte, and the numbers of its nodes and edges."""

    offset: int
    num_nodes: int
    num_edges: int


class Spill:
    """A file of pieces, which is removed when it is closed; any number of threads may add to it, or read.

    Args:
        counts: the column of the numbers of edges of nodes.
        columns: name -> column with an element per edge, in their stored order.
        held_bytes: bytes that stay in memory.

    Attributes:
        num_bytes: bytes of all pieces that were written.
        read_bytes: bytes that were read of them.
    """

    def __init__(
        self, path: Path, num_batches: int, counts: SpillColumn, columns: Mapping[str, SpillColumn], held_bytes: int
    ):
        self._names, self._columns = list(columns), [counts, *columns.values()]
        self.num_bytes, self.read_bytes, self._lock = 0, 0, threading.Lock()
        self._pieces: list[list[SpilledEdges]] = [[] for _ in range(num_batches)]
        self._held: dict[int, list[Sequence[Array]]] = {}
        self._most_bytes, self._held_bytes = held_bytes, 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        path.unlink()
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_RANDOM)

    def append(self, batch: int, counts: Array, edges: Sequence[Array]) -> None:
        """Adds the next rows of a batch; one thread at a time adds those of the same batch.

        Args:
            counts: number of edges of each node.
            edges: arrays of the columns, in their order; they are not written to afterwards.
        """
        arrays = [column.narrow(each) for column, each in zip(self._columns, (counts, *edges), strict=True)]
        with self._lock:
            self._held.setdefault(batch, []).append(arrays)
            self._held_bytes += sum(each.nbytes + ARRAY_BYTES for each in arrays)
            if self._held_bytes > self._most_bytes:
                self._write()

    def finish(self) -> None:
        """Joins the rows that stay in memory; nothing is added any more."""
        for batch, rows in self._held.items():
            self._held[batch] = [_joined(rows)]

    def read(self, batch: int) -> tuple[Array, dict[str, Array]]:
        """Returns the counts of a batch, and column -> its values, over all pieces."""
        none = [np.zeros((0, column.num_bytes), np.uint8) for column in self._columns]
        rows = [none, *map(self._read_piece, self._pieces[batch]), *self._held.get(batch, ())]
        counts, *edges = [
            column.widen(np.concatenate(each))
            for column, each in zip(self._columns, zip(*rows, strict=True), strict=True)
        ]
        return counts, dict(zip(self._names, edges, strict=True))

    def close(self) -> None:
        """Gives the space back."""
        os.close(self._file)

    def _read_piece(self, piece: SpilledEdges) -> Sequence[Array]:
        """Returns the stored arrays of a piece, by one request."""
        lengths = (piece.num_nodes, *[piece.num_edges] * len(self._names))
        sizes = [count * column.num_bytes for count, column in zip(lengths, self._columns, strict=True)]
        content = np.empty(sum(sizes), np.uint8)
        _read_all(self._file, content.data, piece.offset)
        with self._lock:
            self.read_bytes += len(content)
        arrays = np.split(content, np.cumsum(sizes[:-1]))
        return [each.reshape(-1, column.num_bytes) for each, column in zip(arrays, self._columns, strict=True)]

    def _write(self) -> None:
        """Writes a piece of each batch that waits, in the order of batches."""
        for batch, rows in sorted(self._held.items()):
            arrays = _joined(rows)
            self._pieces[batch].append(SpilledEdges(self.num_bytes, len(arrays[0]), len(arrays[1])))
            for each in arrays:
                view = each.reshape(-1).data
                while len(view):
                    written = os.pwrite(self._file, view, self.num_bytes)
                    view, self.num_bytes = view[written:], self.num_bytes + written
        self._held, self._held_bytes = {}, 0


def _joined(rows: Sequence[Sequence[Array]]) -> list[Array]:
    """Returns the arrays of consecutive rows, one behind the other."""
    return [np.concatenate(each) for each in zip(*rows, strict=True)]


def _read_all(file: int, view: memoryview, offset: int) -> None:
    """Fills a view from a place of a file."""
    while len(view):
        count = os.preadv(file, [view], offset)
        if count == 0:
            raise OSError(f"a spill file ends at byte {offset}")
        view, offset = view[count:], offset + count
