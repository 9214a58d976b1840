"""Tables in Parquet or text: the files of a table, their columns, and their rows as NumPy batches.

Files are read one after the other in the order of their names, so that a row's number is known without storing it and errors can name their
place. Rows are counted from 0 in each file, without comments and header.

Text files (assets/sources/readers/text_layout.py) use `"` for quotes, and are read strictly: every row has the fields of the first. All
columns are text at first; a column that has to hold numbers is converted as the graph needs it, and any other value is an error. (DuckDB by
itself rounds 1.5 to the id 2.)

A column that a user names and that no file has may stand in the names of the folders, as KEY=VALUE: Hive and Spark write it there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from graphmill.assets.sources.readers.arrow_stream import Column
from graphmill.assets.sources.readers.column_digests import top_columns
from graphmill.assets.sources.readers.duck import (
    DECIMAL_COMMA,
    DECIMAL_POINT,
    FIX_FILE,
    Duck,
    literal,
    no_number,
    path_literal,
    quoted,
)
from graphmill.assets.sources.readers.edge_shapes import refuse_other_shapes
from graphmill.assets.sources.readers.part_files import expand, file_kind, folder_columns
from graphmill.assets.sources.readers.separators import NUMBER
from graphmill.assets.sources.readers.text_layout import (
    TextForm,
    TextLayout,
    read_layout,
    refuse_counted,
    refuse_equal_names,
    refuse_some_headers,
)
from graphmill.kernels.errors import InputError, did_you_mean, one_line

INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
NUMBERS = (*INTEGERS, "UBIGINT", "HUGEINT", "UHUGEINT", "FLOAT", "DOUBLE", "BOOLEAN")
ROW_NUMBER = re.compile(r"Unnamed: \d+|__index_level_\d+__")
"""Names that pandas gives to a column without a name, which holds the numbers or names of rows."""
MOST_DIFFERENCES = 5
"""Most columns that are named because some files lack them."""
BIGINT = re.compile(r"0|-?[1-9]\d{0,18}")
WHOLE_NUMBER = re.compile(r"0|-?[1-9]\d{0,17}")
CODE = re.compile(r"[+-]?0\d")
"""The beginning of digits that are a code, such as 007, and no number."""


@dataclass(frozen=True)
class TableRows:
    """A batch: rows `first` to `first + count - 1` of one file, which begin at row `start` of the whole table."""

    file: int
    first: int
    start: int
    count: int
    columns: list[Column]

    def locate(self, index: int) -> tuple[int, int]:
        """Returns (file, row in it) of a row of the batch."""
        return self.file, self.first + index


class TableFiles:
    """The files of one table.

    Args:
        patterns: files, folders of part files, or patterns.
        key: key of [graph] that names them, or `nodes.NAME` for a table of it, for errors.
        form: what is known about text files.
        taken: column -> the key that names it; no pattern of features means such a column.

    Attributes:
        paths: the files, sorted within each pattern. Empty text files beside a `_SUCCESS` are left out.
        columns: name -> SQL type, of the first file; all columns of a text file are VARCHAR.
        is_csv: whether the files are text.

    Raises:
        InputError: a pattern names no file, formats are mixed, or a file has no readable header.
    """

    def __init__(
        self,
        duck: Duck,
        patterns: Sequence[Path],
        key: str,
        form: TextForm | None = None,
        taken: Mapping[str, str] | None = None,
    ):
        self.duck, self.key, self.form, self.taken = duck, key, form or TextForm(), dict(taken or {})
        self.paths = expand(patterns, key)
        if not self.paths:
            raise InputError(f"{key} names no file", "name a file, a folder or a pattern")
        kinds = {file_kind(path) for path in self.paths}
        if len(kinds) > 1:
            raise InputError(f"{key} names Parquet and text files", "give files of one format")
        self.is_csv = kinds == {"csv"}
        self.layouts: list[TextLayout] = []
        self._schemas = self._text_schemas() if self.is_csv else [*map(self._schema, self.paths)]
        self.columns = self._schemas[0]
        numbered = (name for name in self.columns if ROW_NUMBER.fullmatch(name) or self._is_unnamed(name))
        self.taken = {**dict.fromkeys(numbered, "number of the row"), **self.taken}
        self._from_folders: list[str] = []
        if self.is_csv and self.form.header is None:
            refuse_some_headers(self.paths, self.layouts, self.section)
            if key.partition(".")[0] == "edges":
                refuse_other_shapes(self)
            refuse_counted(self.paths[0], self.layouts, self.section)

    @property
    def section(self) -> str:
        """The table of the pipeline file with the keys of these files, for remedies."""
        return self.form.section

    @cached_property
    def folder_types(self) -> dict[str, str]:
        """Name -> SQL type of the columns that the folders' names have and the files lack: of text files VARCHAR, else also numbers."""
        given = [folder_columns(path) for path in self.paths]
        lacking = {name.lower() for schema in self._schemas for name in schema}
        common = [name for name in given[0] if all(name in each for each in given) and name.lower() not in lacking]
        return {name: "VARCHAR" if self.is_csv else _type_of([each[name] for each in given]) for name in common}

    def require(self, role: str, name: str) -> str:
        """Returns the SQL type of a column that plays a role, after finding it in every file with that type, or in the folders' names.

        Raises:
            InputError: a file lacks the column (with the nearest name), or has it with another type.
        """
        if name in self.folder_types:
            if name not in self._from_folders:
                self._from_folders.append(name)
            return self.folder_types[name]
        for number, (path, schema) in enumerate(zip(self.paths, self._schemas, strict=True)):
            if name not in schema:
                raise self._lacks(number, role, name)
            if schema[name] != self.columns[name]:
                first = f"{self.columns[name]} in {self.paths[0].name}"
                problem = f"{path}: column '{name}' is {schema[name]}, but {first}"
                raise InputError(problem, "write all files with one type")
        return self.columns[name]

    def _lacks(self, number: int, role: str, name: str) -> InputError:
        """Returns the error of a file without a column; the remedy fits the layout of a text file."""
        path, schema = self.paths[number], self._schemas[number]
        has = f"{did_you_mean(name, schema, chr(39))}; it has {one_line(', '.join(list(schema)[:20]))}"
        remedy = f"set {role} in {self.section}, or rename the column"
        if role == "features" and self.section == "[graph]":
            remedy = "correct `features` in [graph], or `columns` of the [features] table that names it, or rename the column"
        if any(name in folder_columns(each) for each in self.paths):
            has += f"; the names of some folders have '{name}', but not those above all files"
        if self.is_csv:
            layout = self.layouts[number]
            shown = ", ".join(layout.first_line[:20])
            if unsplit := layout.unsplit():
                remedy = f"set {unsplit} in {self.section} if it separates the fields, or {remedy}"
            elif layout.comment and name.startswith(layout.comment):
                remedy = (
                    f'set comment = "" in {self.section}: lines that begin with {layout.comment} are taken for comments'
                )
            elif not layout.header:
                has += f"; its first line, {shown}, begins with a number, and so it is read as a row without names"
                remedy = f"leave {role} out or name one of these; if the line is a header, set header = true in {self.section}"
            else:
                remedy += "; if the first line is a row, set header = false; if it is split wrongly, set delimiter"
                if sign := re.match(r"[^\w\s\"'.+-]{1,8}", layout.first_line[0]):
                    remedy += f"; if it is a comment, set comment = {json.dumps(sign[0])}"
        return InputError(f"{path}: has no column '{name}'{has}", remedy)

    def integer(self, role: str, name: str) -> str:
        """Returns the expression of a column of whole numbers as BIGINT, null for a CSV field that is not one.

        Raises:
            InputError: the column is missing, or has another type.
        """
        kind, column = self.require(role, name), self.field(name)
        if self.is_csv:
            return (
                f"CASE WHEN CAST(TRY_CAST({column} AS BIGINT) AS VARCHAR) = {column} THEN CAST({column} AS BIGINT) END"
            )
        if kind not in INTEGERS:
            problem = f"{self.paths[0]}: column '{name}' is {kind}, not whole numbers"
            raise InputError(problem, f"cast it, or set {role}")
        return f"CAST({column} AS BIGINT)"

    def field(self, name: str) -> str:
        """Returns the expression of a column as it is stored; a CSV field without blanks around it, null if nothing is left."""
        return f"nullif(trim({quoted(name)}, ' ' || chr(9)), '')" if self.is_csv else quoted(name)

    def number(self, role: str, name: str, sql_type: str) -> str:
        """Returns the expression of a column of numbers as FLOAT or DOUBLE, null for a CSV field that is not one.

        Raises:
            InputError: the column is missing, or does not hold numbers.
        """
        kind = self.require(role, name)
        if not self.is_csv and kind not in NUMBERS and not kind.startswith("DECIMAL"):
            raise InputError(f"{self.paths[0]}: column '{name}' is {kind}, not numbers", f"cast it, or set {role}")
        return f"{'TRY_CAST' if self.is_csv else 'CAST'}({quoted(name)} AS {sql_type})"

    def select(self, expressions: Sequence[str]) -> Iterator[TableRows]:
        """Yields the batches of all files in order."""
        start = 0
        for file in range(len(self.paths)):
            rows = 0
            for batch in self.select_file(file, expressions, start):
                yield batch
                rows = batch.first + batch.count
            start += rows

    def select_file(self, file: int, expressions: Sequence[str], start: int, known: int = 0) -> Iterator[TableRows]:
        """Yields the batches of one file.

        Args:
            start: row of the whole table at which the file begins.
            known: number of its first rows that are left out; only columns without lists can be cut.
        """
        first = 0
        sql = f"SELECT {', '.join(expressions)} FROM {self.source(file)}"
        for columns in self.duck.batches(sql, str(self.paths[file])):
            column = columns[0]
            count = len(column.values) if column.lengths is None else len(column.lengths)
            cut = max(0, min(count, known - first))
            if cut < count:
                left = [each.after(cut) for each in columns] if cut else columns
                yield TableRows(file, first + cut, start + first + cut, count - cut, left)
            first += count

    def source(self, number: int) -> str:
        """Returns the text after FROM for one file."""
        path = self.paths[number]
        table = self.layouts[number].query(self.duck, path) if self.is_csv else _parquet(path)
        if not self._from_folders:
            return table
        given = folder_columns(path)
        added = [
            f"CAST({'NULL' if given[name] is None else literal(str(given[name]))} AS {self.type_of(name)}) AS {quoted(name)}"
            for name in self._from_folders
        ]
        return f"(SELECT *, {', '.join(added)} FROM {table})"

    def type_of(self, name: str) -> str:
        """Returns the SQL type of a column of the files or of the folders' names."""
        return self.columns[name] if name in self.columns else self.folder_types[name]

    def union(self, *expressions: str, distinct: bool = True) -> str:
        """Returns the query for the values of expressions in all files, as a column `v`: each value once, or all in order."""
        parts = [f"SELECT {each} AS v FROM {self.source(n)}" for n in range(len(self.paths)) for each in expressions]
        everything = " UNION ALL ".join(parts)
        return f"SELECT DISTINCT v FROM ({everything})" if distinct else everything

    def count(self) -> int:
        """Returns the number of rows; a CSV file has to be read for it."""
        return sum(self.counts())

    def counts(self) -> list[int]:
        """Returns the number of rows of each file; a CSV file has to be read for it."""
        counts = [self.duck.rows(f"SELECT count(*) FROM {self.source(n)}", str(p)) for n, p in enumerate(self.paths)]
        return [int(count[0][0]) for count in counts]

    def first_gap(self, name: str) -> tuple[int, int] | None:
        """Returns (file, row in it) of the first gap in a column of Parquet files whose own statistics count gaps; None without one."""
        for number, gaps in enumerate(self._gaps):
            if gaps.get(name):
                found = f"SELECT min(file_row_number) FROM {_parquet(self.paths[number], numbered=True)} WHERE {quoted(name)} IS NULL"
                row = self.duck.rows(found, str(self.paths[number]))[0][0]
                return None if row is None else (number, int(row))
        return None

    @cached_property
    def _gaps(self) -> list[dict[str, int]]:
        """Name of a column -> number of gaps, of each file, as far as its statistics tell; none of text files."""
        sql = "SELECT path_in_schema, sum(stats_null_count) FROM parquet_metadata({}) GROUP BY path_in_schema"
        files = () if self.is_csv else self.paths
        found = (self.duck.rows(sql.format(path_literal(path)), str(path)) for path in files)
        return [{name: int(gaps or 0) for name, gaps in rows} for rows in found]

    def place(self, file: int, row: int) -> str:
        """Returns the place of a row in words, for errors."""
        path = self.paths[file]
        line = f" (line {self.layouts[file].line_of(self.duck, path, row)})" if self.is_csv else ""
        return f"{path}: row {row}{line}"

    def value(self, file: int, row: int, name: str) -> object:
        """Returns the value of a row's column; for errors, since it reads up to there."""
        sql = f"SELECT {quoted(name)} FROM {self.source(file)} LIMIT 1 OFFSET {row}"
        return self.duck.rows(sql, str(self.paths[file]))[0][0]

    def refusal(self, file: int, row: int, name: str, why: str, remedy: str = FIX_FILE) -> InputError:
        """Returns the error of a field that is empty, or holds a wrong value; the text of `why` follows the value."""
        held = self.value(file, row, name)
        remedy = DECIMAL_POINT if self.is_csv and DECIMAL_COMMA.fullmatch(str(held).strip()) else remedy
        what = "is empty" if held is None else f"holds '{held}', {why}"
        return InputError(f"{self.place(file, row)}: column '{name}' {what}", remedy)

    def shared_columns(self) -> dict[str, str]:
        """Returns name -> SQL type of the columns that all files have with one type, in the order of the first file."""
        return {n: kind for n, kind in self.columns.items() if all(schema.get(n) == kind for schema in self._schemas)}

    def differences(self) -> list[str]:
        """Returns a line for each column that some files have and others lack: (name, in how many files, one that differs)."""
        names = dict.fromkeys(name for schema in self._schemas for name in schema)
        found = []
        for name in names:
            having = [path for path, schema in zip(self.paths, self._schemas, strict=True) if name in schema]
            if len(having) < len(self.paths):
                one = next(path for path in self.paths if path not in having)
                found.append(f"column {name!r} is in {len(having)} of {len(self.paths)} files: {one.name} lacks it")
        return found[:MOST_DIFFERENCES]

    def no_number(self, file: int, row: int, name: str) -> InputError:
        """Returns the error of a field that is empty, or holds a text that is not a number."""
        held = self.value(file, row, name)
        return no_number(self.place(file, row), name, None if held is None else str(held))

    def begins_with_integer(self, name: str) -> bool:
        """Tells whether the first value of a column of text is a whole number; later values are checked when they are read."""
        if name in self._from_folders:
            return _type_of([folder_columns(path)[name] for path in self.paths]) == "BIGINT"
        for layout in self.layouts:
            if layout.first_row is not None:  # a file without rows does not tell
                fields = dict(zip(layout.names, layout.first_row, strict=False))
                text = fields.get(name, "").strip(" \t")
                return BIGINT.fullmatch(text) is not None and -(2**63) <= int(text) < 2**63
        return False

    def _is_unnamed(self, name: str) -> bool:
        """Tells whether the line of names has none for a column of text."""
        place = list(self.columns).index(name)
        return bool(self.layouts) and self.layouts[0].header and not self.layouts[0].first_line[place].strip()

    def _text_schemas(self) -> list[dict[str, str]]:
        """Finds the layouts of the files; an empty one is an error unless what wrote the folder says that all is well."""
        kept = []
        for path in self.paths:
            layout = read_layout(self.duck, path, self.form)
            if layout is None:
                if len(self.paths) > 1 and (path.parent / "_SUCCESS").exists():
                    continue
                raise InputError(f"{path}: the file is empty", "give a file with a row, or leave it out")
            kept.append(path)
            self.layouts.append(layout)
        if not kept:
            raise InputError(f"{self.paths[0]}: the file is empty, as are all files beside it", "give a file with rows")
        self.paths = kept
        return [dict.fromkeys(layout.names, "VARCHAR") for layout in self.layouts]

    def _schema(self, path: Path) -> dict[str, str]:
        found = self.duck.rows(f"DESCRIBE SELECT * FROM {_parquet(path)}", str(path))
        _refuse_renamed(self.duck, path, [name for name, *_ in found])
        return {name: kind for name, kind, *_ in found}


def _type_of(values: Sequence[str | None]) -> str:
    """Returns the SQL type of the values in folders' names."""
    given = [value for value in values if value is not None]
    if given and all(WHOLE_NUMBER.fullmatch(value) for value in given):
        return "BIGINT"
    numbers = given and all(NUMBER.fullmatch(value) and not CODE.match(value) for value in given)
    return "DOUBLE" if numbers else "VARCHAR"


def _parquet(path: Path, *, numbered: bool = False) -> str:
    """Returns a Parquet file as a table, if wanted with the column file_row_number; folders called KEY=VALUE add no column."""
    return f"read_parquet({path_literal(path)}, hive_partitioning = false{', file_row_number = true' * numbered})"


def _refuse_renamed(duck: Duck, path: Path, names: Sequence[str]) -> None:
    """Refuses columns that DuckDB renames because they have one name, or names that differ only in case."""
    if len({name.lower() for name in names}) == len(names) and not any("_" in name for name in names):
        return
    found = top_columns(duck, path)
    refuse_equal_names(path, found)
    if renamed := [name for name in names if name not in found]:
        twice = re.sub(r"_\d+$", "", renamed[0])
        raise InputError(f"{path}: has the column '{twice}' twice", "write the table with distinct names of columns")
