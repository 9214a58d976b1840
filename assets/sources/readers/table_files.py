"""Tables in Parquet or CSV: the files of a pattern, their columns, and their rows as NumPy batches.

Files are read one after the other in the order of their names, so that a row's number is known without storing it and errors can name their
place. Rows are counted from 0 in each file, without the header.

CSV files have a header line (or none, and columns c0, c1, ...), `"` for quotes, and are read strictly: every row has
the fields of the first. Nothing is guessed from a sample; only the name `.tsv` implies a delimiter. All columns are text at first; a column
that has to hold numbers is converted as the graph needs it, and any other value is an error. (DuckDB by itself rounds 1.5 to the id 2.)
"""

from __future__ import annotations

import csv
import glob
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from assets.sources.readers.arrow_stream import Column
from assets.sources.readers.column_digests import top_columns
from assets.sources.readers.duck import FIX_FILE, Duck, literal, path_literal, quoted
from kernels.errors import InputError, did_you_mean

INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
NUMBERS = (*INTEGERS, "UBIGINT", "HUGEINT", "UHUGEINT", "FLOAT", "DOUBLE", "BOOLEAN")
PARQUET, CSV = (".parquet", ".pq"), (".csv", ".tsv")
BIGINT = re.compile(r"0|-?[1-9]\d{0,18}")
WHOLE_NUMBER = re.compile(r"0|-?[1-9]\d{0,17}")


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
        duck: the connection.
        patterns: files or glob patterns.
        key: key of [graph] that names them, for errors.
        delimiter: separator of the fields of CSV files; None is a tab for `.tsv`, else a comma.
        header: whether CSV files begin with names; else columns are c0, c1, ...

    Attributes:
        paths: the files, sorted within each pattern.
        columns: name -> SQL type, of the first file; all columns of a CSV file are VARCHAR.

    Raises:
        InputError: a pattern names no file, formats are mixed, or a file has no readable header.
    """

    def __init__(
        self, duck: Duck, patterns: Sequence[Path], key: str, delimiter: str | None = None, *, header: bool = True
    ):
        self.duck, self.key, self.header = duck, key, header
        self.paths = expand(patterns, key)
        kinds = {file_kind(path) for path in self.paths}
        if len(kinds) > 1:
            raise InputError(f"{key} names Parquet and CSV files", "give files of one format")
        self.is_csv = kinds == {"csv"}
        self._delimiter = delimiter
        self._schemas = [self._schema(path) for path in self.paths]
        self.columns = self._schemas[0]

    def require(self, role: str, name: str) -> str:
        """Returns the SQL type of a column that plays a role, after finding it in every file with that type.

        Raises:
            InputError: a file lacks the column (with the nearest name), or has it with another type.
        """
        for path, schema in zip(self.paths, self._schemas, strict=True):
            if name not in schema:
                hint, has = did_you_mean(name, schema, "'"), ", ".join(list(schema)[:20])
                raise InputError(
                    f"{path}: has no column '{name}'{hint}; it has {has}",
                    f"set {role} in [graph], or rename the column",
                )
            if schema[name] != self.columns[name]:
                first = f"{self.columns[name]} in {self.paths[0].name}"
                raise InputError(
                    f"{path}: column '{name}' is {schema[name]}, but {first}", "write all files with one type"
                )
        return self.columns[name]

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
            raise InputError(
                f"{self.paths[0]}: column '{name}' is {kind}, not whole numbers", f"cast it, or set {role}"
            )
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
        for number, path in enumerate(self.paths):
            first = 0
            sql = f"SELECT {', '.join(expressions)} FROM {self.source(number)}"
            for columns in self.duck.batches(sql, str(path)):
                column = columns[0]
                count = len(column.values) if column.lengths is None else len(column.lengths)
                yield TableRows(number, first, start, count, columns)
                first, start = first + count, start + count

    def source(self, number: int) -> str:
        """Returns the text after FROM for one file."""
        path = self.paths[number]
        if not self.is_csv:
            return _parquet(path)
        columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in self._schemas[number])
        packed = "gzip" if path.suffix == ".gz" else "none"
        return (
            f"read_csv({path_literal(path)}, columns={{{columns}}}, auto_detect=false, header={str(self.header).lower()}, "
            f"strict_mode=true, null_padding=false, delim={literal(self.delimiter(path))}, quote='\"', escape='\"', compression='{packed}')"
        )

    def union(self, *expressions: str, distinct: bool = True) -> str:
        """Returns the query for the values of expressions in all files, as a column `v`: each value once, or all in order."""
        parts = [f"SELECT {each} AS v FROM {self.source(n)}" for n in range(len(self.paths)) for each in expressions]
        everything = " UNION ALL ".join(parts)
        return f"SELECT DISTINCT v FROM ({everything})" if distinct else everything

    def count(self) -> int:
        """Returns the number of rows; a CSV file has to be read for it."""
        counts = [self.duck.rows(f"SELECT count(*) FROM {self.source(n)}", str(p)) for n, p in enumerate(self.paths)]
        return sum(int(count[0][0]) for count in counts)

    def place(self, file: int, row: int) -> str:
        """Returns the place of a row in words, for errors."""
        return f"{self.paths[file]}: row {row}" + (f" (line {row + 1 + self.header})" if self.is_csv else "")

    def value(self, file: int, row: int, name: str) -> object:
        """Returns the value of a row's column; for errors, since it reads up to there."""
        sql = f"SELECT {quoted(name)} FROM {self.source(file)} LIMIT 1 OFFSET {row}"
        return self.duck.rows(sql, str(self.paths[file]))[0][0]

    def refusal(self, file: int, row: int, name: str, why: str, remedy: str = FIX_FILE) -> InputError:
        """Returns the error of a field that is empty, or holds a wrong value; the text of `why` follows the value."""
        held = self.value(file, row, name)
        what = "is empty" if held is None else f"holds '{held}', {why}"
        return InputError(f"{self.place(file, row)}: column '{name}' {what}", remedy)

    def begins_with_integer(self, name: str) -> bool:
        """Tells whether the first value of a CSV column is a whole number; later values are checked when they are read."""
        for path in self.paths:  # a file without rows does not tell
            with _reading_text(path) as file:
                row = next(csv.DictReader(file, delimiter=self.delimiter(path)), None)
            if row is not None:
                text = (row.get(name) or "").strip(" \t")
                return BIGINT.fullmatch(text) is not None and -(2**63) <= int(text) < 2**63
        return False

    def delimiter(self, path: Path) -> str:
        """Returns the separator of the fields of a CSV file."""
        return self._delimiter or ("\t" if ".tsv" in path.suffixes else ",")

    def _schema(self, path: Path) -> dict[str, str]:
        if file_kind(path) == "parquet":
            found = self.duck.rows(f"DESCRIBE SELECT * FROM {_parquet(path)}", str(path))
            _refuse_renamed(self.duck, path, [name for name, *_ in found])
            return {name: kind for name, kind, *_ in found}
        with _reading_text(path) as file:
            header = next(csv.reader(file, delimiter=self.delimiter(path)), [])
        if not self.header and path.stat().st_size:  # an empty first line is one empty field
            header = [f"c{column}" for column in range(len(header) or 1)]
        repeated = sorted({name for name in header if header.count(name) > 1})
        if not header or repeated or "" in header:
            what = (
                f"has the column '{repeated[0]}' twice" if repeated and repeated[0] else "lacks a name for each column"
            )
            raise InputError(f"{path}: the header line {what}", "begin the file with a line of distinct column names")
        return dict.fromkeys(header, "VARCHAR")


def _parquet(path: Path) -> str:
    """Returns a Parquet file as a table; folders called KEY=VALUE add no column."""
    return f"read_parquet({path_literal(path)}, hive_partitioning = false)"


def _refuse_renamed(duck: Duck, path: Path, names: Sequence[str]) -> None:
    """Refuses columns that DuckDB renames because they differ only in case.

    Raises:
        InputError: the table has such columns.
    """
    lower: dict[str, str] = {}
    if len({name.lower() for name in names}) == len(names) and not any("_" in name for name in names):
        return
    for name in top_columns(duck, path):
        if (other := lower.setdefault(name.lower(), name)) != name:
            raise InputError(f"{path}: columns '{other}' and '{name}' differ only in case", "rename one of them")


def expand(patterns: Sequence[Path], key: str) -> list[Path]:
    """Returns the files that patterns name: each pattern's files sorted, no file twice.

    Raises:
        InputError: a pattern names no file.
    """
    found: dict[Path, None] = {}
    for pattern in patterns:
        files = (
            [pattern] if pattern.is_file() else sorted(Path(name) for name in glob.glob(str(pattern), recursive=True))
        )
        files = [path for path in files if path.is_file()]
        if not files:
            what = "is a folder" if pattern.is_dir() else "names no file"
            raise InputError(f"{key}: {pattern} {what}", f'correct `{key}` in [graph], for example "{key}-*.parquet"')
        found |= dict.fromkeys(files)
    return list(found)


def file_kind(path: Path) -> str:
    """Returns "parquet" or "csv".

    Raises:
        InputError: the name has another ending.
    """
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if suffix.lower() in CSV or (suffix.lower() in PARQUET and path.suffix != ".gz"):
        return "csv" if suffix.lower() in CSV else "parquet"
    raise InputError(f"{path}: the name ends with none of .parquet, .csv, .tsv, .csv.gz, .tsv.gz", "rename the file")


@contextmanager
def _reading_text(path: Path) -> Iterator[TextIO]:
    """Opens a CSV file, gzipped or not; any error of its bytes becomes one InputError."""
    try:
        packed = gzip.GzipFile(path) if path.suffix == ".gz" else open(path, "rb")  # noqa: SIM115
        with packed, io.TextIOWrapper(packed, encoding="utf-8-sig", newline="") as file:
            yield file
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: the text is not UTF-8: {error.reason}", "save the file as UTF-8") from error
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise InputError(f"{path}: cannot be read: {error}", f"copy it again, or {FIX_FILE}") from error
