"""Names of files that a user wrote: a file, a folder, or a pattern with `*`, `?`, `[...]` and `**`.

A part of a path that stands on the disk as it is written is that file or folder, whatever letters its name has. Only another part is a
pattern. So a project in a folder `data [v2]` or `what?` needs no escapes, and a file `e[1].csv` is found by its name.

Files stand in the order of their names in which numbers count as numbers: part.2 before part.10. Dask, DuckDB and others write the parts of
a table without zeros in front, and what is matched by position, such as an array of features, has the order of the numbers.
"""

import glob
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""The beginning of an address such as s3://bucket/file; also with one slash, which is what a `Path` leaves of it."""


DIGITS = re.compile(r"[0-9]+|[^0-9]")


def in_order(paths: Iterable[Path]) -> list[Path]:
    """Returns paths in ascending order of their names, part by part; numbers in names count as numbers."""
    return sorted(paths, key=lambda path: ([_numbered(part) for part in path.parts], path))


def _numbered(name: str) -> list[tuple[int, int]]:
    """Returns a key with the order of the letters, in which a number stands where its first digit would, before larger ones."""
    pieces = DIGITS.findall(name)
    return [(ord("0"), int(piece)) if piece.isdecimal() and piece.isascii() else (ord(piece), 0) for piece in pieces]


def matches(pattern: Path) -> list[Path]:
    """Returns the files and folders that a path or pattern names, in their order; none if nothing is there."""
    found = [Path(pattern.anchor)]
    for part in pattern.parts[1:] if pattern.anchor else pattern.parts:
        found = [folder / name for folder in found for name in _names(folder, part)]
    return in_order(dict.fromkeys(found))


def _names(folder: Path, part: str) -> list[str]:
    if os.path.lexists(folder / part):
        return [part]
    if not glob.has_magic(part):
        return []
    here = [""] if part == "**" else []  # a folder and all folders below it
    return here + glob.glob(part, root_dir=folder, recursive=True)


def bytes_named(*configs: Any) -> int:
    """Returns the bytes of all files that keys of configurations name, by paths, folders or patterns: each path once."""
    return sum(_bytes(path) for path in dict.fromkeys(path for config in configs for path in paths_in(config)))


def paths_in(value: Any) -> Iterator[Path]:
    """Yields the paths in a configuration, those of its tables included."""
    if isinstance(value, Path):
        yield value
        return
    if hasattr(value, "__dataclass_fields__"):
        value = [getattr(value, field.name) for field in fields(value)]
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else ()
    for each in inside:
        yield from paths_in(each)


def _bytes(path: Path) -> int:
    """Returns the bytes of a file, of all files below a folder, or of all files that a pattern matches; 0 if there are none."""
    files: dict[Path, None] = {}
    for found in matches(path):
        inside = files_below(found) if found.is_dir() else [found]
        files |= dict.fromkeys(each for each in inside if each.is_file())
    return sum(each.stat().st_size for each in files)


def files_below(folder: Path, above: Collection[Path] = ()) -> Iterator[Path]:
    """Yields the files below a folder at any depth, those of linked folders too; none of a link that leads back or of what cannot be read.

    Args:
        above: folders that have been entered, without links.
    """
    own = folder.resolve()
    try:
        names = [] if own in above else os.listdir(folder)
    except OSError:
        return
    for path in (folder / name for name in names):
        if path.is_dir():
            yield from files_below(path, {*above, own, *own.parents})
        else:
            yield path


def written(pattern: Path) -> int:
    """Returns how many parts at the beginning of a path stand on the disk as they are written; what follows is a pattern."""
    path = Path()
    for number, part in enumerate(pattern.parts):
        path /= part
        if not os.path.lexists(path):
            return number
    return len(pattern.parts)


def why_nothing(pattern: Path) -> str:
    """Returns the words for a path or pattern that names nothing: it is remote, is not there, or matches no file."""
    if REMOTE.match(text := str(pattern)) and not pattern.is_absolute():
        return "is a remote address, and only local files are read"
    if not glob.has_magic(text):
        return "is not there"
    hint = "; [ ] * and ? are letters of patterns, and [[] stands for a [" if "[" in text else ""
    return f"matches no file{hint}"
