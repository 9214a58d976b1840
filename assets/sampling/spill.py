"""The drawn neighbours of one layer of many batches, on disk until the batches are put together.

A pass over the graph answers batch after batch in each window: counts, sources, and what belongs to the edges. What a batch got of some
windows is one piece of the file, since the pieces of one window are smaller than pages; the batches of a group stand one after the other
there. The pieces of a batch, in the order of windows, are its rows in the order of nodes. Only their places are in memory, and what is not
written yet. The file is read at random, so the system is told to read no pages ahead.
"""

import os
import threading
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np

from graphmill.kernels.types import Array


class SpilledEdges(NamedTuple):
    """A piece of a batch in the file: its first byte, and the numbers of its nodes and edges."""

    offset: int
    num_nodes: int
    num_edges: int


class Spill:
    """A file of pieces, which is removed when it is closed; any number of threads may add to it, or read.

    Args:
        columns: name -> type of the arrays with an element per edge, in their stored order.
        held_bytes: bytes that wait in memory until they are written.

    Attributes:
        num_bytes: bytes of all pieces that were written.
    """

    def __init__(self, path: Path, num_batches: int, columns: dict[str, np.dtype], held_bytes: int):
        self.columns, self.num_bytes, self._lock = columns, 0, threading.Lock()
        self._pieces: list[list[SpilledEdges]] = [[] for _ in range(num_batches)]
        self._held: dict[int, list[Sequence[Array]]] = {}
        self._most_bytes, self._held_bytes = held_bytes, 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        path.unlink()
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_RANDOM)

    def append(self, batch: int, counts: Array, edges: Sequence[Array]) -> None:
        """Adds the next rows of a batch; one thread at a time adds those of the same batch.

        Args:
            counts: i32[n], edges of each node; like the others it is not written to afterwards.
            edges: arrays of the columns, in their order.
        """
        arrays = [counts, *edges]
        with self._lock:
            self._held.setdefault(batch, []).append(arrays)
            self._held_bytes += sum(each.nbytes for each in arrays)
            if self._held_bytes > self._most_bytes:
                self._write()

    def finish(self) -> None:
        """Writes the waiting pieces; nothing is added any more."""
        with self._lock:
            self._write()

    def read(self, batch: int) -> tuple[Array, dict[str, Array]]:
        """Returns i32[n], the counts of a batch, and column -> its values, over all pieces; the spill is finished."""
        assert not self._held, "finish a spill before it is read"
        pieces = self._pieces[batch]
        types = [np.dtype(np.int32), *self.columns.values()]
        lengths = [(each.num_nodes, *[each.num_edges] * len(self.columns)) for each in pieces]
        found = [np.empty(sum(each[place] for each in lengths), dtype) for place, dtype in enumerate(types)]
        begins = [list(accumulate((each[place] for each in lengths), initial=0)) for place in range(len(types))]
        for number, piece in enumerate(pieces):
            offset = piece.offset
            for array, begin in zip(found, begins, strict=True):
                view = array[begin[number] : begin[number + 1]].data.cast("B") if array.nbytes else b""
                offset = _read_all(self._file, view, offset)
        return found[0], dict(zip(self.columns, found[1:], strict=True))

    def close(self) -> None:
        """Gives the space back."""
        os.close(self._file)

    def _write(self) -> None:
        """Writes a piece of each batch that waits, in the order of batches."""
        for batch, rows in sorted(self._held.items()):
            arrays = [np.concatenate(each) for each in zip(*rows, strict=True)]
            self._pieces[batch].append(SpilledEdges(self.num_bytes, len(arrays[0]), len(arrays[1])))
            for each in arrays:
                view = each.data.cast("B") if each.nbytes else b""
                while len(view):
                    written = os.pwrite(self._file, view, self.num_bytes)
                    view, self.num_bytes = view[written:], self.num_bytes + written
        self._held, self._held_bytes = {}, 0


def _read_all(file: int, view: memoryview | bytes, offset: int) -> int:
    """Fills a view from a place of a file, and returns the place behind it."""
    while len(view):
        count = os.preadv(file, [view], offset)
        if count == 0:
            raise OSError(f"a spill file ends at byte {offset}")
        view, offset = view[count:], offset + count
    return offset
