"""Learnable rows of nodes with their moments in files, for tables that are larger than the memory.

A record is a row with its two moments of Adam, float[3, H], so a step finds all that it needs of a node on one page or two. A step reads
the records of the rows that have a gradient, and writes these alone. A file that fits in the memory is mapped, and others are read and
written past the page cache, many pages at a time, behind a tier of recent rows in memory (records.py).

A kill leaves what the last checkpoint has. Each row has up to three records, each in a file of its own, of which the checkpoint names one
and the best epoch so far one; a step writes to one that neither names. So a checkpoint copies nothing: it waits until the disk has what was
written, and stores a byte per row that says which record is which. It is taken at every new best epoch, so that the best rows are always
those that it names.

    state of a row, u8:  present record | record of the checkpoint << 2 | record of the best epoch << 4

0 stands for none: such a row has its initial values and moments of 0. So a new table has no values written, and the second and third file
are made when a step first needs them: a training of few steps takes the space of one.

Space: 3 H values per row and file. Memory: a byte per row. Of a mapped file dirty pages of `DIRTY_BYTES` twice: more are not left to the
system, which would let them fill a control group. Of others `RECENT_BYTES` and the pages of `READING`.

A flipped bit in a file is not found: pages change at every step and have no digests.
"""

from __future__ import annotations

import os
import re
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.assets.storage.files.arrays import create_array
from graphmill.assets.storage.remote.checkpoints import ROWS
from graphmill.assets.storage.system.control_group import fits_memory
from graphmill.assets.storage.system.filesystem import make_folder, release_lock, take_lock
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.direct_io import PageReader
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.trainers.models.rows.records import DirectRecords, MappedRecords, RecentRecords
from graphmill.trainers.recipe.costs.node_rows import READING

Initial = Callable[[Tensor], Tensor]
"""Function from rows of a table, i64[k], to their initial values, float32[k, H]."""
FILES = (1, 2, 3)
READ_ROWS = 1 << 13
DIRTY_BYTES = 128 << 20
"""Pages that are written before the disk is asked to take them; while it does, as many may be written again."""
_FREE = torch.tensor([min({*FILES} - {state >> 2 & 3, state >> 4 & 3}) for state in range(64)], dtype=torch.uint8)
"""State of a row -> the first record that neither a checkpoint nor the best epoch names."""


class RowFile:
    """The records of a table of rows, in up to three files beside a checkpoint.

    Args:
        checkpoint: path of the run's checkpoint.
        shape: rows n and columns H.
        dtype: float32 or float64.
        initial: the initial values of rows.
        named: name of the files that the checkpoint there has; "" if it has none, or there is none.
        resumed: whether the run goes on from them; otherwise it has new ones, and those stay until its first checkpoint.

    Attributes:
        name: of the files, beside the checkpoint, without their numbers.

    Raises:
        InputError: another process trains with these files, they are not there, or the disk has no space.
    """

    def __init__(
        self,
        checkpoint: Path,
        shape: tuple[int, int],
        dtype: torch.dtype,
        initial: Initial,
        *,
        named: str = "",
        resumed: bool = False,
    ):
        self.checkpoint, self.shape, self.dtype, self.initial = checkpoint, shape, dtype, initial
        self.states = torch.zeros(shape[0], dtype=torch.uint8)
        self._file_shape, self._kind = (shape[0], 3, shape[1]), np.dtype(str(dtype).removeprefix("torch."))
        self._record_bytes = 3 * shape[1] * dtype.itemsize
        fits = fits_memory(shape[0] * self._record_bytes)
        # Past the page cache: of one thread at a time, and with what was read or written last.
        self._reader = None if fits else PageReader(READING)
        self._recent = None if fits else RecentRecords(self._file_shape, dtype)
        self._turn, self._direct = threading.Lock(), False
        self._records: dict[int, MappedRecords | DirectRecords] = {}
        self._dirty_bytes, self._committed = 0, resumed
        self._writing: threading.Thread | None = None
        self._refused: OSError | None = None
        self.name = named if resumed else f"{checkpoint.name}{ROWS}{uuid.uuid4().hex}"
        make_folder(checkpoint.parent)
        if resumed:
            self._open()
        else:
            self._make(1)
        lock = take_lock(self._path(1), create=False)
        if lock is None:
            problem = f"another process trains with {self._path(1)}"
            raise InputError(problem, "wait until it has ended, or train without --resume")
        self._lock = lock
        self._remove_others(keep=named)

    def read(self, rows: Tensor) -> Tensor:
        """Returns float[k, H], the present values of rows i64[k]."""
        out = torch.empty((len(rows), self.shape[1]), dtype=self.dtype)
        # Past the page cache the moments come, too: of some rows at a time.
        for part, values in zip(rows.split(READ_ROWS), out.split(READ_ROWS), strict=True):
            values.copy_(self._read(part, 1)[:, 0])
        return out

    def records(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns float[k, H] each: the present values of rows i64[k], and their two moments."""
        values, mean, square = self._read(rows, 3).unbind(1)
        return values, mean, square

    def write(self, rows: Tensor, values: Tensor, mean: Tensor, square: Tensor) -> None:
        """Makes values and moments, float[k, H] each, the present ones of distinct rows i64[k]."""
        with self._turn:
            states = self.states.index_select(0, rows)
            free, made = _FREE.index_select(0, states.long()), torch.stack([values, mean, square], 1)
            for number, at in _groups(free):
                if number not in self._records:
                    self._make(number)
                self._records[number].write(rows[at], made[at])
            self.states.index_copy_(0, rows, states.bitwise_and(0b111100).bitwise_or_(free))
            if self._recent is not None:
                self._recent.put(rows, made)
        self._dirty_bytes += 0 if self._direct else len(rows) * max(PAGE_BYTES, self._record_bytes)
        if self._dirty_bytes >= DIRTY_BYTES:
            self._write_back()

    def keep_best(self) -> None:
        """Makes the present records those of the best epoch. A checkpoint must follow before the next write."""
        self._set(0b001111, 0, 4)

    def take_best(self) -> None:
        """Makes the records of the best epoch the present ones."""
        self._set(0b111100, 4, 0)
        self._forget()

    def sync(self) -> Tensor:
        """Waits until the disk has all present records. Returns u8[n], the states that a checkpoint stores, as `restore` takes them."""
        self._write_back()
        self._settle()
        present = self.states.bitwise_and(3)
        return self.states.bitwise_and(0b110000).bitwise_or_(present).bitwise_or_(present << 2)

    def commit(self) -> None:
        """Notes that the checkpoint with the states of `sync` has replaced the one before: the records of that may be written again."""
        self._set(0b110011, 0, 2)
        if not self._committed:
            self._committed = True
            self._remove_others(keep=self.name)

    def restore(self, states: Tensor) -> None:
        """Takes the states of a checkpoint; raises ValueError if files that it names are not there."""
        found = {number for shift in (0, 4) for number, _ in _groups(states >> shift & 3)} - {0}
        if lacking := found - self._records.keys():
            raise ValueError(f"its rows are not in {', '.join(self._path(each).name for each in sorted(lacking))}")
        self.states.copy_(states)
        self._forget()

    def close(self) -> None:
        """Closes the files; those that no checkpoint names are removed."""
        if not self._records:
            return
        if self._writing is not None:
            self._writing.join()
        for records in self._records.values():
            records.close()
        self._records.clear()
        if not self._committed:
            for number in FILES:
                self._path(number).unlink(missing_ok=True)
        release_lock(self._lock)

    def _remove_others(self, keep: str) -> None:
        """Removes the files of trainings of this recipe that are gone, but for those of a name."""
        of_runs = re.compile(rf"({re.escape(self.checkpoint.name + ROWS)}[0-9a-f]{{32}})-1\.npy")
        for path in [*self.checkpoint.parent.glob(f"{self.checkpoint.name}{ROWS}*")]:
            match = of_runs.fullmatch(path.name)
            if match is None or match[1] in (keep, self.name):
                continue
            if (lock := take_lock(path, create=False)) is not None:
                for number in reversed(FILES):
                    path.with_name(f"{match[1]}-{number}.npy").unlink(missing_ok=True)
                release_lock(lock)

    def _read(self, rows: Tensor, parts: int) -> Tensor:
        """Returns float[k, parts, H], the first parts of the present records of rows i64[k]."""
        if self._recent is None:
            return self._stored(rows, parts)
        with self._turn:
            out, at = self._recent.find(rows)
            if len(at):
                stored = self._stored(rows[at], 3)
                out.index_copy_(0, at, stored)
                self._recent.put(rows[at], stored)
            return out[:, :parts]

    def _stored(self, rows: Tensor, parts: int) -> Tensor:
        """Returns what `_read` does, of what the files have."""
        out = torch.empty((len(rows), parts, self.shape[1]), dtype=self.dtype)
        for number, at in _groups(self.states.index_select(0, rows).bitwise_and(3)):
            if number:
                found = self._records[number].read(rows[at], parts)
            else:
                found = torch.zeros((len(at), parts, self.shape[1]), dtype=self.dtype)
                found[:, 0] = self.initial(rows[at])
            out.index_copy_(0, at, found)
        return out

    def _set(self, kept: int, source: int, target: int) -> None:
        """Replaces the two bits of all states at `target` by those at `source`; `kept` is the mask of the others."""
        for part in self.states.split(1 << 20):
            part.copy_(part.bitwise_and(kept).bitwise_or_((part >> source & 3) << target))

    def _path(self, number: int) -> Path:
        return self.checkpoint.with_name(f"{self.name}-{number}.npy")

    def _make(self, number: int) -> None:
        self._add(number, create_array(self._path(number), self._file_shape, self._kind), new=True)

    def _open(self) -> None:
        for number in FILES:
            path = self._path(number)
            if not path.exists():
                continue
            try:
                found = np.load(path, mmap_mode="r+")
            except (OSError, ValueError) as error:
                raise InputError(f"{path} cannot be mapped: {error}", "train without --resume") from error
            if (found.shape, found.dtype) != (self._file_shape, self._kind):
                problem = f"{path} has {found.dtype}{list(found.shape)}, and the training {self._kind}{list(self._file_shape)}"
                raise InputError(problem, "train without --resume")
            self._add(number, found, new=False)
        if 1 not in self._records:
            problem = f"{self._path(1)}, with the rows of nodes of the checkpoint, is not there"
            raise InputError(problem, f"remove {self.checkpoint} and train without --resume")

    def _add(self, number: int, array: Any, *, new: bool) -> None:
        path, shape = self._path(number), self._file_shape[1:]
        if self._reader is None:
            self._records[number] = MappedRecords(path, array)
        else:
            self._records[number] = found = DirectRecords(path, self._reader, shape, self.dtype, new=new)
            self._direct = found.direct

    def _forget(self) -> None:
        if self._recent is not None:
            self._recent.clear()

    def _write_back(self) -> None:
        """Begins to write dirty pages to the disk, after those of the last call."""
        self._settle()
        descriptors = [each.descriptor for each in self._records.values()]
        self._dirty_bytes = 0

        def write() -> None:
            try:
                for each in descriptors:
                    os.fsync(each)
            except OSError as error:
                self._refused = error

        self._writing = threading.Thread(target=write, name="rows of nodes", daemon=True)
        self._writing.start()

    def _settle(self) -> None:
        """Waits for the pages of `_write_back`; raises InputError if the disk did not take them."""
        if self._writing is not None:
            self._writing.join()
            self._writing = None
        if self._refused is not None:
            problem = f"cannot write the rows of nodes {self._path(1)}: {self._refused}"
            raise InputError(problem, "free space, or mend the disk; then use --resume") from self._refused


def _groups(numbers: Tensor) -> list[tuple[int, Tensor]]:
    """Returns each number of u8[k] with its places, i64, in ascending order."""
    return [(number, found) for number in (0, *FILES) if len(found := (numbers == number).nonzero()[:, 0])]
