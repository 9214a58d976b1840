"""The tables of a folder, and what their columns hold, counted over all rows: kind, gaps, different values, range, and an example.

Files whose names differ by a number alone are one table, and so are the part files of a folder below it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal

from graphmill.assets.sources.readers.duck import Duck, literal
from graphmill.assets.sources.readers.packing import PACKED
from graphmill.assets.sources.readers.part_files import looks_like_table, part_files
from graphmill.assets.sources.readers.table_files import INTEGERS, NUMBERS, TableFiles
from graphmill.assets.sources.readers.text_layout import TextForm
from graphmill.assets.storage.names.patterns import in_order
from graphmill.kernels.errors import InputError, one_line

Kind = Literal["whole", "number", "truth", "text", "time", "list", "other"]
WHOLE = (*INTEGERS, "UBIGINT", "HUGEINT", "UHUGEINT")
TEXTS = ("VARCHAR", "UUID", "ENUM")
TIMES = ("DATE", "TIME", "INTERVAL")
LONGEST_EXAMPLE = 24
TRUTHS = ("true", "false", "yes", "no", "t", "f", "y", "n")
"""Texts of truth values, in small letters."""
NUMBERED = re.compile(r"(.*\D)\d+")
SKEWED = 2.0
"""Ratio of mean and median from which numbers that are 0 or more are taken for amounts; that of an exponential distribution is 1.44."""
ALIKE = 8
"""Columns from which those that differ by a number at their end, such as f0 to f127, are one `f*`."""


@dataclass(frozen=True)
class ColumnProfile:
    """One column over all files of a table, or several that differ by a number at their end.

    Attributes:
        name: its name; a pattern, such as "f*", of several.
        kind: what its values are, of a text file those that all of its fields can be read as.
        type: SQL type in the first file.
        rows, gaps: number of values, and of those that are missing.
        distinct: number of different values, within a few percent.
        low, high: smallest and largest value, as text; lengths of lists; "" of a column without values.
        example: a value that is there, shortened; "" without one.
        skewed: whether all values are 0 or more, and their mean is far above their median.
        first: name of the first of several columns, else `name`.
    """

    name: str
    kind: Kind
    type: str
    rows: int
    gaps: int
    distinct: int
    low: str
    high: str
    example: str
    skewed: bool
    first: str

    @property
    def numeric(self) -> bool:
        """Whether a model can read the values as they are: numbers, truth values of Parquet, and lists of numbers of one length."""
        if self.kind == "list":
            return self.low == self.high != ""
        return self.kind in ("whole", "number") or (self.kind == "truth" and self.type == "BOOLEAN")

    def values(self) -> dict[str, Any]:
        """Returns all of it as JSON has it."""
        return {name: value for name, value in asdict(self).items() if name != "first"}


def profile_columns(table: TableFiles, apart: Collection[str] = ()) -> list[ColumnProfile]:
    """Returns a profile of each column that all files have with one type, in the order of the first file.

    Args:
        apart: columns that are not one with others of a name that differs by a number.

    Raises:
        InputError: the files cannot be read.
    """
    columns = table.shared_columns()
    groups = {name: [name] for name in columns if name in apart}
    groups |= _groups({name: kind for name, kind in columns.items() if name not in apart})
    single = [names[0] for names in groups.values() if len(names) == 1]
    found = dict(zip(single, _profiles(table, single, [table.field(name) for name in single]), strict=True))
    for pattern, names in groups.items():
        if len(names) > 1:
            values = f"unnest([{', '.join(table.field(name) for name in names)}])"
            (one,) = _profiles(table, names[:1], [values], pattern)
            found[names[0]] = one
    return [found[name] for name in columns if name in found]


def _groups(columns: Mapping[str, str]) -> dict[str, list[str]]:
    """Returns pattern or name -> names: columns of one type that differ by a number at their end and that the pattern alone means."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, kind in columns.items():
        if found := NUMBERED.fullmatch(name):
            alike.setdefault((found[1], kind), []).append(name)
    patterns = {
        name: f"{prefix}*"
        for (prefix, _), names in alike.items()
        if len(names) >= ALIKE and len(names) == sum(name.startswith(prefix) for name in columns) and "*" not in prefix
        for name in names
    }
    groups: dict[str, list[str]] = {}
    for name in columns:
        groups.setdefault(patterns.get(name, name), []).append(name)
    return groups


def _profiles(table: TableFiles, names: Sequence[str], fields: Sequence[str], shown: str = "") -> list[ColumnProfile]:
    """Returns the profiles of expressions, which have the types of the columns `names`; `shown` is another name for the only one."""
    if not names:
        return []
    columns = ", ".join(f"{field} AS c{place}" for place, field in enumerate(fields))
    rows = " UNION ALL ".join(f"SELECT {columns} FROM {table.source(number)}" for number in range(len(table.paths)))
    kinds = [table.columns[name] for name in names]
    wanted = [sql for place, kind in enumerate(kinds) for sql in _counts(f"c{place}", kind)]
    total, *found = table.duck.rows(f"SELECT count(*), {', '.join(wanted)} FROM ({rows})", str(table.paths[0]))[0]
    width = len(found) // len(names)
    return [
        _profile(shown or name, name, kind, int(total), found[place * width : (place + 1) * width])
        for place, (name, kind) in enumerate(zip(names, kinds, strict=True))
    ]


def _counts(column: str, kind: str) -> list[str]:
    """Returns the expressions of one column: values, different ones, smallest, largest, an example, whether it is skewed, what texts
    can be read as, and the smallest and largest of these whole and other numbers."""
    ordered = f"len({column})" if kind.endswith("]") else "NULL" if kind.startswith(("STRUCT", "MAP")) else column
    truths, number = ", ".join(map(literal, TRUTHS)), f"TRY_CAST({column} AS DOUBLE)"
    middle = f"approx_quantile({number}, 0.5) FILTER (isfinite({number}))"
    skewed = f"min({number}) >= 0 AND avg({number}) FILTER (isfinite({number})) > {SKEWED} * {middle}"
    ranges = [
        f"CAST({end}(TRY_CAST({column} AS {to})) AS VARCHAR)" for to in ("BIGINT", "DOUBLE") for end in ("min", "max")
    ]
    read = [
        f"regexp_full_match({column}, '0|-?[1-9][0-9]{{0,17}}')",
        f"{number} IS NOT NULL",
        f"lower({column}) IN ({truths})",
        f"TRY_CAST({column} AS TIMESTAMP) IS NOT NULL",
    ]
    return [
        f"count({column})", f"approx_count_distinct({column})", f"CAST(min({ordered}) AS VARCHAR)",
        f"CAST(max({ordered}) AS VARCHAR)", f"any_value(CAST({column} AS VARCHAR))",
        skewed if kind == "VARCHAR" or _kind(kind) in ("whole", "number") else "NULL",
        *(f"bool_and({each}) FILTER ({column} IS NOT NULL)" if kind == "VARCHAR" else "NULL" for each in read),
        *(each if kind == "VARCHAR" else "NULL" for each in ranges),
    ]  # fmt: skip


def _profile(name: str, first: str, sql_type: str, rows: int, found: Sequence[Any]) -> ColumnProfile:
    present, distinct, low, high, example, skewed, *read = found
    kinds: tuple[Kind, ...] = ("whole", "number", "truth", "time")
    read_as: list[Kind] = [kind for kind, fits in zip(kinds, read[:4], strict=True) if fits]
    of_text: Kind = read_as[0] if read_as else "text"
    if of_text in ("whole", "number"):  # the order of texts is another one than that of the numbers
        low, high = read[4:6] if of_text == "whole" else read[6:8]
    shown = "" if example is None else one_line(str(example))
    return ColumnProfile(
        name=name,
        kind=of_text if sql_type == "VARCHAR" else _kind(sql_type),
        type=sql_type,
        rows=rows,
        gaps=rows - int(present),
        distinct=min(int(distinct), int(present)),
        low="" if low is None else one_line(str(low)),
        high="" if high is None else one_line(str(high)),
        example=shown if len(shown) <= LONGEST_EXAMPLE else f"{shown[: LONGEST_EXAMPLE - 3]}...",
        skewed=bool(skewed),
        first=first,
    )


def _kind(sql_type: str) -> Kind:
    """Returns what the values of a type are that is not text of any content."""
    if sql_type.endswith("]"):
        return "list" if sql_type.partition("[")[0] in NUMBERS and sql_type.count("[") == 1 else "other"
    if sql_type == "BOOLEAN":
        return "truth"
    if sql_type in WHOLE:
        return "whole"
    if sql_type in NUMBERS or sql_type.startswith("DECIMAL"):
        return "number"
    if sql_type.startswith(TEXTS):
        return "text"
    return "time" if sql_type.startswith(TIMES) else "other"


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
