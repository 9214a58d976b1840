"""The survey of edge and node tables: headers and counts, and what the first rows look like if that is something else than the keys say.

CSV files are read once to count their rows.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphmill.assets.sizes import format_bytes
from graphmill.assets.sources.edges.config import NAMES
from graphmill.assets.sources.edges.entries import KEY, survey_entries
from graphmill.assets.sources.edges.node_tables import label_columns, require_class_numbers
from graphmill.assets.sources.edges.numbering import id_kind
from graphmill.assets.sources.edges.open_table import named_columns, open_table, unread_columns
from graphmill.assets.sources.encoders.columns import encoded_columns, sentinel_words
from graphmill.assets.sources.encoders.rules import rules_of
from graphmill.assets.sources.features.types import stored_type
from graphmill.assets.sources.readers.duck import Duck, literal, scratch_duck
from graphmill.assets.sources.readers.packing import unchecked_words
from graphmill.assets.sources.readers.table_features import (
    SQL_TYPES,
    column_widths,
    feature_columns,
    feature_type,
    require_numbers,
)
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.sources.readers.text_layout import NUMBER, TextForm
from graphmill.assets.sources.spooled import spooled_survey
from graphmill.assets.sources.survey import Survey
from graphmill.assets.sources.unread import unread_notes
from graphmill.assets.tasks.labels import CLASSES

if TYPE_CHECKING:
    from graphmill.assets.sources.edges.config import EdgeTableKeys

SHOWN_COLUMNS = 12
LOOKED_AT = 100_000
"""Rows of the first file that are looked at."""
MOST_RELATIONS = 256
"""Most relations of a graph."""
FEWEST_ROWS = 20
"""Fewest rows of which a first column may be their number or a time."""
SHARE, FEWER = 0.3, 8
"""Share of ids that heads and tails have in common if all columns are numbers, and how many times fewer relations there are."""


def survey_tables(config: EdgeTableKeys) -> Survey:
    """Describes the tables of a configuration.

    Raises:
        InputError: a file cannot be read, or lacks a column that the configuration names.
    """
    with scratch_duck(config.duck_bytes, "inspect") as duck:
        edges = open_table(config, duck, "edges")
        for key, name in named_columns(config, config.edge_roles).items():
            edges.require(key, name)
        for key in ("source_column", "target_column"):
            id_kind(edges, key, getattr(config, key), config.id_type)
        nodes = None if config.nodes is None else open_table(config, duck, "nodes")
        for key, name in named_columns(config, config.node_roles).items():
            if nodes is not None:
                nodes.require(key, name)
        if nodes is not None:
            feature_type(nodes, label_columns(nodes, config, config.task))
        if nodes is not None and config.task == CLASSES and config.label_column and config.labels == "numbers":
            require_class_numbers(nodes, config.label_column, config.no_label)
        contents = describe_table("edges", edges) + (describe_table("nodes", nodes) if nodes else [])
        if config.feature_entries is None:
            width, dtype, notes = _features(config, nodes)
        else:
            entries, notes = open_table(config, duck, KEY), []
            width, dtype = survey_entries(entries, config)
            dtype = stored_type(np.dtype(dtype), "as stored", config.normalize, str(entries.paths[0]))
            contents += describe_table("feature entries", entries)
        num_edges, num_nodes = edges.count(), _count_nodes(config, edges, nodes)
        notes += unread_notes(unread_columns(config, edges, nodes))
        if nodes is not None and config.features is not None:
            notes += sentinel_words(nodes, feature_columns(nodes, config.features), rules_of(config.encode))
        if nodes is None and config.num_nodes is None:
            contents.append(_ends_line(config, edges, num_nodes))
    types = [] if config.type_column is None else [config.type_column]
    title = f"edges: {', '.join(map(str, config.patterns('edges')))}"
    return spooled_survey(
        config, types, num_nodes, num_edges, width, dtype, title=title, contents=contents, notes=notes
    )


def _ends_line(config: EdgeTableKeys, edges: TableFiles, num_nodes: int) -> str:
    """Returns the line about ids of both ends, which are one space: users and items that are both numbered from 0 would merge."""
    names = (config.source_column, config.target_column)
    ends = " INTERSECT ".join(f"({edges.union(edges.field(name))})" for name in names)
    shared = edges.duck.rows(f"SELECT count(*) FROM ({ends}) WHERE v IS NOT NULL", str(edges.paths[0]))[0][0]
    return f"ids of {' and '.join(names)} are one space: {shared:,} of {num_nodes:,} stand in both columns" + (
        ', and each is one node; if the columns name different things, give each a table (source = "tables"), or prefix the ids: u0, i0'
        if shared
        else ""
    )


def _count_nodes(config: EdgeTableKeys, edges: TableFiles, nodes: TableFiles | None) -> int:
    if nodes is not None:
        return nodes.count()
    if config.num_nodes is not None:
        return config.num_nodes
    ids = edges.union(edges.field(config.source_column), edges.field(config.target_column))
    return int(edges.duck.rows(f"SELECT count(v) FROM ({ids})", str(edges.paths[0]))[0][0])


def describe_table(key: str, table: TableFiles) -> list[str]:
    """Returns lines about the files and columns of a table."""
    size = format_bytes(sum(path.stat().st_size for path in table.paths))
    lines = [f"{key}: {len(table.paths)} file{'s' if len(table.paths) > 1 else ''}, {size}, {table.count():,} rows"]
    lines += [f"  read in this order: {', '.join(_order(table.paths))}"] if table.paths != sorted(table.paths) else []
    kinds = list(table.columns.items())[:SHOWN_COLUMNS]
    shown = [name if table.is_csv else f"{name} {kind}" for name, kind in kinds]
    more = len(table.columns) - len(shown)
    lines.append(f"  columns: {', '.join(shown)}{f', and {more} more' if more else ''}")
    lines += [f"  {line}" for line in table.differences()]
    if table.folder_types:
        lines.append(f"  columns in the names of folders: {', '.join(table.folder_types)}")
    return lines + ([f"  {table.layouts[0].described()}"] if table.layouts else [])


def _order(paths: Sequence[Path]) -> list[str]:
    """Returns names of the first files and of the last one, which tell the order."""
    above = Path(os.path.commonpath([path.parent for path in paths]))
    names = [path.relative_to(above).as_posix() for path in paths]
    return names if len(names) < 5 else [*names[:3], "...", names[-1]]


def survey_files(paths: Sequence[Path]) -> list[str]:
    """Returns lines about table files that no configuration describes yet; raises InputError if a file cannot be read."""
    with Duck(None, 1 << 30, 2) as duck:
        table = TableFiles(duck, paths, "edges", TextForm(names=NAMES["edges"]))
        lost = lost_first_line(table)
        # With `header = false` the columns have other names.
        names = [*NAMES["edges"], *(f"c{place}" for place in range(2, len(table.columns)))] if lost else []
        columns = list(table.columns)
        triples = looks_like_triples(table, columns[0], columns[1], names) if len(columns) > 2 else ""
        other = looks_like_other_ends(table, *columns[:2]) if len(columns) > 2 and not lost else ""
        notes = [said for said in (lost, triples, other) if said] + unread_notes(unchecked_words(table.paths))
        return [*describe_table("table", table), *(f"note: {said}" for said in notes)]


def _features(config: EdgeTableKeys, nodes: TableFiles | None) -> tuple[int, str, list[str]]:
    """Returns (number of columns, type of the stored values, notes)."""
    if nodes is None or config.features is None:
        return 1, "uint8", ["no features are read: `features` in [graph] names their columns"] if nodes else []
    if config.encodes:
        # The graph alone does not know the encoders of its feature tables.
        columns = encoded_columns(nodes, config.features, config.encode or "auto")
        return columns.most_width, "float32", [columns.described]
    for each in [config.features] if isinstance(config.features, str) else config.features:
        require_numbers(nodes, each)
    names = feature_columns(nodes, config.features)
    value = feature_type(nodes, names)
    stored = stored_type(np.dtype(SQL_TYPES[value]), "as stored", config.normalize, str(nodes.paths[0]))
    return sum(column_widths(nodes, names)), stored, []


def lost_first_line(table: TableFiles) -> str:
    """Returns a sentence about a first line that is taken for names of columns and looks like a row; "" if it looks like names."""
    if not table.is_csv or table.form.header is not None or not table.layouts[0].header:
        return ""
    numbers, looked_at = [name for name in table.columns if NUMBER.fullmatch(name)], list(table.columns)[:3]
    fields = ", ".join(table.field(name) for name in looked_at)
    counts = ", ".join(f"count(*) FILTER ({literal(name)} IN ({fields}))" for name in looked_at)
    found = table.duck.rows(f"SELECT {counts} FROM ({_first_rows(table)})", str(table.paths[0]))[0]
    again = [name for name, count in zip(looked_at, found, strict=True) if count]
    if not numbers and not again:
        return ""
    what = f"'{again[0]}' is also a value of a column" if again else f"'{numbers[0]}' is a number"
    names = ", ".join(NAMES["edges"] + tuple(f"c{place}" for place in range(2, len(table.columns))))
    return (
        f"the first line is taken for names of columns and looks like a row: {what}. "
        f"If it is a row, set header = false in {table.section}; the columns are then called {names}"
    )


def looks_like_triples(table: TableFiles, source: str, target: str, names: Sequence[str] = ()) -> str:
    """Returns a sentence about triples (head, relation, tail) of which the relation is read as the target; "" if it does not look so.

    Args:
        names: names of all columns, as the sentence is to call them; () for those of the table.
    """
    shown = dict(zip(table.columns, names or table.columns, strict=True))
    for tail in table.columns:
        if tail not in (source, target) and _are_triples(table, source, target, tail):
            keys = f'target_column = "{shown[tail]}" and type_column = "{shown[target]}"'
            return (
                f"the edges look like triples of head, relation and tail: column '{shown[target]}' has few values, and '{shown[tail]}' "
                f"shares ids with '{shown[source]}'. If they are, set {keys} in {table.section}"
            )
    return ""


def looks_like_other_ends(table: TableFiles, source: str, target: str, read: Collection[str] = ()) -> str:
    """Returns a sentence about rows that begin with their number or a time, which is read as the source; "" if it does not look so."""
    for other in table.columns:
        if other not in (source, target, *read) and _are_ends(table, source, target, other):
            return (
                f"'{target}' and '{other}' share ids, and '{source}' looks like a number or a time of the row. If they are the ends, set "
                f'source_column = "{target}" and target_column = "{other}" in {table.section}'
            )
    return ""


def _are_ends(table: TableFiles, first: str, second: str, third: str) -> bool:
    """Tells whether the second and third column share most ids, and the first one has a value of its own in each row or no id of them."""
    columns = zip((first, second, third), "abc", strict=True)
    texts = ", ".join(f"CAST({table.field(name)} AS VARCHAR) AS {letter}" for name, letter in columns)
    distinct = ", ".join(f"(SELECT count(DISTINCT {letter}) FROM t)" for letter in "abc")
    both = ", ".join(f"(SELECT count(*) FROM (SELECT {x} FROM t INTERSECT SELECT b FROM t))" for x in "ca")
    sql = f"WITH t AS (SELECT {texts} FROM ({_first_rows(table)})) SELECT (SELECT count(*) FROM t), {distinct}, {both}"
    total, firsts, seconds, thirds, shared, mixed = table.duck.rows(sql, str(table.paths[0]))[0]
    apart = firsts == total or mixed == 0
    return apart and total >= FEWEST_ROWS and shared >= max(FEWER, SHARE * max(seconds, thirds))


def _first_rows(table: TableFiles) -> str:
    return f"SELECT * FROM {table.source(0)} LIMIT {LOOKED_AT}"


def _are_triples(table: TableFiles, head: str, relation: str, tail: str) -> bool:
    columns = {name: f"CAST({table.field(name)} AS VARCHAR)" for name in (head, relation, tail)}
    rows = f"WITH t AS (SELECT {columns[head]} AS h, {columns[relation]} AS r, {columns[tail]} AS t FROM ({_first_rows(table)}))"
    number = "regexp_full_match(r, '[+-]?[0-9]+')"
    counts = (
        "(SELECT count(DISTINCT h) FROM t), (SELECT count(DISTINCT r) FROM t), (SELECT count(DISTINCT t) FROM t), "
        "(SELECT count(*) FROM (SELECT h FROM t INTERSECT SELECT t FROM t)), "
        "(SELECT count(*) FROM ((SELECT h FROM t UNION SELECT t FROM t) INTERSECT SELECT r FROM t)), "
        f"(SELECT coalesce(bool_and({number}), false) FROM t), (SELECT count(*) FROM t)"
    )
    heads, relations, tails, shared, mixed, numbers, total = table.duck.rows(
        f"{rows} SELECT {counts}", str(table.paths[0])
    )[0]
    few = 0 < relations <= MOST_RELATIONS and relations < min(heads, tails) and 2 * relations <= total
    if numbers:  # numbers of relations and of entities are the same ones
        return few and FEWER * relations <= min(heads, tails) and shared >= SHARE * min(heads, tails)
    return few and shared > 0 and mixed == 0
