"""Arrays on disk: `.npy` files whose header is padded so that data starts at byte 4,096.

The padding costs one page and buys two things: `np.load(mmap_mode="r")` opens the file like any other, and O_DIRECT
reads, which need page-aligned offsets, find row r at 4,096 + r * row_bytes. Space is reserved before the mapping is
made. Without that, a store to a page for which the disk has no space kills the process by SIGBUS; with it, the lack of
space is an ordinary error. (File systems that copy on write can still run full later.)
"""

from __future__ import annotations

import errno
import io
import itertools
import math
import mmap
import os
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import xxhash
from numpy.typing import ArrayLike, DTypeLike

from graphmill.assets.storage.files.digests import BLOCK_BYTES, RunningDigests
from graphmill.assets.storage.system.filesystem import reporting_full_disk
from graphmill.assets.storage.system.refused import is_unread
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

DATA_OFFSET = 4096
READ_BYTES = 1 << 16
"""Bytes of the first block that are read at a time."""
MAGIC = b"\x93NUMPY\x01\x00"
KINDS = "biuf"  # bool, int, unsigned, float: the types that the kernels read; objects would need pickle


def create_array(path: Path, shape: int | tuple[int, ...], dtype: DTypeLike) -> np.memmap[Any, Any]:
    """Makes a padded `.npy` file of zeros and maps it for writing.

    Args:
        path: the file; it must not exist, for another process may have the old one mapped.
        shape: any shape, lengths of 0 included.
        dtype: bool, integer or float; stored little-endian.

    Returns:
        A writable dtype[shape] over the file. Nothing is durable before the file is synced.

    Raises:
        InputError: the disk has no space; no file is left behind.
    """
    reserve_array(path, shape, dtype)
    return np.memmap(path, dtype=np.dtype(dtype).newbyteorder("<"), mode="r+", offset=DATA_OFFSET, shape=shape)


def reserve_array(path: Path, shape: int | tuple[int, ...], dtype: DTypeLike) -> int:
    """Makes the file of `create_array` without mapping it; same rules. Returns its bytes, the header included."""
    shape = (shape,) if isinstance(shape, int | np.integer) else shape
    shape = tuple(int(length) for length in shape)
    dtype = np.dtype(dtype).newbyteorder("<")
    assert dtype.kind in KINDS and not dtype.subdtype, f"{dtype} cannot be stored"
    num_bytes = DATA_OFFSET + math.prod(shape) * dtype.itemsize
    with reporting_full_disk(path, num_bytes):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            _reserve(descriptor, num_bytes)
            os.pwrite(descriptor, _header(shape, dtype), 0)
        except BaseException:
            path.unlink()
            raise
        finally:
            os.close(descriptor)
    return num_bytes


def write_array(path: Path, array: ArrayLike) -> np.memmap[Any, Any]:
    """Stores an array in a new padded `.npy` file; see `create_array` for the rules. Returns the writable mapping."""
    values = np.asarray(array)
    mapped = create_array(path, values.shape, values.dtype)
    mapped[...] = values
    return mapped


def scratch_arrays(folder: Path) -> Callable[[int, DTypeLike], Array]:
    """Returns a function from (length, dtype) to a new array of zeros in a file of the folder, for work that goes through it in order.

    The system writes its pages out when it needs their memory. The file has no name any more when the function returns, so its space is
    free again when the array is gone. The function raises an InputError if the disk has no space.
    """
    numbers = itertools.count()

    def allocate(length: int, dtype: DTypeLike) -> Array:
        path = folder / f"scratch-{next(numbers)}.npy"
        mapped = create_array(path, length, dtype)
        path.unlink()
        return mapped

    return allocate


class ArrayAppender:
    """Writes a padded `.npy` file of one dimension whose length is known only at the end; a context manager.

    Elements go through write(2), so no page of the file is mapped, and a full disk is an ordinary error. Blocks are digested while they
    are in memory; the first, whose header comes last, is read again.

    Args:
        path: the file; it must not exist.
        dtype: bool, integer or float; stored little-endian.

    Attributes:
        words: u64[blocks], as `block_digests` of the file, when the context has ended without an error.
    """

    def __init__(self, path: Path, dtype: DTypeLike):
        self.path, self.dtype, self.length = path, np.dtype(dtype).newbyteorder("<"), 0
        assert self.dtype.kind in KINDS, f"{self.dtype} cannot be stored"
        self._file = open(path, "x+b", buffering=0)  # noqa: SIM115
        self._file.write(bytes(DATA_OFFSET))
        self._digests, self._words = RunningDigests(DATA_OFFSET), list[tuple[int, int]]()
        self.words: Array | None = None

    def append(self, values: Array) -> None:
        """Adds dtype[n] at the end."""
        values = np.ascontiguousarray(values, self.dtype)
        write_whole(self._file, self.path, values)
        self._words += self._digests.update(values.view(np.uint8))
        self.length += len(values)

    def __enter__(self) -> ArrayAppender:
        return self

    def __exit__(self, kind: type | None, *error: object) -> None:
        with self._file:
            self._file.seek(0)
            self._file.write(_header((self.length,), self.dtype))
            if kind is None:
                later = [word for _, word in (*self._words, *self._digests.rest())]
                self.words = np.array([self._first_word(), *later], "<u8")

    def _first_word(self) -> int:
        block = xxhash.xxh3_64()
        for place in range(0, BLOCK_BYTES, READ_BYTES):
            block.update(os.pread(self._file.fileno(), READ_BYTES, place))
        return block.intdigest()


def write_whole(file: io.FileIO, path: Path, values: Array) -> None:
    """Writes all bytes of an array to an open unbuffered file."""
    left = values.view(np.uint8).data if len(values) else memoryview(b"")
    with reporting_full_disk(path, len(left)):
        while len(left):
            left = left[file.write(left) :]


def forget_pages(array: Array) -> None:
    """Takes the pages of a memory-mapped array out of this process; the file keeps the written data.

    A pass over a large mapping would otherwise count towards the memory of the process until the system needs it.
    Arrays that are not mapped are left alone.
    """
    mapped = getattr(array, "_mmap", None)
    if isinstance(mapped, mmap.mmap):
        mapped.madvise(mmap.MADV_DONTNEED)


def expect_random_reads(array: Array) -> None:
    """Tells the system that a mapped file is larger than the memory for it, and read at random: it then reads the touched pages alone.

    Otherwise a fault reads the pages around as well, tens of times the bytes that are wanted, and throws as many away.
    """
    mapped = getattr(array, "_mmap", None)
    if isinstance(mapped, mmap.mmap):
        mapped.madvise(mmap.MADV_RANDOM)


def mapped_apart(array: Array) -> Array:
    """Returns another mapping of a mapped array's file, for readers of another kind; an array that is not mapped is returned itself."""
    if getattr(array, "_mmap", None) is None or not isinstance(array, np.memmap) or array.filename is None:
        return array
    return np.memmap(array.filename, array.dtype, "r", array.offset, array.shape)


BAD_HEADER = (
    ValueError, EOFError, SyntaxError, TypeError, OverflowError, TokenError, RecursionError, MemoryError,
)  # fmt: skip
"""The errors that NumPy raises for a header with wrong bytes: it is Python text, parsed by Python's own tokenizer. The last two mean that
the text is nested too deeply."""


class _Turn:
    """A lock that an interrupt cannot leave locked for ever.

    An interrupt may come between the last statement of a block and the release of its lock. So a thread waits no longer than a block can
    take, goes on, and releases the lock for all.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire(timeout=1.0)

    def __exit__(self, *error: object) -> None:
        with suppress(RuntimeError):  # released by another that went on
            self._lock.release()


READING = _Turn()
"""Held while a header is parsed, which takes microseconds: CPython counts the depth of a parsed text for all threads together, and two
threads that parse at once may end in a SystemError (python/cpython#106905)."""


def open_array(path: Path) -> Array:
    """Maps a `.npy` file read-only. Random reads through the mapping are not verified against digests.

    Raises:
        InputError: the file is missing, cut short, or not a plain `.npy` file.
        OSError: it cannot be read now.
    """
    try:
        with READING:
            return np.load(path, mmap_mode="r")
    except (OSError, *BAD_HEADER) as error:
        if isinstance(error, OSError) and is_unread(error):
            raise  # too many open files, say: nothing is damaged
        problem = f"{path} cannot be mapped as an array: {error}"
        raise InputError(problem, "`graphmill verify` tells what is damaged") from error


def read_header(path: Path) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Returns (shape, dtype, byte at which data starts) of a `.npy` file.

    Raises:
        ValueError: not a C-ordered `.npy` file of version 1.
    """
    with open(path, "rb") as file:
        try:
            np.lib.format.read_magic(file)
            with READING:
                shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
        except BAD_HEADER as error:
            raise ValueError(f"{path} has a damaged header: {error}") from error
        if fortran_order and len(shape) > 1:
            raise ValueError(f"{path} is in Fortran order")
        return shape, dtype, file.tell()


def _header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    fields = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    text_bytes = DATA_OFFSET - len(MAGIC) - 2
    return MAGIC + struct.pack("<H", text_bytes) + repr(fields).encode("ascii").ljust(text_bytes - 1) + b"\n"


def _reserve(descriptor: int, num_bytes: int) -> None:
    try:
        os.posix_fallocate(descriptor, 0, num_bytes)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        # No reservation on this file system: writing zeros meets the same lack of space as an error, only slower.
        zeros = bytes(1 << 20)
        for offset in range(0, num_bytes, len(zeros)):
            os.pwrite(descriptor, zeros[: num_bytes - offset], offset)
