"""What the first rows of a table look like, where that is something else than its keys say: a row taken for names, and triples."""

from __future__ import annotations

from collections.abc import Sequence

from graphmill.assets.sources.edges.config import NAMES
from graphmill.assets.sources.readers.duck import literal
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.sources.readers.text_layout import NUMBER

LOOKED_AT = 100_000
"""Rows of the first file that are looked at."""
MOST_RELATIONS = 256
"""Most relations of a graph."""
SHARE, FEWER = 0.3, 8
"""Share of ids that heads and tails have in common if all columns are numbers, and how many times fewer relations there are."""


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
        table: the edge table.
        source, target: names of the columns of the ends.
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
