"""`graphmill inspect FOLDER`: columns of its tables, how these name one another, classes, and what looks like a leak."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from graphmill.assets.sources.folder.columns import ColumnProfile
from graphmill.assets.sources.folder.guess import Guess, guessed
from graphmill.jobs.commands.aligned import aligned_rows, terminal_columns
from graphmill.kernels.errors import one_line

COLUMNS = ("column", "holds", "missing", "different", "from", "to", "such as", "taken for")
FRACTION = re.compile(r"-?\d+\.\d+(e[-+]?\d+)?")
MOST_LETTERS = 24
MOST_CLASSES = 20


def print_folder(folder: Path) -> None:
    """Prints the profile of a folder of tables, and the `[graph]` that `graphmill new NAME --from FOLDER` would write.

    Raises:
        InputError: there are no tables, or none with ids that another names.
    """
    from graphmill.jobs.commands.pipelines.graph_table import graph_table

    with guessed(folder) as guess:
        print("\n".join(_lines(guess)))
        print("\nto build it, write into a pipeline file (graphmill new NAME --from FOLDER does):\n\n[graph]")
        print(graph_table(guess, Path.cwd()))


def folder_values(folder: Path) -> dict[str, Any]:
    """Returns the profile as JSON has it.

    Raises:
        InputError: as for `print_folder`.
    """
    with guessed(folder) as guess:
        tables = {
            each.name: {
                "path": str(each.path),
                "rows": each.rows,
                "columns": [column.values() | {"taken_for": guess.roles(each)[column.name]} for column in each.columns],
            }
            for each in guess.tables
        }
        relations = {
            each.name: {
                "source": each.source.name,
                "target": each.target.name,
                "edges": each.table.rows,
                "dangling": each.dangling,
                "ends": {of.column: {"values": of.values, "inside": of.inside} for of in each.references},
            }
            for each in guess.relations
        }
        label = None if guess.label is None else {"table": guess.label[0].name, "column": guess.label[1]}
        return {
            "tables": tables,
            "relations": relations,
            "label": label,
            "classes": dict(guess.class_counts()),
            "leaks": guess.leaks(),
            "not_read": list(guess.problems),
        }


def _lines(guess: Guess) -> Iterator[str]:
    for table in guess.tables:
        encoders = guess.encoders(table) if table in guess.node_types else {}
        roles = dict(guess.roles(table))
        for name, encoder in encoders.items():
            also = "" if roles[name] == "feature" else f"{roles[name]}, "
            roles[name] = f"{also}feature by {encoder}"
        yield f"{table.name}: {table.rows:,} rows, {table.path.name}"
        rows = [_row(each, roles[each.name]) for each in table.columns]
        right = (False, False, True, True, False, False, False, False)
        yield from aligned_rows(COLUMNS, rows, right, room=terminal_columns(), indent="  ")
    yield from graph_lines(guess)


def graph_lines(guess: Guess) -> Iterator[str]:
    """Yields the lines about relations, classes and what looks like a leak."""
    for each in guess.relations:
        yield f"relation {each.name}: {each.table.rows:,} edges from {each.source.name} to {each.target.name}"
        yield f"  {each.said()}"
        if each.dangling:
            lacking = "; ".join(each.lacking())
            yield f'  note: {each.dangling:,} edges have an end without a row, and dangling = "drop" leaves them out: {lacking}'
    if guess.label is not None:
        counts, (table, column) = guess.class_counts(), guess.label
        total = sum(count for _, count in counts)
        shown = ", ".join(f"{name} {count:,} ({count / total:.1%})" for name, count in counts[:MOST_CLASSES])
        more = f", and {len(counts) - MOST_CLASSES} more" if len(counts) > MOST_CLASSES else ""
        yield f"classes: {column} of {table.name}: {shown}{more}"
    else:
        yield "note: no column looks like classes; label_column in the table of a node type names one"
    yield from (f"note: {each}" for each in (*guess.leaks(), *(f"not read: {each}" for each in guess.problems)))


def _row(column: ColumnProfile, role: str) -> tuple[str, ...]:
    """Returns the cells of a column; ids are known to be different, other counts are estimates."""
    distinct = column.rows if role == "id" else column.distinct
    low, high, example = map(_short, (column.low, column.high, column.example))
    return one_line(column.name), column.kind, f"{column.gaps:,}", f"{distinct:,}", low, high, example, role


def _short(text: str) -> str:
    """Returns a value in at most `MOST_LETTERS` letters; numbers with six digits."""
    if FRACTION.fullmatch(text):
        return f"{float(text):.6g}"
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 3]}..."
