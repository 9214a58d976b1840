"""Records: ranges of a file that are read alone, each compared with its own digest."""

from pathlib import Path

import numpy as np
import xxhash

from graphmill.assets.storage.names.manifest import address_of, repair_remedy
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array


def read_record(path: Path, offset: int, length: int, digest: int | None, owner: str) -> Array:
    """Returns u8[length], a range of a file.

    Args:
        digest: xxh3-64 of its bytes; None compares nothing.
        owner: name of the record in words, with its artifact.

    Raises:
        InputError: the file is missing or ends inside the range, or the bytes do not match the digest.
    """
    data = np.empty(length, np.uint8)
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            filled = file.readinto(data.data)
    except FileNotFoundError:
        raise damaged_record(path, owner, f"{path} is missing") from None
    if filled < length:
        raise damaged_record(path, owner, f"{path} ends {length - filled} bytes too early")
    if digest is not None and xxhash.xxh3_64_intdigest(data.data) != digest:
        raise damaged_record(
            path, owner, f"bytes {offset} to {offset + length - 1} of {path} do not match their digest"
        )
    return data


def damaged_record(path: Path, owner: str, problem: str) -> InputError:
    """Returns the error about a damaged record of a file."""
    return InputError(f"{owner} is damaged: {problem}", repair_remedy(address_of(path.parent)))
