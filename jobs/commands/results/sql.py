"""`graphmill sql`: DuckDB over the contents of the store. It only reads, in memory, without a database file.

The views are documented in docs/sql.md. A query is one SELECT; it can read the views and no other file, and it can write nowhere.
"""

from __future__ import annotations

import csv
import glob
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from graphmill.assets.building.interrupts import held_interrupt
from graphmill.assets.sources.readers.duck import path_literal
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.aligned import aligned_rows, terminal_columns
from graphmill.jobs.commands.results.views import View, columns_of, readable, views
from graphmill.kernels.errors import InputError

if TYPE_CHECKING:
    import duckdb

Format = Literal["table", "csv", "json"]
INTERRUPT_SECONDS = 0.1
"""Seconds between two checks whether a query was interrupted."""
TABLE_ROWS = 200
"""Most rows of a printed table; the other formats have all."""
PIECE_ROWS = 10_000
"""Rows that are in memory at a time when all are printed."""
SETTINGS = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false", "temp_directory": ""}
"""Nothing is fetched, and nothing is spilled into the working directory."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of a query."""

    # Names, as the query gave them.
    columns: tuple[str, ...]
    # Values as Python has them.
    rows: list[tuple[Any, ...]]


def query(store: Store, sql: str, warn: Callable[[str], Any] = lambda line: None) -> Answer:
    """Answers one SELECT over the views of a store, with all rows in memory; arguments and errors are those of `answers`."""
    found = list(answers(store, sql, warn))
    return Answer(columns=found[0].columns, rows=[row for piece in found for row in piece.rows])


def answers(
    store: Store, sql: str, warn: Callable[[str], Any] = lambda line: None, rows: int = PIECE_ROWS
) -> Iterator[Answer]:
    """Yields the answer to one SELECT over the views of a store, piece by piece; an empty answer is one piece.

    Args:
        sql: one statement of DuckDB's dialect.
        warn: function that gets a line about each damaged artifact, which is in no view.
        rows: most rows of a piece.

    Raises:
        InputError: the statement is wrong or does more than read; the text lists the views with their columns.
    """
    import duckdb

    connection, columns = _connect(store, warn)
    try:
        statements = connection.extract_statements(sql)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise _wrong(sql, "it is not one SELECT", columns)
        yield from _pieces(connection, statements[0], rows)
    # Values that Python does not have, such as an interval of a million years, are the other errors.
    except (duckdb.Error, OverflowError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        said = "\n  ".join(line for line in str(error).splitlines() if line.strip())
        raise _wrong(sql, said, columns) from error
    finally:
        connection.close()


def _pieces(connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement, rows: int) -> Iterator[Answer]:
    """Yields the answer to a statement; Ctrl-C ends it, which DuckDB would not notice in the thread that waits."""
    with ThreadPoolExecutor(1) as pool:

        def done(work: Callable[[], Any]) -> Any:
            # Raised at any place, the interrupt could come when the query runs and no thread waits for it yet.
            with held_interrupt() as interrupted:
                answer = pool.submit(work)
                while not wait([answer], INTERRUPT_SECONDS).done:
                    # Again and again: DuckDB forgets an interrupt that comes before the query has begun.
                    if interrupted.is_set():
                        connection.interrupt()
            return answer.result()

        result = done(lambda: connection.execute(statement))
        names = tuple(name for name, *_ in result.description or ())
        found = done(lambda: result.fetchmany(rows))
        yield Answer(columns=names, rows=found)
        while len(found) == rows:
            found = done(lambda: result.fetchmany(rows))
            if found:
                yield Answer(columns=names, rows=found)


def print_query(
    store: Store,
    sql: str | None,
    form: Format = "table",
    write: Callable[[str], Any] = print,
    warn: Callable[[str], Any] = lambda line: None,
) -> None:
    """Prints the answer to a query, or the views if `sql` is None; `warn` gets a line about each damaged artifact.

    Raises:
        InputError: as `answers` does.
    """
    if not sql:
        sound, _ = readable(store.artifacts())
        write(described(_columns(views(sound))))
        return
    if form == "table":
        found = answers(store, sql, warn, TABLE_ROWS + 1)
        write(as_table(next(found), terminal_columns()))
        found.close()  # pyright: ignore[reportAttributeAccessIssue]
        return
    for text in {"csv": _csv, "json": _json}[form](answers(store, sql, warn)):
        write(text)


def as_table(answer: Answer, room: int | None = None) -> str:
    """Returns an answer as aligned columns, `TABLE_ROWS` rows at most; as lines of name and value if `room` columns are too few."""
    shown = [[_cell(value) for value in row] for row in answer.rows[:TABLE_ROWS]]
    right = [
        all(isinstance(row[place], int | float | Decimal | None) for row in answer.rows)
        for place in range(len(answer.columns))
    ]
    lines = aligned_rows(answer.columns, shown, right, room=room, rule=True)
    if len(answer.rows) > TABLE_ROWS:
        lines.append(f"... more than {TABLE_ROWS} rows: add LIMIT, or --format csv or json for all")
    else:
        lines.append(f"({len(answer.rows)} row{'' if len(answer.rows) == 1 else 's'})")
    return "\n".join(lines)


def _csv(pieces: Iterable[Answer]) -> Iterator[str]:
    """Yields an answer as CSV with a header, lines piece by piece; NULL is empty."""
    for number, piece in enumerate(pieces):
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if number == 0:
            writer.writerow(piece.columns)
        writer.writerows(piece.rows)
        yield text.getvalue().removesuffix("\n")


def _json(pieces: Iterable[Answer]) -> Iterator[str]:
    """Yields an answer as a JSON list of objects, piece by piece; values that JSON lacks become text, numbers that are not finite null.

    A column name that occurs twice gets a number.
    """
    begun = False
    for piece in pieces:
        names, lines = _distinct(piece.columns), []
        for row in piece.rows:
            found = {name: _plain(value) for name, value in zip(names, row, strict=True)}
            text = json.dumps(found, indent=1, default=str).replace("\n", "\n ")
            lines.append(f"{',' if begun else '['} {text}")
            begun = True
        if lines:
            yield "\n".join(lines)
    yield "]" if begun else "[]"


def _distinct(columns: Sequence[str]) -> list[str]:
    names: list[str] = []
    for name in columns:
        again = sum(each.partition(":")[0] == name for each in names)
        names.append(f"{name}:{again}" if again else name)
    return names


def described(columns: Mapping[str, Sequence[str]]) -> str:
    """Returns the views and their columns, a line each."""
    return "\n".join(f"{name}: {', '.join(names)}" for name, names in columns.items())


def _connect(store: Store, warn: Callable[[str], Any]) -> tuple[duckdb.DuckDBPyConnection, Mapping[str, Sequence[str]]]:
    import duckdb

    connection = duckdb.connect(":memory:", config=dict(SETTINGS))
    artifacts, damaged = readable(store.artifacts())
    for problem in damaged:
        warn(f"left out: {problem}")
    made = views(artifacts)
    for name, view in made.items():
        _fill(connection, name, view)
    tables = []
    for artifact in artifacts:
        if "nodes.parquet" in artifact.files:
            try:
                tables.append(str(artifact.file("nodes.parquet")))
            except InputError as error:
                warn(f"left out: {error.problem}")
    connection.execute(f"CREATE VIEW nodes AS {_nodes(tables)}")
    # Last, since defining the view reads the files, and a locked configuration stays locked.
    # DuckDB checks the pattern of a path and the path that it matches; they differ if a folder's name has a [ or *.
    allowed = dict.fromkeys([*tables, *map(glob.escape, tables)])
    connection.execute(f"SET allowed_paths = [{', '.join(map(_quoted, allowed))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection, _columns(made)


def _columns(made: dict[str, View]) -> Mapping[str, Sequence[str]]:
    return {name: list(view.columns) for name, view in made.items()} | {"nodes": list(columns_of("nodes"))}


def _fill(connection: duckdb.DuckDBPyConnection, name: str, view: View) -> None:
    rows = [
        {column: _json_text(_plain(row.get(column)), kind) for column, kind in view.columns.items()}
        for row in view.rows
    ]
    shape = json.dumps([dict(view.columns)])
    # One parameter for all rows: inserting them one by one takes a second for a few thousand.
    connection.execute(
        f"CREATE TABLE {name} AS SELECT unnest(from_json(?::JSON, {_quoted(shape)}), recursive := true)",
        [json.dumps(rows)],
    )


def _json_text(value: Any, kind: str) -> Any:
    """Keeps nested values in one piece; a value in a text column becomes text."""
    return json.dumps(value) if kind == "VARCHAR" and isinstance(value, list | dict | bool | int | float) else value


def _nodes(tables: Sequence[str]) -> str:
    columns = columns_of("nodes")
    if not tables:
        return f"SELECT {', '.join(f'NULL::{kind} AS {name}' for name, kind in columns.items())} WHERE false"
    version = "regexp_extract(filename, '([0-9a-f]{12})[0-9a-f]{52}.nodes.parquet$', 1) AS version"
    files = ", ".join(path_literal(Path(path)) for path in tables)
    # Ids of the raw data are numbers, or text if those of one graph are.
    given = {name: name if name == "original_id" else f"{name}::{kind} AS {name}" for name, kind in columns.items()}
    names = ", ".join(text for name, text in given.items() if name != "version")
    return f"SELECT {version}, {names} FROM read_parquet([{files}], filename = true, union_by_name = true)"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _wrong(sql: str, reason: str, columns: Mapping[str, Sequence[str]]) -> InputError:
    listed = "".join(f"\n  {line}" for line in described(columns).splitlines())
    problem = f"the query {sql.strip()!r} cannot be answered: {reason}"
    return InputError(problem, f"write one SELECT over these views (docs/sql.md has examples):{listed}")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    # Names come from raw data: nothing in them may steer the terminal or break a row.
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Decimal):
        value = float(value)
    return None if isinstance(value, float) and value - value != 0 else value
