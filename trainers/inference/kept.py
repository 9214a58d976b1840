"""Rows of an inference that are kept in a file, from which one that was killed goes on.

The file is a log: a key of what is computed, then windows of rows, each with a digest. A round appends what was computed since the one
before, of every set of rows that is still read, and ends with a mark. What stands behind the last mark, or behind a window that is damaged,
counts as not computed. Rounds are so rare that they take a small share of the time, and an inference of a few seconds has none.

Sets are the rows of layers of an exact inference, or the logits of the batches of a sampled one (`KeptBatches`). Each process of an
inference that several share has a log of its own; they agree on where they go on.
"""

import os
import struct
import time
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
import xxhash
from torch import Tensor

from graphmill.trainers.devices.protocol import numpy_dtype

FIRST_SECONDS = 5.0
"""Seconds before the first round."""
SAVING_SHARE = 20
"""A round follows after this many times the seconds of the one before."""
WINDOW_BYTES = 8 << 20
"""Bytes of a window; one row at least."""
_HEAD = struct.Struct("<16s8sqqqqQ")  # name, dtype, first row, number of rows, columns, node, digest
_KEY_BYTES = 16


class _Window(NamedTuple):
    """A window in the file: its rows, their shape and type, the node or batch behind its last row, and its place."""

    first: int
    count: int
    width: int
    dtype: str
    node: int
    place: int


class RowLog:
    """The log of one inference.

    Args:
        path: the file; one of another key is replaced in the first round.
        key: u8[16], a digest of what is computed.

    Attributes:
        live: name -> rows, the number of them that are computed, and the node or batch behind the last: the sets that the next round
            brings up to date. Names have at most 16 letters.
    """

    def __init__(self, path: Path, key: bytes):
        self.path, self._key = path, key
        self.live: dict[str, tuple[Any, int, int]] = {}
        self._windows: dict[str, list[_Window]] = {}
        self._end, self._next = 0, time.monotonic() + FIRST_SECONDS
        if path.exists():
            with path.open("rb") as file:
                self._read(file)

    def rows_of(self, name: str) -> int:
        """Returns the number of rows of a set that the file has."""
        found = self._windows.get(name)
        return found[-1].first + found[-1].count if found else 0

    def end_of(self, name: str) -> int:
        """Returns the node or batch behind the last row of a set; 0 if the file has none."""
        found = self._windows.get(name)
        return found[-1].node if found else 0

    @property
    def ended(self) -> bool:
        """Whether the disk has refused a round, so that no other follows."""
        return self._next == inf

    def windows(self, name: str) -> Iterator[tuple[int, int, Tensor]]:
        """Yields (first row, node behind the last one, float[n, width]) of a set's windows, in order."""
        for each in self._windows.get(name, ()):
            rows = np.fromfile(self.path, each.dtype, each.count * each.width, offset=each.place)
            yield each.first, each.node, torch.from_numpy(rows).view(each.count, each.width)

    def save_if_due(self) -> None:
        """Appends a round if it is time for one. A disk that refuses it ends the rounds, not the inference."""
        started = time.monotonic()
        if started < self._next:
            return
        try:
            with self.path.open("r+b" if self._end else "wb") as file:
                self._append(file)
            ended = time.monotonic()
            self._next = ended + SAVING_SHARE * (ended - started)
        except OSError:
            self._next = inf
            self.path.unlink(missing_ok=True)

    def _append(self, file: BinaryIO) -> None:
        if not self._end:
            file.write(self._key)
        file.seek(self._end or _KEY_BYTES)
        file.truncate()
        for name, (rows, count, node) in self.live.items():
            first, known = self.rows_of(name), self._windows.get(name)
            step = max(1, WINDOW_BYTES // max(1, rows.width * rows.dtype.itemsize))
            # The last window tells the node, even one without rows.
            while first < count or known is None or known[-1].node < node:
                last = min(first + step, count)
                self._write(file, name, first, rows.read(first, last), node if last == count else -1)
                first, known = last, self._windows[name]
        self._write(file, "", 0, torch.empty((0, 0)), 0)
        self._end = file.tell()

    def _write(self, file: BinaryIO, name: str, first: int, rows: Tensor, node: int) -> None:
        content = rows.contiguous().numpy()
        (count, width), dtype = rows.shape, numpy_dtype(rows.dtype).str
        fields = (name.encode(), dtype.encode(), first, count, width, node)
        file.write(_HEAD.pack(*fields, _digest(fields, content)))
        if name:
            place = file.tell()
            self._windows.setdefault(name, []).append(_Window(first, count, width, dtype, node, place))
        file.write(content.data)

    def _read(self, file: BinaryIO) -> None:
        """Finds the windows up to the last mark."""
        if file.read(_KEY_BYTES) != self._key:
            return
        size, found = os.fstat(file.fileno()).st_size, []
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            padded, kind, *numbers, digest = _HEAD.unpack(head)
            name, dtype, (first, count, width, node) = padded.rstrip(b"\0"), kind.rstrip(b"\0"), numbers
            place = file.tell()
            if dtype not in (b"<f4", b"<f8") or not 0 <= count * width * int(dtype[2:]) <= size - place:
                return
            content = np.fromfile(file, dtype.decode(), count * width)
            if _digest((name, dtype, *numbers), content) != digest:
                return
            if name:
                found.append((name.decode(), _Window(first, count, width, dtype.decode(), node, place)))
                continue
            for each, window in found:
                self._windows.setdefault(each, []).append(window)
            found, self._end = [], file.tell()


class KeptBatches:
    """The logits of successive batches of a sampled inference.

    Args:
        kept: the log; None keeps nothing.

    Attributes:
        done: number of batches, from the first, whose logits the log has.
        width, dtype: columns and type of the logits that the log does not have yet.
    """

    width: int
    dtype: torch.dtype

    def __init__(self, kept: RowLog | None, name: str, sizes: Sequence[int]):
        self.kept, self.name, self._sizes = kept, name, sizes
        self.done = 0 if kept is None else kept.end_of(name)
        self._first = self._count = 0 if kept is None else kept.rows_of(name)
        self._fresh, self._next = list[Tensor](), 0

    def restored(self, count: int) -> Iterator[Tensor]:
        """Yields float[n, num_classes], the logits of each of the first `count` batches; `add` follows with those of the next one."""
        self._next, found = count, torch.empty(0)
        windows = iter(()) if self.kept is None else self.kept.windows(self.name)
        for size in self._sizes[:count]:
            while len(found) < size:
                _, _, rows = next(windows)
                found = torch.cat([found, rows]) if len(found) else rows
            yield found[:size]
            found = found[size:]

    def add(self, logits: Tensor) -> None:
        """Takes the logits of the next batch, and keeps all so far if it is time."""
        self._next += 1
        if self.kept is None or self.kept.ended or self._next <= self.done:
            return
        self._fresh.append(logits)
        self.width, self.dtype = logits.shape[1], logits.dtype
        self._count += len(logits)
        self.kept.live[self.name] = self, self._count, self._next
        self.kept.save_if_due()
        if self.kept.ended or self.kept.rows_of(self.name) == self._count:
            self._first, self._fresh = self._count, []

    def read(self, low: int, high: int) -> Tensor:
        """Returns float[high - low, width], rows that the log does not have yet."""
        self._fresh = [torch.cat(self._fresh)]
        return self._fresh[0][low - self._first : high - self._first]


def _digest(fields: tuple[Any, ...], content: np.ndarray[Any, Any]) -> int:
    made = xxhash.xxh3_64(repr(fields).encode())
    made.update(np.ascontiguousarray(content).view(np.uint8).data)
    return made.intdigest()
