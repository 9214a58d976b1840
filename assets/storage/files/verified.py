"""Comparing files with their digests before they are read, once per process: no step builds from bytes that were damaged before.

A whole file is compared when it is opened (`verify_once`), and remembered by device, inode, size and the two times that a change moves: a
second opening costs one stat(2), and a file that was changed since is compared again. A file that a writer of this process has just
digested counts as compared. Rows of a mapped table, which may be larger than memory, are compared by blocks of 1 MiB when the first row of
a block is read (`VerifiedRows`).

Not seen: bytes that change on the disk after they were compared, while neither size nor times move. `graphmill verify` remembers
nothing and sees them.
"""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import xxhash

from graphmill.assets.storage.files.digests import BLOCK_BYTES, block_digests
from graphmill.assets.storage.names.manifest import address_of, repair_remedy
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

READ_THREADS = 2
"""Threads that compare one file."""
Identity = tuple[int, ...]

_SOUND: dict[Identity, Identity] = {}
"""(device, inode) -> (size, mtime, ctime, digest of all block digests) of files that were compared by this process."""
_READ: set[str] = set()
"""Paths of the files that this process compared before it read them."""


def verify_once(path: Path, words: Array, num_bytes: int) -> None:
    """Compares a file with its digests, unless this process did so and the file has not changed since.

    Args:
        words: u64[ceil(num_bytes / 1 MiB)] expected block digests.

    Raises:
        InputError: it is missing, has another size, or a block does not match its digest.
    """
    place, state = _identity(path, num_bytes, words)
    if _SOUND.get(place) != state:
        bad = np.flatnonzero(block_digests(path, READ_THREADS) != words)
        if len(bad):
            raise damaged_file(path, damaged_block(int(bad[0]), num_bytes))
        _SOUND[place] = state
    _READ.add(str(path))


def verify_again(path: Path, words: Array, num_bytes: int) -> None:
    """Compares a file once more if this process read it and it has changed since; any other is left alone."""
    if str(path) in _READ:
        verify_once(path, words, num_bytes)


def note_sound(path: Path, words: Array) -> None:
    """Remembers that a file was digested by the caller just now, and that these are its digests.

    Args:
        path: the file; a folder above it may be renamed later.
        words: u64[blocks] that the caller computed from the file.
    """
    place, state = _identity(path, path.stat().st_size, words)
    _SOUND[place] = state


def _identity(path: Path, num_bytes: int, words: Array) -> tuple[Identity, Identity]:
    found = require_size(path, num_bytes)
    expected = xxhash.xxh3_64_intdigest(np.ascontiguousarray(words, "<u8").tobytes())
    return (found.st_dev, found.st_ino), (found.st_size, found.st_mtime_ns, found.st_ctime_ns, expected)


def require_size(path: Path, num_bytes: int) -> os.stat_result:
    """Returns the facts about a file of an artifact; raises InputError if it is missing, or has another size."""
    try:
        found = os.stat(path)
    except FileNotFoundError as error:
        raise damaged_file(path, "the file is missing") from error
    if found.st_size != num_bytes:
        raise damaged_file(path, f"it has {found.st_size} bytes instead of {num_bytes}")
    return found


def require_block(path: Path, block: int, content: Array, words: Array) -> None:
    """Compares a block that was read with its digest.

    Args:
        content: u8[n], the block; fewer bytes than 1 MiB at the end of the file.
        words: u64[blocks] expected block digests.
    """
    if xxhash.xxh3_64_intdigest(content.data) != int(words[block]):
        raise damaged_file(path, damaged_block(block, block * BLOCK_BYTES + len(content)))


def damaged_block(block: int, end: int) -> str:
    """Returns the problem with a block, which ends at byte `end` at the latest, in words."""
    start = block * BLOCK_BYTES
    return f"bytes {start} to {min(start + BLOCK_BYTES, end) - 1} do not match their digest"


def damaged_file(path: Path, what: str) -> InputError:
    """Returns the error about a damaged file of an artifact."""
    return InputError(f"{path} is damaged: {what}", repair_remedy(address_of(path.parent)))


class VerifiedRows:
    """Compares the blocks of a mapped table when the first row of each is about to be read; any number of threads may call it.

    A block is compared through the page cache, from which the mapping then serves its rows. Two threads may compare the same block at
    once; that costs time and nothing else. Memory: one byte per MiB of the file, and 1 MiB per thread that compares.
    """

    def __init__(self, table: FeatureTable):
        assert table.block_digest is not None, f"{table.path} has no block digests"
        self.table, self._words = table, table.block_digest
        self._pending = np.ones(len(self._words), bool)
        self._left, self._lock = len(self._words), threading.Lock()

    @property
    def pending(self) -> bool:
        """Whether a block is left that was not compared."""
        return self._left > 0

    def require(self, rows: Array) -> None:
        """Compares those blocks that hold the rows and were not compared before.

        Args:
            rows: ids[n], rows of the table; ids out of range are left to the reader of the rows.

        Raises:
            InputError: a block does not match its digest.
        """
        if self._left and len(rows) and self.table.row_bytes:
            for block in self._blocks(rows):
                self._compare(block)

    def _blocks(self, rows: Array) -> Iterator[int]:
        """Yields pending blocks that hold a byte of a row, each once; most often there is none, so this looks before it sorts."""
        size = self.table.row_bytes
        first = np.clip(rows, 0, max(0, self.table.num_rows - 1)).astype(np.int64)
        first *= size
        first += self.table.offset
        last = np.minimum((first + (size - 1)) // BLOCK_BYTES, len(self._words) - 1)
        first //= BLOCK_BYTES
        found = np.union1d(first[self._pending[first]], last[self._pending[last]])
        for low in found.tolist():
            yield low
        if size > BLOCK_BYTES:  # a row reaches over blocks between its first and its last
            for low, high in zip(first.tolist(), last.tolist(), strict=True):
                yield from (np.flatnonzero(self._pending[low : high + 1]) + low).tolist()

    def compare(self, block: int, content: Array) -> None:
        """Compares blocks that a caller has read, if they were not compared before.

        Args:
            content: u8[n], whole blocks; the last one of the file may be shorter.
        """
        for number in range(-(-len(content) // BLOCK_BYTES)):
            if self._pending[block + number]:
                self._note(block + number, content[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES])

    def _compare(self, block: int) -> None:
        with open(self.table.path, "rb", buffering=0) as file:
            self._note(block, np.fromfile(file, np.uint8, BLOCK_BYTES, offset=block * BLOCK_BYTES))

    def _note(self, block: int, content: Array) -> None:
        require_block(self.table.path, block, content, self._words)
        with self._lock:
            self._left -= bool(self._pending[block])
            self._pending[block] = False
