"""The features in the columns of a table: columns of numbers and of lists, side by side in the configured order."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from graphmill.assets.sources.features.blocks import FeatureBlock, row_ranges
from graphmill.assets.sources.features.types import WHOLE, Rounded
from graphmill.assets.sources.readers.arrow_stream import Column
from graphmill.assets.sources.readers.duck import FIX_FILE, quoted
from graphmill.assets.sources.readers.table_files import NUMBERS, TableFiles, TableRows
from graphmill.assets.sources.splits import part_meant
from graphmill.kernels.errors import Attempts, InputError
from graphmill.kernels.types import Array

SQL_TYPES = {"TINYINT": np.int8, "UTINYINT": np.uint8, "FLOAT": np.float32, "DOUBLE": np.float64}
"""Feature types that stay; BOOLEAN becomes UTINYINT, other numbers and those of CSV files FLOAT."""


OTHERWISE = re.compile(
    "(?P<labels>y|labels?|targets?|class|classes|ground_?truth)|(?P<splits>splits?|folds?|partition|subset)"
    r"|(?P<ids>id|ids|uuid|\w+_ids?|ids?_\w+)|(?P<times>time|date|datetime|timestamp|\w+_(at|time|date|timestamp))"
)
"""Names, in small letters, of columns that are rarely features."""


def feature_columns(table: TableFiles, features: str | Sequence[str]) -> list[str]:
    """Returns the names of the feature columns in their order: those of a pattern in the order of the table.

    A pattern leaves out the columns that other keys name, such as the label: only their own names make them features.

    Args:
        features: a name, a pattern, or a list of both; a column that a list with a pattern means several times is one.

    Raises:
        InputError: a column is missing, or a pattern fits none.
    """
    listed = [features] if isinstance(features, str) else list(features)
    chosen: list[str] = []
    for each in listed:
        fitting = [name for name in _fitting(table, each) if name == each or name not in table.taken]
        if not fitting:
            raise _none_fits(table, each)
        chosen += fitting
    if any(_is_pattern(table, each) for each in listed):
        chosen = list(dict.fromkeys(chosen))
    if twice := next((name for name in chosen if chosen.count(name) > 1), ""):
        raise InputError(f"{table.paths[0]}: features name column '{twice}' twice", "name it once")
    for name in chosen:
        table.require("features", name)
    return chosen


def fitting_columns(table: TableFiles, asked: str | Sequence[str], key: str) -> list[str]:
    """Returns the columns that a name, a pattern, or a list of both means, each once, those that other keys name among them.

    Raises:
        InputError: a column is missing, or a pattern fits none.
    """
    listed = [asked] if isinstance(asked, str) else list(asked)
    found = [(each, _fitting(table, each)) for each in listed]
    for pattern, names in found:
        if not names:
            problem = (
                f"{table.paths[0]}: no column fits {key} = {pattern!r}; it has {', '.join(list(table.columns)[:20])}"
            )
            raise InputError(problem, f"correct `{key}`")
    chosen = list(dict.fromkeys(name for _, names in found for name in names))
    for name in chosen:
        table.require(key, name)
    return chosen


def left_out(table: TableFiles, features: str | Sequence[str]) -> list[str]:
    """Returns the columns that patterns of features fit, and that are none since another key names them."""
    listed = [features] if isinstance(features, str) else list(features)
    fitting = (name for each in listed if _is_pattern(table, each) for name in _fitting(table, each))
    return [name for name in dict.fromkeys(fitting) if name in table.taken and name not in listed]


def named_twice(table: TableFiles, names: Sequence[str]) -> list[str]:
    """Returns a phrase for each feature column that another key names, too: a model reads it as a feature."""
    return [f"column '{name}' is also the {table.taken[name]}" for name in names if name in table.taken]


def called_otherwise(table: TableFiles, features: str | Sequence[str] | None) -> list[str]:
    """Returns a phrase for each column that only a pattern of features takes, and whose name says that it is something else."""
    listed = [features] if isinstance(features, str) else list(features or ())
    taken = dict.fromkeys(name for each in listed if _is_pattern(table, each) for name in _fitting(table, each))
    names = [name for name in taken if name not in listed and name not in table.taken]
    said = {name: "a part of the split" if part_meant(name) else OTHERWISE.fullmatch(name.lower()) for name in names}
    roles = {name: found if isinstance(found, str) else found.lastgroup for name, found in said.items() if found}
    return [f"column '{name}', which a pattern takes, has a name of {role}" for name, role in roles.items()]


def _is_pattern(table: TableFiles, text: str) -> bool:
    return "*" in text and text not in table.columns


def _fitting(table: TableFiles, text: str) -> list[str]:
    """Returns the columns that a name or a pattern means, of a pattern those that other keys name as well."""
    return [name for name in table.columns if fnmatch.fnmatchcase(name, text)] if _is_pattern(table, text) else [text]


def _none_fits(table: TableFiles, pattern: str) -> InputError:
    left = [f"'{name}', the {table.taken[name]}" for name in _fitting(table, pattern)]
    has = f"only {'; '.join(left)}" if left else f"it has {', '.join(list(table.columns)[:20])}"
    return InputError(f"{table.paths[0]}: no column fits features = {pattern!r}; {has}", "correct `features`")


def feature_type(table: TableFiles, names: Sequence[str]) -> str:
    """Returns the SQL type of the values: that of all columns, or the narrowest floating type among them.

    Raises:
        InputError: a column does not hold numbers.
    """
    kinds = []
    for name in names:
        given = table.type_of(name)
        kind, _, length = given.partition("[")
        number = table.is_csv or kind in NUMBERS or kind.startswith("DECIMAL")
        if not number or "[" in length:
            remedy = f'give it an encoder in [features]: encode = {{ "{name}" = "auto" }}, or correct `features`'
            raise InputError(f"{table.paths[0]}: column '{name}' is {given}, not numbers", remedy)
        kinds.append("FLOAT" if table.is_csv else "UTINYINT" if kind == "BOOLEAN" else kind)
    value = kinds[0] if len(set(kinds)) == 1 else "DOUBLE" if "DOUBLE" in kinds else "FLOAT"
    return value if value in SQL_TYPES else "DOUBLE" if value.startswith("DECIMAL") else "FLOAT"


def require_numbers(table: TableFiles, features: str) -> None:
    """Refuses columns that a name or a pattern means and that are not numbers, or in which the statistics of Parquet files count gaps.

    Raises:
        InputError: all of them, or a column is missing.
    """
    attempts = Attempts()
    for name in feature_columns(table, features):
        kind = attempts(feature_type, table, [name])
        if kind is not None and not lists_of(table, name):
            attempts(_require_filled, table, name)
    attempts.settle()


def _require_filled(table: TableFiles, name: str) -> None:
    if gap := table.first_gap(name):
        fill = f'encode = {{ "{name}" = {{ encoder = "standard", missing = "flag" }} }}'
        problem = table.no_number(*gap, name).problem
        raise InputError(problem, f"give it an encoder in [features]: {fill}, or leave it out")


def lists_of(table: TableFiles, name: str) -> str:
    """Returns the end of the type of a column of lists, "[]" or "[64]"; "" for a column of numbers."""
    lists = table.type_of(name).partition("[")[2]
    return f"[{lists}" if lists else ""


def column_widths(table: TableFiles, names: Sequence[str]) -> list[int]:
    """Returns the number of feature columns of each column of the table: the length of its first list, or 1."""
    return [_list_width(table, name) if lists_of(table, name) else 1 for name in names]


def columns_to_check(table: TableFiles, names: Sequence[str]) -> list[str]:
    """Returns those of the feature columns that may hold wrong values: lists, and numbers of which one is missing or not finite."""
    numbers = [name for name in names if not lists_of(table, name)]
    kind = "FLOAT" if table.is_csv else "DOUBLE"
    wrong = ", ".join(
        f"bool_or(NOT coalesce(isfinite(TRY_CAST({table.field(name)} AS {kind})), false))" for name in numbers
    )
    suspect = {*names} - {*numbers}
    for number, path in enumerate(table.paths if numbers else ()):
        (row,) = table.duck.rows(f"SELECT {wrong} FROM {table.source(number)}", str(path))
        suspect |= {name for name, found in zip(numbers, row, strict=True) if found}
    return [name for name in names if name in suspect]


def table_block(
    table: TableFiles,
    names: Sequence[str],
    first: int,
    num_rows: int,
    node_of_row: Array | None = None,
    features: str | Sequence[str] | None = None,
) -> FeatureBlock:
    """Returns the features in the columns `names`, side by side, as a block; see `FeatureBlock` for the other arguments.

    Args:
        features: the key that means these columns, whose patterns may take columns along; None without patterns.

    Raises:
        InputError: the columns do not hold numbers. The slices raise it for values that are missing or not finite.
    """
    values = _Values(table, names)
    return FeatureBlock(
        named_twice=[*named_twice(table, names), *called_otherwise(table, features)],
        column=lambda column: f"column '{values.name(column)}'",
        recount=lambda columns: rounded_values(table, [names[int(i)] for i in np.unique(values.number(columns))]),
        where=f"{table.paths[0]}: {names[0] if len(names) == 1 else f'{len(names)} columns'}",
        first=first,
        num_rows=num_rows,
        width=sum(values.widths),
        dtype=np.dtype(SQL_TYPES[values.type]),
        slices=values.slices,
        place=values.place,
        held=values.held if table.is_csv else None,
        node_of_row=node_of_row,
    )


class _Values:
    """The values of some columns of a table, side by side, slice by slice, and where each of them stands in the files."""

    def __init__(self, table: TableFiles, names: Sequence[str]):
        self.table, self.names, self.type = table, names, feature_type(table, names)
        self.widths = column_widths(table, names)
        self._ends = np.cumsum(self.widths)
        self._starts: list[tuple[int, int]] = []  # (first row of the table, file)

    def slices(self) -> Iterator[tuple[int, Array]]:
        """Yields (first row, values) of each slice of the rows."""
        table, names, starts = self.table, self.names, self._starts
        cast = "TRY_CAST" if table.is_csv else "CAST"
        for rows in table.select([f"{cast}({quoted(name)} AS {self.type}{lists_of(table, name)})" for name in names]):
            if not starts or starts[-1][1] != rows.file:
                starts.append((rows.start - rows.first, rows.file))
            refuse_ragged(table, rows, names, self.widths)
            for low, high in row_ranges(rows.count, sum(self.widths) * 8):
                part = slice_rows(rows, low, high, self.widths)
                _refuse_empty(table, rows, low, part, names)
                yield rows.start + low, part

    def number(self, columns: Any) -> Any:
        """Returns the number of the table's column that each column of the block belongs to."""
        return np.searchsorted(self._ends, columns, side="right")

    def name(self, column: int) -> str:
        """Returns the name of the table's column that a column of the block belongs to."""
        return self.names[int(self.number(column))]

    def place(self, row: int, column: int) -> str:
        """Returns the place of a value in the files, in words."""
        number, name = int(self.number(column)), self.name(column)
        place = column - int(self._ends[number]) + self.widths[number]
        within = f"place {place} of " * bool(lists_of(self.table, name))
        return f"{self.table.place(*self._located(row))}: {within}column '{name}'"

    def held(self, row: int, column: int) -> str:
        """Returns a value as its file has it."""
        return str(self.table.value(*self._located(row), self.name(column)))

    def _located(self, row: int) -> tuple[int, int]:
        start, file = max(pair for pair in self._starts if pair[0] <= row)
        return file, row - start


def rounded_values(table: TableFiles, names: Sequence[str]) -> list[Rounded]:
    """Returns for each column the numbers beyond the whole numbers of float32, as the files have them."""
    return [_rounded(table, name) for name in names]


def _rounded(table: TableFiles, name: str) -> Rounded:
    value, nearest = "TRY_CAST(v AS DOUBLE)", "CAST(TRY_CAST(v AS FLOAT) AS DOUBLE)"
    beyond = f"abs({value}) >= {WHOLE['float32']}"
    digits = f"coalesce(TRY_CAST(v AS HUGEINT) <> TRY_CAST({nearest} AS HUGEINT), false)"  # of numbers that DOUBLE rounds, too
    whole = f"{beyond} AND {value} = floor({value}) AND ({value} <> {nearest} OR {digits})"
    broken = f"{beyond} AND {value} <> floor({value}) AND {value} <> {nearest}"
    counts, lows, highs, shown = [0, 0], [np.inf], [-np.inf], []
    for number, path in enumerate(table.paths):
        given = f"unnest({quoted(name)})" if lists_of(table, name) else table.field(name)
        wanted = (
            f"count(*) FILTER ({whole}), count(*) FILTER ({broken}), min({value}) FILTER ({beyond}), max({value}) FILTER ({beyond}), "
            f"min(CAST(v AS VARCHAR)) FILTER ({whole}), min(CAST(v AS VARCHAR)) FILTER ({broken})"
        )
        row = table.duck.rows(f"SELECT {wanted} FROM (SELECT {given} AS v FROM {table.source(number)})", str(path))[0]
        counts = [counts[0] + int(row[0]), counts[1] + int(row[1])]
        lows += [row[2]] if row[2] is not None else []
        highs += [row[3]] if row[3] is not None else []
        shown += [text for text in row[4:] if text is not None]
    return Rounded(
        column=f"column '{name}'",
        whole=counts[0],
        broken=counts[1],
        low=min(lows),
        high=max(highs),
        example=next(iter(shown), None),
    )


def _list_width(table: TableFiles, name: str) -> int:
    """Returns the length of the first list of a column, 0 if the table has no rows."""
    for number, path in enumerate(table.paths):  # a file may have no rows
        found = table.duck.rows(f"SELECT len({quoted(name)}) FROM {table.source(number)} LIMIT 1", str(path))
        if found:
            return int(found[0][0] or 0)
    return 0


def refuse_ragged(table: TableFiles, rows: TableRows, names: Sequence[str], widths: Sequence[int]) -> None:
    """Refuses lists that are missing, or longer or shorter than the first of their column."""
    for name, column, width in zip(names, rows.columns, widths, strict=True):
        if column.lengths is None:
            continue
        wrong = column.lengths != width
        if column.nulls is not None:
            wrong = wrong | column.nulls
        if wrong.any():
            index = int(np.flatnonzero(wrong)[0])
            missing = column.nulls is not None and column.nulls[index]
            what = "is empty" if missing else f"has {column.lengths[index]} values, the first list has {width}"
            raise InputError(f"{table.place(rows.file, rows.first + index)}: column '{name}' {what}", FIX_FILE)


def slice_rows(rows: TableRows, low: int, high: int, widths: Sequence[int]) -> Array:
    """Returns the rows [high - low, sum of widths] of a batch as a copy, with NaN for nulls."""
    if all(column.lengths is None for column in rows.columns):
        part = np.stack([column.values[low:high] for column in rows.columns], axis=1)
        nulls = [column.nulls for column in rows.columns]
        if any(null is not None for null in nulls):
            part = part.astype(np.result_type(part.dtype, np.float32))
            for number, null in enumerate(nulls):
                if null is not None:
                    part[null[low:high], number] = np.nan
        return part
    parts = [_columns(column, rows.count, low, high, width) for column, width in zip(rows.columns, widths, strict=True)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _columns(column: Column, count: int, low: int, high: int, width: int) -> Array:
    """Returns the rows [high - low, width] of one column, of lists or of numbers, with NaN for nulls."""
    lists = column.lengths is not None
    part = column.values.reshape(count, width)[low:high]
    nulls = column.value_nulls if lists else column.nulls
    if nulls is None or not (nulls := nulls.reshape(count, width)[low:high]).any():
        return part
    return np.where(nulls, np.nan, part)


def _refuse_empty(table: TableFiles, rows: TableRows, low: int, part: Array, names: Sequence[str]) -> None:
    """Raises InputError with the file's text for a value that is not a number; a NaN in the file is found later."""
    if any(column.lengths is not None for column in rows.columns):
        return
    if part.dtype.kind != "f" or not np.isnan(part).any():
        return
    index, place = (int(i) for i in np.argwhere(np.isnan(part))[0])
    nulls, row = rows.columns[place].nulls, rows.first + low + index
    if nulls is None or not nulls[low + index]:
        return
    raise table.no_number(rows.file, row, names[place])
