"""Forged documents: sealed as graphmill seals them, with nonsense in one field. The seal is a digest, and anybody can compute it."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from graphmill.assets.storage.files.documents import DIGEST, seal, unseal

MISSING = object()
NONSENSE: tuple[Any, ...] = (
    MISSING, None, "", "7", "x" * 5000, "a\x00b", "\x1b[2J", "\ud800", "..", "../../../../out", "/out", ".", "~",
    0, 1, -1, -5, 1 << 70, 10**14, 0.5, 1e300, True, [], [1], [[]], {}, {"a": 1}, {"a": None}, [{"stage": 1}], "0" * 64, "é" * 300,
)  # fmt: skip
"""Values that stand in the place of another; texts that begin with /out become paths below the folder of the attack."""


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the path of every field of a document, those of tables and lists inside it included."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, held in inner:
        if (*above, key) != (DIGEST,):
            yield (*above, key)
            yield from places(held, (*above, key))


def forged(document: dict[str, Any], draw: random.Random, folder: Path, within: tuple[str, ...] = ()) -> dict[str, Any]:
    """Returns a document with one field that says nonsense, or a name that is another one.

    Args:
        document: a sound document.
        draw: what draws field and nonsense.
        folder: folder in whose `out` absolute paths lie: nothing may come into it.
        within: path of the table whose fields are drawn; () for the whole document.
    """
    found = copy.deepcopy(document)
    *above, key = draw.choice([each for each in places(found) if each[: len(within)] == within and each != within])
    inner = found
    for each in above:
        inner = inner[each]
    value = draw.choice(NONSENSE)
    if isinstance(value, str) and value.startswith("/out"):
        value = f"{folder}{value}"
    if isinstance(inner, dict) and isinstance(value, str) and draw.random() < 0.3:
        inner[value] = inner.pop(key)
    elif value is MISSING:
        del inner[key]
    else:
        inner[key] = copy.deepcopy(value)
    return found


def forge(path: Path, draw: random.Random, folder: Path, within: tuple[str, ...] = ()) -> bool:
    """Forges a sealed document in place; returns False for a file that is none, or a forgery that cannot be written."""
    try:
        path.write_bytes(seal(forged(unseal(path), draw, folder, within)))
    except (ValueError, TypeError):
        return False
    return True
