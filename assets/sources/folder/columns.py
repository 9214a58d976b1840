"""What the columns of a table hold, counted over all its rows: kind, gaps, different values, range, and an example."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from graphmill.assets.sources.readers.duck import literal
from graphmill.assets.sources.readers.table_files import INTEGERS, NUMBERS, TableFiles
from graphmill.kernels.errors import one_line

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
