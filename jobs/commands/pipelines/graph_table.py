"""The `[graph]` of a pipeline file for the tables of a folder, as `source = "tables"`, with what was guessed as comments."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from graphmill.assets.pipeline.toml_text import toml_value
from graphmill.assets.sources.folder.guess import Guess, GuessedRelation
from graphmill.assets.sources.folder.roles import no_label_words
from graphmill.assets.sources.folder.tables import ColumnProfile, FoundTable
from graphmill.kernels.errors import one_line


def graph_table(guess: Guess, beside: Path, *, hint: bool = True) -> str:
    """Returns the lines of `[graph]`.

    Args:
        beside: folder of the pipeline file, from which its paths start.
        hint: whether a comment says that no column looks like classes, if none does.
    """
    return "\n".join(_lines(guess, beside, hint))


def _lines(guess: Guess, beside: Path, hint: bool) -> Iterator[str]:
    yield 'source = "tables"'
    yield "undirected = true            # adds the reverse of every edge"
    if guess.typed:
        yield 'reverse_types = "own"        # relations and their reverses have weights of their own'
    for table in guess.node_types:
        yield from ("", f"[graph.nodes.{table.name}]", f"path = {_path(table, beside)}")
        yield from _node_lines(guess, table)
    if guess.label is None and hint:
        yield '# label_column = ""          # no column looks like classes: name one in the table of its node type'
    for each in guess.relations:
        yield from ("", *_relation_lines(each, beside), *_unread_lines(guess, each.table))
    used = [*guess.node_types, *(each.table for each in guess.relations)]
    yield from (f"# not used: {each.name}, which names no two tables" for each in guess.tables if each not in used)
    yield from (f"# not read: {each}" for each in guess.problems)


def _unread_lines(guess: Guess, table: FoundTable) -> Iterator[str]:
    """Yields a line about the columns of edges that nothing reads, and how a number among them becomes a weight."""
    unread = [table.column(name) for name, role in guess.roles(table).items() if role == "of an edge"]
    numbers = [each.name for each in unread if each.kind in ("whole", "number") and not each.gaps]
    way = f"; weight_column = {toml_value(numbers[0])} takes it as a weight" if numbers else ""
    if unread:
        yield f"# not read: {one_line(', '.join(each.name for each in unread))}{way}"


def _path(table: FoundTable, beside: Path) -> str:
    return toml_value(os.path.relpath(table.path, beside))


def _node_lines(guess: Guess, table: FoundTable) -> Iterator[str]:
    """Yields the lines of the columns of a node type: ids, classes, split, name, features, and those that are left out."""
    roles = guess.roles(table)
    named = {role: column for column, role in roles.items() if role in ("id", "label", "split", "name")}
    if "id" in named:
        yield f"id_column = {toml_value(named['id'])}"
    if "label" in named:
        yield from _label_lines(table, table.column(named["label"]))
    yield from (f"{role}_column = {toml_value(named[role])}" for role in ("split", "name") if role in named)
    encoders = guess.encoders(table)
    if encoders:
        # Without classes edges are predicted, and nodes with features learn no rows of their own.
        mark = "# " if guess.label is None else ""
        yield f"{mark}features = [{', '.join(map(toml_value, encoders))}]"
        rules = [f"{toml_value(name)} = {_rule(table.column(name), encoder)}" for name, encoder in encoders.items()]
        yield f"{mark}encode = {{ {', '.join(rules)} }}"
    told = {*named.values(), *encoders, *(each.column for each in guess.links[table.name])}
    if left := [f"{column} ({role})" for column, role in roles.items() if column not in told]:
        yield f"# no features: {one_line(', '.join(left))}"


def _rule(column: ColumnProfile, encoder: str) -> str:
    """Returns the rule of a column, with a flag for gaps if it has some."""
    return f'{{ encoder = "{encoder}", missing = "flag" }}' if column.gaps else f'"{encoder}"'


def _label_lines(table: FoundTable, column: ColumnProfile) -> Iterator[str]:
    yield f"label_column = {toml_value(column.name)}  # a guess: {column.distinct:,} values, such as {one_line(column.example)}"
    last = column.distinct - 1 if column.low == "0" else column.distinct - 2 if column.low == "-1" else -1
    if column.kind != "whole" or column.high != str(last):
        yield 'labels = "names"'
    if unknown := no_label_words(table, column.name):
        yield f"no_label = [{', '.join(map(toml_value, unknown))}]"


def _relation_lines(each: GuessedRelation, beside: Path) -> Iterator[str]:
    """Yields the lines of a relation; edges with an end without a row are left out, and their number is said."""
    yield f"# {one_line(each.said())}"
    yield f"[graph.edges.{each.name}]"
    yield f"path = {_path(each.table, beside)}"
    yield f"source_type = {toml_value(each.source.name)}"
    yield f"target_type = {toml_value(each.target.name)}"
    yield f"source_column = {toml_value(each.source_column)}"
    yield f"target_column = {toml_value(each.to.column)}"
    if each.type_column is not None:
        kinds = each.table.column(each.type_column).distinct
        yield f"type_column = {toml_value(each.type_column)}  # each of {kinds:,} values is a relation of its own"
    if each.dangling:
        left_out = f"{each.dangling:,} of {each.table.rows:,} edges: {one_line('; '.join(each.lacking()))}"
        yield f'dangling = "drop"            # leaves out {left_out}; "refuse" ends a build that meets such an edge'
