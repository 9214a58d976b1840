"""The profile of tables as `graphmill inspect` prints it: columns, relations, classes, leaks; of a folder or of a pipeline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from graphmill.assets.sources.folder.guess import Guess, guessed
from graphmill.assets.sources.folder.tables import ColumnProfile, FoundTable
from graphmill.assets.sources.profile.graph import guessed_graph
from graphmill.assets.sources.profile.profile import PARTS, EndProfile, Profile, make_profile
from graphmill.jobs.commands.aligned import aligned_rows, terminal_columns
from graphmill.kernels.errors import one_line

COLUMNS = ("column", "holds", "missing", "different", "from", "to", "such as", "taken for")
RIGHT = (False, False, True, True, False, False, False, False)
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
        print("\n".join([*profile_lines(profile_of(guess)), *_guess_lines(guess)]))
        print("\nto build it, write into a pipeline file (graphmill new NAME --from FOLDER does):\n\n[graph]")
        print(graph_table(guess, Path.cwd()))


def folder_values(folder: Path) -> dict[str, Any]:
    """Returns the profile as JSON has it; errors are those of `print_folder`."""
    with guessed(folder) as guess:
        return profile_of(guess).values()


def profile_of(guess: Guess) -> Profile:
    """Returns the profile of what a folder of tables is taken for."""
    return make_profile(guessed_graph(guess), guess.tables[0].files.duck)


def profile_lines(profile: Profile) -> Iterator[str]:
    """Yields the lines of a profile."""
    for table in profile.graph.tables:
        yield f"{table.name}: {table.rows:,} rows, {table.path.name}"
        yield from aligned_rows(COLUMNS, column_rows(profile, table), RIGHT, room=terminal_columns(), indent="  ")
    yield from graph_lines(profile)


def graph_lines(profile: Profile) -> Iterator[str]:
    """Yields the lines about relations, classes and what looks like a leak."""
    for each in profile.relations:
        yield f"relation {each.name}: {each.edges:,} edges from {each.source} to {each.target}"
        yield from (
            f"  {end_sentence(profile, end, role)}" for role, end in zip(("from", "to"), each.ends, strict=True)
        )
    for name, isolated in profile.isolated.items():
        if isolated:
            yield f"{isolated:,} of {name} have no edge"
    if profile.graph.label is not None:
        table, column = profile.graph.label
        total = sum(each.rows for each in profile.classes)
        shown = ", ".join(f"{c.name} {c.rows:,} ({c.rows / total:.1%})" for c in profile.classes[:MOST_CLASSES])
        left = len(profile.classes) - MOST_CLASSES
        yield f"classes: {column} of {table.name}: {shown}{f', and {left} more' if left > 0 else ''}"
        yield from (f"  {line}" for line in _split_lines(profile))
    yield from (f"note: {each}" for each in profile.leaks)
    yield from (f"note: not read: {each}" for each in profile.graph.problems)


def column_rows(profile: Profile, table: FoundTable) -> list[tuple[str, ...]]:
    """Returns the cells of each column of a table, those of `COLUMNS`; ids are known to be different, other counts are estimates."""
    return [_row(each, profile.graph.roles[table.name][each.name]) for each in table.columns]


def end_sentence(profile: Profile, end: EndProfile, role: str) -> str:
    """Returns the sentence about one end of a relation; `role` is "from" or "to"."""
    ids = profile.graph.node_types[end.node_type]
    key = f"{ids.column} of {end.node_type}" if ids.column else f"an id of {end.node_type}"
    said = (
        f"{role} {end.column}, which is {key}: {end.inside / max(1, end.values):.1%} of {end.values:,} different values"
    )
    said += f"; {end.least:,} to {end.most:,} edges for each, {end.median:,} in the middle; {end.isolated:,} have none"
    said += f"; {end.gaps:,} rows have no {end.column}" if end.gaps else ""
    return said + (f"; {end.lost:,} rows name no row of {end.node_type}" if end.lost else "")


def _split_lines(profile: Profile) -> Iterator[str]:
    """Yields the share of each class in each part of the split."""
    for part in PARTS:
        total = sum(each.parts.get(part, 0) for each in profile.classes)
        if total:
            shown = (f"{c.name} {c.parts[part] / total:.1%}" for c in profile.classes[:MOST_CLASSES])
            yield f"{part}: {total:,}: {', '.join(shown)}"


def _guess_lines(guess: Guess) -> Iterator[str]:
    """Yields what a guess lacks, or leaves out."""
    for each in guess.relations:
        if each.dangling:
            lacking = "; ".join(each.lacking())
            yield f'note: {each.dangling:,} edges have an end without a row, and dangling = "drop" leaves them out: {lacking}'
    if guess.label is None:
        yield "note: no column looks like classes; label_column in the table of a node type names one"


def _row(column: ColumnProfile, role: str) -> tuple[str, ...]:
    distinct = column.rows if role == "id" else column.distinct
    low, high, example = map(_short, (column.low, column.high, column.example))
    return one_line(column.name), column.kind, f"{column.gaps:,}", f"{distinct:,}", low, high, example, role


def _short(text: str) -> str:
    """Returns a value in at most `MOST_LETTERS` letters; numbers with six digits."""
    if FRACTION.fullmatch(text):
        return f"{float(text):.6g}"
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 3]}..."
