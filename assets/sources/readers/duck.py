"""DuckDB as the sources use it: under a memory limit, spilling into scratch space, with errors in words of this project.

DuckDB keeps to its limit except for small allocations; give it about 60 % of the memory that may be used. Its spilled data, and the
database that holds staged tables, lie in the folder that the writer sweeps, so a kill leaves nothing behind.
"""

from __future__ import annotations

import functools
import re
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from graphmill.assets.sizes import format_bytes
from graphmill.assets.sources.readers.arrow_stream import Column, StreamError, arrow_batches
from graphmill.assets.storage.files.encodings import as_utf8, through
from graphmill.assets.storage.system.filesystem import full_disk, full_errno
from graphmill.kernels.errors import InputError

ONE_END = "tr '\\r' '\\n'"
FIX_FILE = "correct the file and run the command again"
ROW_HAS, QUOTES = (
    "a row has ",
    "a row has quotes, which are not read in a file with comments or blanks between fields: ",
)
"""The beginnings of errors that our own queries raise."""

AS_NUMBER = "write a number, such as the days since a day, or leave the column out"
"""The remedy for a date that has to be a number."""
NOT_PARQUET = (
    "magic bytes", "too small to be a parquet", "parquet file", "thrift", "tprotocol", "footer", "snappy", "page header", "decompress",
)  # fmt: skip
"""Words of DuckDB's errors about damaged Parquet files."""
DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T].*)?|\d{1,2}:\d{2}.*")
DECIMAL_POINT = "write numbers with a decimal point, such as 0.5"
THOUSANDS = "write numbers without a sign between thousands, and with a decimal point, such as 1500 or 1.5"
LIST = re.compile(r"[\[(]?\s*[+-]?[\d.]+([eE][+-]?\d+)?([\s,;]+[+-]?[\d.]+([eE][+-]?\d+)?)+\s*[\])]?")
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")


class Duck:
    """One private database; a context manager.

    Args:
        folder: scratch folder for the database and spilled data; None: all in memory, for small queries.
        memory_bytes: DuckDB's limit of memory, in bytes.
        threads: number of threads of DuckDB, and of kernels that read in its place; results keep the order of the files at any number.
    """

    def __init__(self, folder: Path | None, memory_bytes: int, threads: int):
        self.folder, self.memory_bytes, self.threads = folder, memory_bytes, threads
        self._own_scratch: tempfile.TemporaryDirectory[str] | None = None

    @functools.cached_property
    def _connection(self) -> Any:
        """The connection, opened by the first statement: it takes 25 ms, and many tables are read without one."""
        import duckdb

        config: dict[str, Any] = {
            "threads": self.threads,
            "memory_limit": f"{self.memory_bytes}B",
            "autoload_known_extensions": False,
        }
        if self.folder is not None:
            config["temp_directory"] = str(self.folder / "spill")
        with self._translated(str(self.folder or "DuckDB")):
            connection = duckdb.connect(
                ":memory:" if self.folder is None else str(self.folder / "staged.duckdb"), config=config
            )
        # It decides the text of times, the same on every machine; GLOBAL, since cursors have settings of their own.
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
        return connection

    def __enter__(self) -> Duck:
        return self

    def __exit__(self, *exc: object) -> None:
        if "_connection" in vars(self):
            self._connection.close()
        if self._own_scratch is not None:
            self._own_scratch.cleanup()

    @property
    def scratch(self) -> Path:
        """Folder for files that last as long as the connection."""
        if self.folder is not None:
            return self.folder
        if self._own_scratch is None:
            self._own_scratch = tempfile.TemporaryDirectory(prefix="graphmill-text-")
        return Path(self._own_scratch.name)

    def rows(self, sql: str, where: str = "") -> list[tuple[Any, ...]]:
        """Runs a statement and returns its whole result; `where` names the file in errors."""
        with self._translated(where), self._connection.cursor() as cursor:  # a batch query may be running
            return cursor.execute(sql).fetchall()

    def batches(self, sql: str, where: str = "") -> Iterator[list[Column]]:
        """Yields the result of a query as batches of NumPy columns; see `arrow_batches`. One query runs at a time."""
        with self._translated(where):
            yield from arrow_batches(self._connection.sql(sql))

    def series(self, sql: str) -> Any:
        """Returns a query's only column as a Polars series."""
        import polars

        with self._translated(""):
            return polars.DataFrame(_Stream(self._connection.sql(sql))).to_series()

    @contextmanager
    def _translated(self, where: str) -> Iterator[None]:
        """Turns DuckDB's errors into one sentence each."""
        import duckdb

        try:
            yield
        except (duckdb.Error, StreamError) as error:
            code = full_errno(error)
            if code is not None and self.folder is not None:
                raise full_disk(code, self.folder) from error
            if isinstance(error, duckdb.OutOfMemoryException) or "Out of Memory" in str(error):
                problem = f"DuckDB cannot work in {format_bytes(self.memory_bytes)}: {_first_line(error)}"
                raise InputError(problem, "raise memory_limit in [graph]") from error
            raise explained(str(error), where) from error


@contextmanager
def scratch_duck(memory_bytes: int, purpose: str) -> Iterator[Duck]:
    """Yields a database in a folder of its own, which has the purpose in its name and is removed at the end."""
    prefix = f"graphmill-{purpose}-"
    with tempfile.TemporaryDirectory(prefix=prefix) as folder, Duck(Path(folder), memory_bytes, 2) as duck:
        yield duck


class _Stream:
    """Passes a relation's Arrow stream to Polars, which keeps the type of its argument until the process ends."""

    def __init__(self, relation: Any):
        self._relation = relation

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._relation.__arrow_c_stream__()


def explained(text: str, where: str) -> InputError:
    """Returns DuckDB's error about an unreadable file as one short problem with line, column and value."""
    line, column = re.search(r"CSV Error on Line: (\d+)", text), re.search(r'converting column "([^"]+)"', text)
    value, counts = (
        re.search(r'convert string "(.*?)" to', text),
        re.search(r"Number of Columns: (\d+) Found: (\d+)", text),
    )
    place = f"{where}: line {line[1]}" if line else where
    if counts:
        return InputError(f"{place}: the row has {counts[2]} fields, the first line has {counts[1]}", FIX_FILE)
    if longest := re.search(r"Maximum line size of (\d+) bytes exceeded", text):
        return too_long(place, int(longest[1]))
    if ours := re.search(f"({ROW_HAS}.*)", text):
        if not (marked := re.search(r": ([#%])", ours[1])):
            return InputError(f"{place}: {ours[1]}", FIX_FILE)
        comment = f'set comment = "{marked[1]}" where the pipeline file names the file'
        return InputError(f"{place}: {ours[1]}", f"{comment}, if it begins comments, or {FIX_FILE}")
    if column and value:
        return no_number(place, column[1], value[1])
    if "is encrypted" in text:
        return InputError(f"{place}: the file is encrypted", "write it without encryption")
    if "unterminated quote" in text:
        return InputError(f"{place}: a quoted field has no end", FIX_FILE)
    if "state machine reached an invalid state" in text:
        return _line_ends(where)
    if "unicode" in text or "utf-8" in text.lower():
        return InputError(f"{place}: the text is not UTF-8", as_utf8(where))
    if "GZIP" in text or "gzip" in text:
        return damaged_gzip(where)
    said = text.replace(where, "").lower()  # a path may have any word
    if range_of := re.search(r"with value (\S+) can't be cast .* range for the destination type (\w+)", text):
        problem = f"{place}: cannot be read: the number {range_of[1]} is beyond the range of {range_of[2]}"
        return InputError(problem, f"scale the column, or {FIX_FILE}")
    if any(word in said for word in NOT_PARQUET):
        return InputError(f"{place}: cannot be read: it is not a whole Parquet file", "copy it again")
    if "zstd" in said or "frame" in said or "corruption detected" in said:
        return InputError(f"{place}: the file, which zstd compressed, is damaged: {_first_line(text)}", "copy it again")
    return InputError(f"{place}: cannot be read: {_first_line(text)}", f"copy it again, or {FIX_FILE}")


def no_number(place: str, column: str, value: str | None) -> InputError:
    """Returns the error of a field that has to be a number; the remedy fits what it holds, None for nothing."""
    leave = "or leave the column out"
    if value is None or not value.strip():
        what = "is empty" if value is None else f"holds '{value}', which is no number"
        return InputError(
            f"{place}: column '{column}' {what}", f"give every row a number, such as the column's mean, {leave}"
        )
    held, remedy = "which is no number", FIX_FILE
    if DECIMAL_COMMA.fullmatch(value.strip()):
        remedy = THOUSANDS if re.fullmatch(r"[+-]?[1-9]\d{0,2},\d{3}", value.strip()) else DECIMAL_POINT
    elif DATE.fullmatch(value.strip()):
        held, remedy = "which is a date and no number", AS_NUMBER
    elif LIST.fullmatch(value.strip()):
        held, remedy = (
            "which is a list and no number",
            "give each number a column of its own, or write Parquet with a column of lists",
        )
    return InputError(f"{place}: column '{column}' holds '{value}', {held}", remedy)


def too_long(place: str, most: int) -> InputError:
    """Returns the error of a line of text that is longer than `most` bytes."""
    remedy = "leave the column with the long text out of the file, or write the table as Parquet"
    return InputError(f"{place}: the line is longer than {most:,} bytes", remedy)


def damaged_gzip(where: str) -> InputError:
    """Returns the error of a gzip file that cannot be unpacked to its end."""
    remedy = f"copy it again; or, if bytes stand behind its end: gzip -dc {shlex.quote(where)} > NEW.csv"
    return InputError(f"{where}: the gzip file is damaged or cut short", remedy)


def _line_ends(where: str) -> InputError:
    problem, command = f"{where}: its lines end in several ways (\\n, \\r\\n and \\r)", through(where, ONE_END)
    return InputError(problem, f"give them one end: {command} > NEW.csv, and name the new file")


def quoted(name: str) -> str:
    """Returns a column name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def path_literal(path: Path) -> str:
    """Returns a path as a SQL literal that names this file alone: DuckDB takes [, * and ? for a pattern.

    Raises:
        InputError: a pattern would be needed, and cannot name the file: DuckDB takes a backslash in it for the end of a folder's name.
    """
    if "\\" in str(path) and re.search(r"[\[*?]", str(path)):
        problem = f"{path}: a path with a backslash and one of the letters [, * and ? cannot be read"
        raise InputError(problem, "rename the file, or the folder that has these letters in its name")
    return literal(re.sub(r"([\[*?])", r"[\1]", str(path)))


def literal(text: str | Path) -> str:
    """Returns a text as SQL writes it."""
    return "'" + str(text).replace("'", "''") + "'"


def _first_line(error: object) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return re.sub(r"^[A-Z]\w+(?: \w+)? Error: ", "", lines[0]) if lines else "no reason was given"
