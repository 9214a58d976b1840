"""`graphmill sql`: DuckDB over what the store holds. Reads only, in memory; there is no database file.

The views are documented in docs/sql.md. A query is one SELECT; it can read the views and no other file, and it can
write nowhere.
"""

from __future__ import annotations

import csv
import glob
import io
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from assets.storage.store import Store
from jobs.commands.views import NODES, View, views
from kernels.errors import InputError

if TYPE_CHECKING:
    import duckdb

Format = Literal["table", "csv", "json"]
INTERRUPT_SECONDS = 0.1
"""How long a query has to end before it is interrupted again."""
TABLE_ROWS = 200
"""Rows that a printed table has at most; the other formats have all."""

SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "temp_directory": "",
}
"""Nothing is fetched, and nothing is spilled into the working directory."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a query returned."""

    # Names, as the query gave them.
    columns: tuple[str, ...]
    # Values as Python has them.
    rows: list[tuple[Any, ...]]


def query(store: Store, sql: str) -> Answer:
    """Answers one SELECT over the views of a store.

    Args:
        store: what is asked about.
        sql: one statement of DuckDB's dialect.

    Raises:
        InputError: the statement is wrong or does more than read; the text lists the views with their columns.
    """
    import duckdb

    connection, columns = _connect(store)
    try:
        statements = connection.extract_statements(sql)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise _wrong(sql, "it is not one SELECT", columns)
        return _answer(connection, statements[0])
    except duckdb.Error as error:
        raise _wrong(sql, str(error).strip(), columns) from error
    finally:
        connection.close()


def _answer(connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement) -> Answer:
    """Answers one statement; Ctrl-C ends it, which DuckDB would not notice in the thread that waits."""

    def work() -> Answer:
        result = connection.execute(statement)
        return Answer(columns=tuple(name for name, *_ in result.description or ()), rows=result.fetchall())

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(work)
        try:
            return answer.result()
        except KeyboardInterrupt:
            # DuckDB forgets an interrupt that comes before the query has begun.
            while not wait([answer], INTERRUPT_SECONDS).done:
                connection.interrupt()
            raise


def print_query(store: Store, sql: str | None, form: Format = "table", write: Callable[[str], Any] = print) -> None:
    """Prints the answer to a query, or the views where there is none.

    Raises:
        InputError: as `query` does.
    """
    if not sql:
        write(described(_columns(views(store.artifacts()))))
        return
    answer = query(store, sql)
    write({"table": as_table, "csv": as_csv, "json": as_json}[form](answer))


def as_table(answer: Answer) -> str:
    """Returns an answer as aligned columns, `TABLE_ROWS` rows at most."""
    shown = [[_cell(value) for value in row] for row in answer.rows[:TABLE_ROWS]]
    widths = [max(map(len, column)) for column in zip(answer.columns, *shown, strict=True)]
    right = [
        all(isinstance(row[place], int | float | Decimal | None) for row in answer.rows) for place in range(len(widths))
    ]
    lines = [_aligned(answer.columns, widths, right), "  ".join("-" * width for width in widths)]
    lines += [_aligned(row, widths, right) for row in shown]
    if len(answer.rows) > TABLE_ROWS:
        lines.append(f"... {len(answer.rows) - TABLE_ROWS} more rows: add LIMIT, or --format csv or json for all")
    else:
        lines.append(f"({len(answer.rows)} row{'' if len(answer.rows) == 1 else 's'})")
    return "\n".join(lines)


def as_csv(answer: Answer) -> str:
    """Returns an answer as CSV with a header; NULL is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(answer.columns)
    writer.writerows(answer.rows)
    return text.getvalue().removesuffix("\n")


def as_json(answer: Answer) -> str:
    """Returns an answer as a JSON list of objects; values that JSON lacks become text, what is not finite null.

    A column name that occurs twice gets a number.
    """
    names: list[str] = []
    for name in answer.columns:
        again = sum(each.partition(":")[0] == name for each in names)
        names.append(f"{name}:{again}" if again else name)
    rows = [{name: _plain(value) for name, value in zip(names, row, strict=True)} for row in answer.rows]
    return json.dumps(rows, indent=1, default=str)


def described(columns: Mapping[str, Sequence[str]]) -> str:
    """Returns the views and their columns, a line each."""
    return "\n".join(f"{name}: {', '.join(names)}" for name, names in columns.items())


def _connect(store: Store) -> tuple[duckdb.DuckDBPyConnection, Mapping[str, Sequence[str]]]:
    import duckdb

    connection = duckdb.connect(":memory:", config=dict(SETTINGS))
    artifacts = store.artifacts()
    made = views(artifacts)
    for name, view in made.items():
        _fill(connection, name, view)
    tables = [str(artifact.path / "nodes.parquet") for artifact in artifacts if "nodes.parquet" in artifact.files]
    connection.execute(f"CREATE VIEW nodes AS {_nodes(tables)}")
    # Last, since defining the view reads the files, and a locked configuration stays locked.
    # DuckDB asks for the pattern of a path and for what it stands for; they differ where a folder's name has a [ or *.
    allowed = dict.fromkeys([*tables, *map(glob.escape, tables)])
    connection.execute(f"SET allowed_paths = [{', '.join(map(_quoted, allowed))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection, _columns(made)


def _columns(made: dict[str, View]) -> Mapping[str, Sequence[str]]:
    return {name: list(view.columns) for name, view in made.items()} | {"nodes": list(NODES)}


def _fill(connection: duckdb.DuckDBPyConnection, name: str, view: View) -> None:
    rows = [{column: _json_text(row.get(column), kind) for column, kind in view.columns.items()} for row in view.rows]
    shape = json.dumps([dict(view.columns)])
    # One parameter for all rows: inserting them one by one takes a second for a few thousand.
    connection.execute(
        f"CREATE TABLE {name} AS SELECT unnest(from_json(?::JSON, {_quoted(shape)}), recursive := true)",
        [json.dumps(rows)],
    )


def _json_text(value: Any, kind: str) -> Any:
    """Keeps what is nested in one piece; a value in a text column becomes text."""
    return json.dumps(value) if kind == "VARCHAR" and isinstance(value, list | dict | bool | int | float) else value


def _nodes(tables: Sequence[str]) -> str:
    if not tables:
        return f"SELECT {', '.join(f'NULL::{kind} AS {name}' for name, kind in NODES.items())} WHERE false"
    version = "regexp_extract(filename, '([0-9a-f]{12})[0-9a-f]{52}.nodes.parquet$', 1) AS version"
    files = ", ".join(_quoted(glob.escape(path)) for path in tables)
    names = ", ".join(f"{name}::{kind} AS {name}" for name, kind in NODES.items() if name != "version")
    return f"SELECT {version}, {names} FROM read_parquet([{files}], filename = true, union_by_name = true)"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _wrong(sql: str, reason: str, columns: Mapping[str, Sequence[str]]) -> InputError:
    listed = "".join(f"\n  {line}" for line in described(columns).splitlines())
    return InputError(
        f"the query {sql.strip()!r} cannot be answered: {reason}",
        f"write one SELECT over these views (docs/sql.md has examples):{listed}",
    )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    # Names come from raw data: nothing in them may steer the terminal or break a row.
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def _aligned(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [
        cell.rjust(width) if number else cell.ljust(width)
        for cell, width, number in zip(cells, widths, right, strict=True)
    ]
    return "  ".join(padded).rstrip()


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        value = float(value)
    return None if isinstance(value, float) and value - value != 0 else value
