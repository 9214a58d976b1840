"""Reads NumPy archives member by member, in slices, without ever unpickling.

`np.load` reads a member whole; features may be larger than memory, so `Archive.rows` decompresses a stream and yields slices of rows. A
header is trusted only after its shape and dtype were compared with the member's size, so a damaged or hostile file cannot make us allocate
more than it holds. The zip's CRC is checked at the end of each member that is read to its end.
"""

from __future__ import annotations

import errno
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from graphmill.assets.sources.arrays.array_files import NPY, to_integers
from graphmill.assets.sources.features.blocks import SLICE_BYTES, row_ranges
from graphmill.assets.sources.readers.duck import FIX_FILE
from graphmill.assets.storage.files.arrays import BAD_HEADER, READING
from graphmill.assets.storage.system.machine import require_plain_file
from graphmill.kernels.arrays import largest
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

BAD_ARCHIVE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OSError, struct.error)
"""The errors that wrong bytes of a zip archive cause."""
SAVE_REMEDY = "save it again with np.savez(path, name=array, ...) from plain numeric arrays"


@dataclass(frozen=True)
class Header:
    """Shape, dtype and order of a member, from its own header."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool

    @property
    def num_bytes(self) -> int:
        """Number of bytes of the array's data."""
        return math.prod(self.shape) * self.dtype.itemsize


class Archive:
    """An open `.npz` file. Use it as a context manager.

    Attributes:
        others: names of members that are not arrays.

    Raises:
        InputError: the file is missing, unreadable, or not a zip archive; reads raise it for a member that is missing or damaged, or holds
            pickled objects.
    """

    def __init__(self, path: Path):
        self.path = path
        require_plain_file(path, "give an .npz file")
        try:
            self._zip = zipfile.ZipFile(path)
        except FileNotFoundError:
            problem = f"{path}: no such file"
            raise InputError(problem, "correct `path` in [graph]; it is relative to the pipeline file") from None
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}", "give a readable .npz file") from error
        except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error):
            problem = f"{path}: is no npz archive, or a truncated one"
            raise InputError(problem, f"copy it again, or {SAVE_REMEDY}") from None
        held = [name for name in self._zip.namelist() if self._is_array(name)]
        self._members = {name.removesuffix(".npy"): name for name in held}
        self.others = [name for name in self._zip.namelist() if name not in held]
        if len(self._members) < len(held):
            names = [name.removesuffix(".npy") for name in held]
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"{path}: holds the array '{twice}' twice", f"{SAVE_REMEDY}, each array once")

    def _is_array(self, name: str) -> bool:
        """Tells whether a member is an array, by its ending or its first bytes; other programs add texts and folders."""
        if name.endswith(".npy"):
            return not name.startswith("__MACOSX/")
        try:
            with self._zip.open(name) as stream:
                return stream.read(len(NPY)) == NPY
        except BAD_ARCHIVE:
            return False

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *exc: object) -> None:
        self._zip.close()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arrays."""
        return tuple(self._members)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def header(self, name: str) -> Header:
        """Reads a member's header."""
        with self._stream(name) as stream:
            return self._header(name, stream)

    def dtype(self, name: str) -> np.dtype[Any]:
        """Reads the type that a member's header declares; a pickled member has the type of objects, and is not read for it."""
        with self._stream(name) as stream:
            return self._bare_header(stream).dtype

    def read(self, name: str) -> Array:
        """Reads a member whole; a Fortran-ordered one is returned C-contiguous, so its bytes are held twice for a moment."""
        with self._stream(name) as stream:
            header = self._header(name, stream)
            flat = _fill(stream, np.empty(math.prod(header.shape), header.dtype))
            _check_end(stream)
        if header.fortran:
            return np.ascontiguousarray(flat.reshape(header.shape[::-1]).T)
        return flat.reshape(header.shape)

    def rows(self, name: str) -> Iterator[tuple[int, Array]]:
        """Yields (first row, rows[n, F]) of a matrix in slices of about 8 MiB; a Fortran-ordered one is read whole first."""
        header = self.header(name)
        num_rows, width = header.shape
        ranges = row_ranges(num_rows, width * header.dtype.itemsize)
        if header.fortran:
            whole = self.read(name)
            yield from ((low, whole[low:high]) for low, high in ranges)
            return
        with self._stream(name) as stream:
            self._header(name, stream)
            for low, high in ranges:
                part = np.empty((high - low, width), header.dtype)
                _fill(stream, part.reshape(-1))
                yield low, part
            _check_end(stream)

    def elements(self, name: str, first: int, end: int, step: int) -> Iterator[Array]:
        """Yields the elements first to end - 1 of a member, counted as they lie in the file, `step` at a time."""
        header = self.header(name)
        with self._stream(name) as stream:
            self._header(name, stream)
            left = first * header.dtype.itemsize
            while left:  # a zip member can only be read from its beginning
                got = len(stream.read(min(left, SLICE_BYTES)))
                if not got:
                    raise ValueError("it ends early")
                left -= got
            for low in range(first, end, step):
                yield _fill(stream, np.empty(min(step, end - low), header.dtype))
            if end == math.prod(header.shape):
                _check_end(stream)

    def integers(self, name: str, dims: int) -> Array:
        """Reads an array of integers; those of uint64 become int64, since NumPy counts the former with int64 as floats.

        Args:
            dims: 0 for a number (or an array of one element), else the number of dimensions.

        Raises:
            InputError: the array is missing, has another type or number of dimensions, or a value beyond the range of int64.
        """
        if name not in self:
            raise InputError(f"{self.path}: has no array '{name}'; it has {', '.join(self.names)}", FIX_FILE)
        shape, dtype = self.header(name).shape, self.header(name).dtype
        if dtype.kind not in "iu":
            raise InputError(f"{self.path}: {name} is {dtype}, not integers", to_integers(self.read(name), name))
        single = dims == 0 and shape in ((), (1,))
        if len(shape) != dims and not single:
            flat = dims == 1 and sum(size != 1 for size in shape) <= 1
            problem = f"{self.path}: {name} has shape {list(shape)}, not {dims} dimensions"
            raise InputError(problem, f"save {name}.reshape(-1)" if flat else FIX_FILE)
        values = self.read(name)
        if values.dtype.kind == "u" and values.dtype.itemsize == 8:
            if (most := largest(values)) >= 2**63:
                problem = (
                    f"{self.path}: {name} holds {most}, which is no number of a node: it is {most - 2**64} of int64"
                )
                raise InputError(problem, f"leave out what has no node, and save {name}.astype(np.int64)")
            values = values.view(values.dtype.str.replace("u", "i"))
        return values.reshape(()) if single else values

    @contextmanager
    def _stream(self, name: str) -> Iterator[IO[bytes]]:
        """Opens a member; any error of its bytes becomes one InputError."""
        if name not in self._members:
            problem = f"{self.path}: has no array '{name}'; it has {', '.join(self.names) or 'none'}"
            raise InputError(problem, SAVE_REMEDY)
        try:
            with self._zip.open(self._members[name]) as stream:
                yield stream
        except BAD_ARCHIVE as error:
            # A damaged directory sends the reader to places before the file's beginning; other errors of the system do not come from the
            # bytes.
            if isinstance(error, InputError) or (isinstance(error, OSError) and error.errno != errno.EINVAL):
                raise
            if isinstance(error, RuntimeError):  # zipfile's word for what it cannot read
                problem = f"{self.path}: array '{name}' is encrypted, or packed by an unknown method"
                raise InputError(problem, SAVE_REMEDY) from error
            problem = f"{self.path}: array '{name}' is damaged: {error}"
            raise InputError(problem, f"copy it again, or {SAVE_REMEDY}") from error

    def _header(self, name: str, stream: IO[bytes]) -> Header:
        """Reads the header at the start of a member and compares it with the member's size."""
        header = self._bare_header(stream)
        if min(header.shape, default=0) < 0:
            raise ValueError(f"its header declares the shape {list(header.shape)}")
        if header.dtype.hasobject:
            problem = (
                f"{self.path}: array '{name}' holds pickled Python objects, which are never loaded (they can run code)"
            )
            raise InputError(problem, f"{SAVE_REMEDY}; text as a fixed-width string array: np.array(names, dtype=str)")
        held = self._zip.getinfo(self._members[name]).file_size - stream.tell()
        if header.num_bytes != held:
            raise ValueError(f"its header declares {header.num_bytes} bytes, the file holds {held}")
        return header

    @staticmethod
    def _bare_header(stream: IO[bytes]) -> Header:
        """Reads the header at the start of a member."""
        try:
            first = np.lib.format.read_magic(stream) == (1, 0)
            with READING:
                read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
                shape, fortran, dtype = read(stream)
        except BAD_HEADER as error:
            raise ValueError("its header cannot be read") from error
        return Header(shape, dtype, fortran)


def _fill(stream: IO[bytes], out: Array) -> Array:
    """Fills a contiguous 1-D array from the stream."""
    view = out.view(np.uint8).data if out.nbytes else memoryview(b"")
    filled = 0
    while filled < len(view):
        count = stream.readinto(view[filled : filled + SLICE_BYTES])  # pyright: ignore[reportAttributeAccessIssue]
        if not count:
            raise EOFError(f"it ends after {filled} of {len(view)} bytes")
        filled += count
    return out


def _check_end(stream: IO[bytes]) -> None:
    """Reads past the end, which makes zipfile compare the CRC."""
    if stream.read(1):
        raise ValueError("it is longer than its header says")
