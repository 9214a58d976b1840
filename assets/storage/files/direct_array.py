"""Large arrays that are written once, in pieces, past the page cache, and digested while their bytes are in memory.

A stage that fills gigabytes through a mapping pays for them three times: a page fault every 4 KiB, the kernel's copy of every page until
it is written back, and a second pass for digests. A `DirectArray` is a padded `.npy` file (assets/storage/files/arrays.py) whose
regions are written from front to back by `RegionWriter`s, several at the same time, with O_DIRECT in whole pages. Each computes the
digests of the blocks of 1 MiB that lie in its region; the few that two regions share are read again at the end. `Writer.publish` then needs
no pass of its own.

Space is reserved first, so a full disk is an error before anything is written. If the file system has no O_DIRECT, the file is written
through the page cache, and one warning says so.
"""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import DTypeLike

from graphmill.assets.storage.files.arrays import reserve_array
from graphmill.assets.storage.files.digests import BLOCK_BYTES, RunningDigests
from graphmill.assets.storage.system.filesystem import reporting_full_disk
from graphmill.kernels.rows.aligned import aligned_empty
from graphmill.kernels.rows.direct_io import NO_DIRECT
from graphmill.kernels.rows.pages import PAGE_BYTES, padded_bytes, page_digests
from graphmill.kernels.types import Array
from graphmill.kernels.warn_once import warn_once


class DirectArray:
    """A padded `.npy` file, opened for writing past the page cache. Close it, or let its `Writer` do so.

    Args:
        path: the file; it must not exist.
        dtype: bool, integer or float; stored little-endian.

    Attributes:
        num_bytes: bytes of the file, its header included.
        direct: whether the page cache is bypassed.

    Raises:
        InputError: the disk has no space for it; no file is left behind.
    """

    def __init__(self, path: Path, shape: int | tuple[int, ...], dtype: DTypeLike):
        self.path = path
        self.num_bytes = reserve_array(path, shape, dtype)
        self._words = np.zeros(-(-self.num_bytes // BLOCK_BYTES), "<u8")
        self._known = np.zeros(len(self._words), bool)
        flags = os.O_RDWR | os.O_CLOEXEC
        try:
            self._descriptor, self.direct = os.open(path, flags | os.O_DIRECT), True
        except OSError as error:
            if error.errno not in NO_DIRECT:
                raise
            self._descriptor, self.direct = os.open(path, flags), False
            warn_once(f"the file system of {path.parent} has no O_DIRECT; writing through the page cache")

    def close(self) -> None:
        """Closes the file; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def write(self, start: int, data: Array) -> None:
        """Writes whole pages; does not touch the digests.

        Args:
            start: byte of the file, a multiple of 4,096.
            data: u8[n], n a multiple of 4,096, starting on a page of memory.
        """
        assert start % PAGE_BYTES == 0 and len(data) % PAGE_BYTES == 0, f"{len(data)} bytes at {start} are no pages"
        written = 0
        with reporting_full_disk(self.path, self.num_bytes):
            while written < len(data):
                count = os.pwrite(self._descriptor, data[written:].data, start + written)
                written += count // PAGE_BYTES * PAGE_BYTES if count < len(data) - written else count
                assert count >= PAGE_BYTES or written == len(data), f"{self.path}: {count} bytes written at {start}"

    def read(self, start: int, out: Array) -> None:
        """Reads whole pages of the file into out u8[n], which starts on a page; the file's last page may be cut.

        Raises:
            OSError: the file ends too early, or the disk fails.
        """
        done, wanted = 0, min(len(out), self.num_bytes - start)
        while done < wanted:
            count = os.preadv(self._descriptor, [out[done:].data], start + done)
            if count <= 0:
                raise OSError(f"{self.path} ends at byte {start + done}")
            done += count if done + count >= wanted else count // PAGE_BYTES * PAGE_BYTES

    def know(self, block: int, word: int) -> None:
        """Takes the digest of a block from a caller that had all of its bytes."""
        self._words[block], self._known[block] = word, True

    def finish(self, threads: int = 1) -> Array:
        """Ends the writing: the file gets its true length and is closed. A second call only returns the digests.

        Returns:
            u64[blocks], as `block_digests` of the file.
        """
        if self._descriptor < 0:
            return self._words
        os.ftruncate(self._descriptor, self.num_bytes)
        missing = np.flatnonzero(~self._known).tolist()

        def digest(blocks: Iterable[int]) -> None:
            buffer = aligned_empty(BLOCK_BYTES)
            for block in blocks:
                start = block * BLOCK_BYTES
                self.read(start, buffer)
                self.know(block, xxhash.xxh3_64_intdigest(buffer[: self.num_bytes - start].data))

        with ThreadPoolExecutor(max(1, threads)) as pool:
            list(pool.map(digest, (missing[first::threads] for first in range(threads))))
        self.close()
        return self._words


class RegionWriter:
    """Writes a region of a file from front to back.

    Args:
        start, end: first byte and the byte behind the last; both are multiples of 4,096, except `end` at the end of the file.
        page_words: u64[pages of the region or more], which receives the `page_digests` of its pages; None computes none.

    Attributes:
        position: the next byte to write.
    """

    def __init__(self, file: DirectArray, start: int, end: int, *, page_words: Array | None = None):
        self.file, self.position, self.end = file, start, end
        self._page_words = page_words
        self._digests = RunningDigests(start)

    def write(self, data: Array) -> None:
        """Writes u8[n] behind the bytes written before: whole pages that start on a page of memory."""
        assert self.position + len(data) <= padded_bytes(self.end), "more than the region has space for"
        for block, word in self._digests.update(data[: self.end - self.position]):
            self.file.know(block, word)
        if self._page_words is not None:
            words = page_digests(data)
            self._page_words[: len(words)], self._page_words = words, self._page_words[len(words) :]
        self.file.write(self.position, data)
        self.position += len(data)
        if self.position >= self.file.num_bytes:
            for block, word in self._digests.rest():
                self.file.know(block, word)

    def fill_up(self, buffer: Array, used: int) -> None:
        """Writes buffer[:used] and then zeros up to the end of the region; the buffer has space for whole pages."""
        pages = int(padded_bytes(used))
        buffer[used:pages] = 0
        self.write(buffer[:pages])
        assert self.position >= self.end, (
            f"{self.end - self.position} bytes of a region of {self.file.path} are missing"
        )
