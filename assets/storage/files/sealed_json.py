"""JSON files that carry their own digest, so that one flipped bit anywhere in them shows; numbers that are measured once are kept so."""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import xxhash

from graphmill.assets.storage.files.schema import Fields
from graphmill.assets.storage.names.version import canonical, spelled
from graphmill.assets.storage.system.filesystem import read_whole_file, replace_atomically, write_once
from graphmill.assets.storage.system.refused import is_unread
from graphmill.kernels.errors import InputError

DIGEST = "digest"


def seal(document: dict[str, Any]) -> bytes:
    """Returns the document as indented JSON with a `digest` field over all its other fields."""
    return _sealed(canonical(document))


def _sealed(document: dict[str, Any]) -> bytes:
    """Does what `seal` does with a document of plain JSON values."""
    content = {key: value for key, value in document.items() if key != DIGEST}
    content[DIGEST] = xxhash.xxh3_128_hexdigest(spelled(content))
    return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode("ascii")


def unseal(path: Path) -> dict[str, Any]:
    """Reads a sealed document.

    Raises:
        ValueError: the file is missing or not a JSON object, or its bytes are not those that were sealed.
        OSError: it is there and cannot be read now.
    """
    return unseal_bytes(sealed_bytes(path), path.name)


def sealed_bytes(path: Path) -> bytes:
    """Returns the bytes of a file that should hold a sealed document; raises as `unseal`."""
    try:
        return read_whole_file(path)
    except OSError as error:
        if is_unread(error):
            raise
        raise ValueError(f"{path.name} cannot be read: {error.strerror}") from error


def unseal_bytes(data: bytes, name: str) -> dict[str, Any]:
    """Returns the sealed document that a file's bytes are."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is no JSON: {error}") from error
    if not _is_intact(data):
        raise ValueError(f"{name} does not match its own digest")
    return document


@lru_cache(maxsize=64)  # a command reads the documents of a few artifacts again and again
def _is_intact(data: bytes) -> bool:
    """Returns whether bytes of JSON are those of a sealed document."""
    document = json.loads(data)
    # Comparing bytes, not only the digest, finds damage in white space and in the digest itself.
    try:
        return isinstance(document, dict) and _sealed(document) == data
    except (ValueError, RecursionError):  # damage can spell values that were never sealed, such as NaN
        return False


def kept_numbers(path: Path, kind: Fields, measure: Callable[[], Mapping[str, Any]], remedy: str) -> dict[str, Any]:
    """Returns name -> value from the file, which is made first if it does not exist; the first of several processes wins.

    Args:
        kind: the values that it holds. A file with these alone, without a seal, was written by hand, and is taken at its word.

    Raises:
        InputError: the file is damaged, or the disk is full.
    """
    data = write_once(path, lambda: seal(dict(measure())))
    try:
        values = json.loads(data)
        if not isinstance(values, dict) or not values.keys() <= kind.names:
            values = unseal_bytes(data, path.name)
        values = {name: value for name, value in values.items() if name != DIGEST}
        kind(values, "")
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {error}", remedy) from error
    return values


def keep_numbers(path: Path, values: Mapping[str, Any]) -> None:
    """Replaces the values of a file."""
    replace_atomically(path, seal(dict(values)))
