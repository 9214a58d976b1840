"""The tables of a folder: files whose names differ by a number alone are one, and so are the part files of a folder below it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path

from graphmill.assets.sources.folder.columns import ColumnProfile, profile_columns
from graphmill.assets.sources.readers.duck import Duck
from graphmill.assets.sources.readers.packing import PACKED
from graphmill.assets.sources.readers.part_files import looks_like_table, part_files
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.sources.readers.text_layout import TextForm
from graphmill.assets.storage.names.patterns import in_order
from graphmill.kernels.errors import InputError, one_line

PART = re.compile(r"(.*?)[-_. ]?(?:part[-_. ]?)?\d+(?:[-_. ]of[-_. ]\d+)?")
"""Name of a part of a table, such as orders-0001 and orders.part-3: what stands before its number."""
HEADERS_MEMORY = 1 << 28
"""Working memory of DuckDB while headers are read, in bytes."""
OTHER_LETTERS = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True)
class FoundTable:
    """A table of a folder that could be read.

    Attributes:
        name: its name in a pipeline file: letters, digits, - and _.
        path: a file, a folder of part files, or a pattern.
        files: the open files, whose DuckDB the finder has.
    """

    name: str
    path: Path
    files: TableFiles
    columns: tuple[ColumnProfile, ...]

    @property
    def rows(self) -> int:
        """Number of rows; 0 of a table without columns."""
        return self.columns[0].rows if self.columns else 0

    def column(self, name: str) -> ColumnProfile:
        """Returns the profile of a column; of one of several alike, that of them all."""
        return next(each for each in self.columns if each.name == name)


def find_tables(folder: Path, duck: Duck) -> tuple[list[FoundTable], list[str]]:
    """Returns the tables of a folder in the order of their names, and lines about files that look like tables and cannot be read.

    Files and folders whose name begins with `.` or `_` are left out, and so are files that neither name nor first bytes call tables.
    """
    found: list[FoundTable] = []
    problems: list[str] = []
    for name, path in _named(folder):
        try:
            for each, own, files in _opened(name, path, duck):
                found.append(FoundTable(_free(each, found), own, files, ()))
        except InputError as error:
            problems.append(one_line(error.problem))
    profiled = [replace(each, columns=tuple(profile_columns(each.files))) for each in found]
    return [each for each in profiled if each.columns], problems


def _opened(name: str, path: Path, duck: Duck) -> list[tuple[str, Path, TableFiles]]:
    """Returns (name, path, open files) of a table; numbered files of different columns are tables of their own.

    Raises:
        InputError: a file cannot be read.
    """
    files = TableFiles(duck, [path], f"nodes.{name}", TextForm(names=("id",)))
    if path.exists() or not files.differences():
        return [(name, path, files)]
    return [table for each in files.paths for table in _opened(each.stem, each, duck)]


def _named(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yields (name, path or pattern) of the tables of a folder, those of folders below it behind those that lie in it."""
    below = [path for path in in_order(folder.iterdir()) if not path.name.startswith(("_", "."))]
    parts: dict[tuple[str, str], list[Path]] = {}
    for path in below:
        if path.is_file() and looks_like_table(path):
            stem, ending = _stem(path)
            part = PART.fullmatch(stem)
            parts.setdefault((part[1] if part else stem, ending), []).append(path)
    for (name, ending), paths in parts.items():
        stems = [_stem(path)[0] for path in paths]
        begin = os.path.commonprefix(stems).rstrip("0123456789")  # noqa: RUF071 letters, not parts of a path
        pattern = folder / f"{begin}*{ending}"
        if len(paths) > 1 and {*folder.glob(pattern.name)} == {*paths}:
            yield name or begin, pattern
        else:
            yield from ((_stem(path)[0], path) for path in paths)
    for path in below:
        if path.is_dir() and (inside := _parts(path)):
            if _are_parts(path, inside):
                yield path.name.removesuffix(".parquet").removesuffix(".csv"), path
            else:
                yield from _named(path)


def _parts(folder: Path) -> list[Path]:
    """Returns the files below a folder that look like tables; none of one with links to folders."""
    try:
        return [path for path in part_files(folder) if looks_like_table(path)]
    except InputError:
        return []


def holds_tables(folder: Path) -> bool:
    """Tells whether a folder holds tables of different columns, and is not one table of part files."""
    parts_of_one = (folder / "_SUCCESS").exists() or any("=" in path.name for path in folder.iterdir() if path.is_dir())
    named = [] if parts_of_one else [*_named(folder)]
    if len(named) < 2:
        return False
    columns: list[tuple[str, ...]] = []
    with Duck(None, HEADERS_MEMORY, 1) as duck:
        for name, path in named:
            with suppress(InputError):
                columns += [tuple(files.columns) for _, _, files in _opened(name, path, duck)]
    return len({*columns}) > 1


def _are_parts(folder: Path, inside: list[Path]) -> bool:
    """Tells whether the files below a folder are one table: numbered parts of one name, or in folders KEY=VALUE."""
    if any("=" in part for path in inside for part in path.relative_to(folder).parts[:-1]):
        return True
    names = [_stem(path) for path in inside]
    found = {(part[1] if (part := PART.match(stem)) else stem, ending) for stem, ending in names}
    return folder.suffix in (".parquet", ".csv") or (len(found) == 1 and all(path.parent == folder for path in inside))


def _stem(path: Path) -> tuple[str, str]:
    """Returns (name without endings, endings), as of ("orders", ".csv.gz")."""
    name = path.name
    packed = next((ending for ending in PACKED if name.lower().endswith(ending)), "")
    plain = name[: len(name) - len(packed)] if packed else name
    stem = plain.rpartition(".")[0] or plain
    return stem, name[len(stem) :]


def plain_name(text: str) -> str:
    """Returns a name that a pipeline file can have, with _ in place of other letters."""
    return OTHER_LETTERS.sub("_", text).strip("_-") or "table"


def _free(name: str, taken: list[FoundTable]) -> str:
    """Returns the plain name, or with a number if another table has it."""
    plain, names = plain_name(name), {each.name for each in taken}
    return next(each for each in chain([plain], (f"{plain}_{n}" for n in count(2))) if each not in names)
