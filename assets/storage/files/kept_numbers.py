"""Numbers that are measured once and kept in a file of the home, sealed: a flipped bit in it is damage, and not another number."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from graphmill.assets.storage.files.schema import Fields
from graphmill.assets.storage.files.sealed_json import DIGEST, seal, unseal_bytes
from graphmill.assets.storage.system.filesystem import replace_atomically, write_once
from graphmill.kernels.errors import InputError


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
