"""Records: ranges of a file that are read alone, each compared with its own digest, and arrays as the consecutive bytes of one.

Every array of a record starts at a multiple of 8 bytes, and the record is padded with zeros to whole pages. So a record that starts on a
page is read by one sequential (also O_DIRECT) read, and its arrays are used where they lie.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash

from graphmill.assets.storage.names.manifest import address_of, repair_remedy
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

PAGE = 4096
DEGREES = (np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.uint32))
"""Types of a block's stored degrees."""


class ArrayPlace(NamedTuple):
    """An array in a record: first byte, dtype, length."""

    offset: int
    dtype: np.dtype[Any]
    length: int

    @property
    def end(self) -> int:
        """The byte behind its last one."""
        return self.offset + self.length * self.dtype.itemsize

    def of(self, record: Array) -> Array:
        """Returns the array as a view of its record, u8[n]."""
        return record[self.offset : self.end].view(self.dtype)


def lay_out(shapes: Iterable[tuple[np.dtype[Any], int]]) -> Iterator[ArrayPlace]:
    """Yields the places of arrays one after the other, from (dtype, length) of each."""
    offset = 0
    for dtype, length in shapes:
        yield ArrayPlace(offset, dtype, length)
        offset += -(-length * dtype.itemsize // 8) * 8


def fill_record(places: Sequence[ArrayPlace], values: Sequence[Array]) -> Array:
    """Returns u8[n], the record of some arrays. The first one is its header, whose second word becomes the bytes without padding."""
    values[0][1] = places[-1].end
    record = np.zeros(-(-places[-1].end // PAGE) * PAGE, np.uint8)
    for place, value in zip(places, values, strict=True):
        assert len(value) == place.length and value.dtype == place.dtype, "an array is not what the header says"
        place.of(record)[:] = value
    return record


def narrow_degrees(degrees: Array) -> Array:
    """Returns degrees in the narrowest type that holds the largest."""
    largest = int(degrees.max(initial=0))
    return degrees.astype(next(dtype for dtype in DEGREES if largest <= np.iinfo(dtype).max))


def read_record(path: Path, offset: int, length: int, digest: int | None, owner: Callable[[], str]) -> Array:
    """Returns u8[length], a range of a file.

    Args:
        digest: xxh3-64 of its bytes; None compares nothing.
        owner: function that names the record in words, with its artifact; called if the record is damaged.

    Raises:
        InputError: the file is missing or ends inside the range, or the bytes do not match the digest.
    """
    data = np.empty(length, np.uint8)
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            filled = file.readinto(data.data)
    except FileNotFoundError:
        raise damaged_record(path, owner(), f"{path} is missing") from None
    if filled < length:
        raise damaged_record(path, owner(), f"{path} ends {length - filled} bytes too early")
    if digest is not None and xxhash.xxh3_64_intdigest(data.data) != digest:
        raise damaged_record(
            path, owner(), f"bytes {offset} to {offset + length - 1} of {path} do not match their digest"
        )
    return data


def damaged_record(path: Path, owner: str, problem: str) -> InputError:
    """Returns the error about a damaged record of a file."""
    return InputError(f"{owner} is damaged: {problem}", repair_remedy(address_of(path.parent)))
