"""The profile of a graph in tables: what columns hold, degrees, classes by split, and what looks like a leak.

All columns are read once, those of ids several times, in a bounded memory: DuckDB keeps to its limit and spills to disk, and counts the
degrees of nodes, too, so that nothing here grows with the tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from graphmill.assets.sources.edges.config import EdgeTableKeys
from graphmill.assets.sources.edges.node_tables import SPLITS
from graphmill.assets.sources.folder.guess import NUMBERED
from graphmill.assets.sources.folder.tables import ColumnProfile, FoundTable
from graphmill.assets.sources.interface import GraphConfig
from graphmill.assets.sources.profile.graph import Ids, Joined, TableGraph, as_typed, described_graph
from graphmill.assets.sources.readers.duck import Duck, literal, scratch_duck
from graphmill.assets.sources.tables.config import TypedTableKeys
from graphmill.kernels.errors import one_line


@dataclass(frozen=True)
class EndProfile:
    """One end of a relation: how often its rows name the nodes of a type.

    Attributes:
        gaps: number of rows without an id.
        values, inside: number of different ids, and of those that are ids of the node type.
        lost: number of rows whose id is none of the node type.
        least, median, most: edges of a node of the type, all its nodes counted.
        isolated: number of nodes of the type that no row names at this end.
    """

    column: str
    node_type: str
    gaps: int
    values: int
    inside: int
    lost: int
    least: int
    median: int
    most: int
    isolated: int


@dataclass(frozen=True)
class RelationProfile:
    """A relation and its two ends, that of the source first."""

    name: str
    source: str
    target: str
    edges: int
    ends: tuple[EndProfile, ...]


def profile_relations(graph: TableGraph, duck: Duck) -> list[RelationProfile]:
    """Returns the profiles of the relations of a graph."""
    return [
        RelationProfile(
            each.name,
            *(node_type for _, node_type in each.ends),
            edges=each.table.rows,
            ends=tuple(_end(graph, each, place, duck) for place in range(2)),
        )
        for each in graph.relations
    ]


def isolated_nodes(graph: TableGraph, duck: Duck) -> dict[str, int]:
    """Returns node type -> number of its nodes that no edge of any relation names."""
    found = {}
    for name, ids in graph.node_types.items():
        named = [_values(each, place) for each in graph.relations for place in range(2) if each.ends[place][1] == name]
        if named and (ids.table is not None or ids.count is not None):
            joined = " UNION ALL ".join(named)
            sql = f"SELECT count(*) FROM ({_ids(graph, name)}) ANTI JOIN ({joined}) USING (v)"
            found[name] = int(duck.rows(sql)[0][0])
    return found


def _end(graph: TableGraph, relation: Joined, place: int, duck: Duck) -> EndProfile:
    column, node_type = relation.ends[place]
    degrees = f"SELECT v, count(*) AS n FROM ({_values(relation, place)}) WHERE v IS NOT NULL GROUP BY v"
    joined = f"({degrees}) AS d FULL JOIN ({_ids(graph, node_type)}) AS i ON d.v = i.v"
    counts: Sequence[tuple[bool, bool, int, int]] = duck.rows(
        f"SELECT i.v IS NOT NULL, d.v IS NOT NULL, coalesce(n, 0), count(*) FROM {joined} GROUP BY ALL ORDER BY ALL"
    )  # type: ignore[assignment]
    of_nodes = [(degree, count) for is_node, _, degree, count in counts if is_node]
    inside = sum(count for is_node, named, _, count in counts if is_node and named)
    values = sum(count for _, named, _, count in counts if named)
    rows = sum(degree * count for _, _, degree, count in counts)
    return EndProfile(
        column=column,
        node_type=node_type,
        gaps=relation.table.rows - rows,
        values=values,
        inside=inside,
        lost=sum(degree * count for is_node, _, degree, count in counts if not is_node),
        least=min((degree for degree, _ in of_nodes), default=0),
        median=_median(sorted(of_nodes)),
        most=max((degree for degree, _ in of_nodes), default=0),
        isolated=sum(count for degree, count in of_nodes if not degree),
    )


def _median(counts: Sequence[tuple[int, int]]) -> int:
    """Returns the median of numbers that are given as (number, how often), in ascending order; of two in the middle the lower one."""
    left = (sum(count for _, count in counts) + 1) // 2
    for number, count in counts:
        left -= count
        if left <= 0:
            return number
    return 0


def _values(relation: Joined, place: int) -> str:
    """Returns the query of the ids of one end as text, in a column `v`."""
    return _as_text(relation.table.files.union(relation.table.files.field(relation.ends[place][0]), distinct=False))


def _ids(graph: TableGraph, node_type: str) -> str:
    """Returns the query of the ids of a node type as text, in a column `v`; without a table and a number those that edges name."""
    ids: Ids = graph.node_types[node_type]
    if ids.table is not None:
        return _as_text(ids.table.files.union(ids.table.files.field(ids.column)))
    if ids.count is not None:
        return f"SELECT CAST(range AS VARCHAR) AS v FROM range({ids.count})"
    named = [_values(each, place) for each in graph.relations for place in range(2) if each.ends[place][1] == node_type]
    return f"SELECT DISTINCT v FROM ({' UNION ALL '.join(named)}) WHERE v IS NOT NULL"


def _as_text(query: str) -> str:
    return f"SELECT CAST(v AS VARCHAR) AS v FROM ({query})"


MEMORY = 1 << 30
"""Working memory of DuckDB, in bytes."""
PARTS = ("train", "valid", "test")
FEWEST_ROWS = 5
"""Rows that a value of a column has on average, from which it may tell the class by itself."""


@dataclass(frozen=True)
class ClassProfile:
    """A class: number of its rows, and of those in each part of the split, if a column has it."""

    name: str
    rows: int
    parts: Mapping[str, int]


@dataclass(frozen=True)
class Profile:
    """The profile.

    Attributes:
        isolated: node type -> number of nodes without an edge.
        classes: the most frequent one first; words that mean no label are among them.
        leaks: sentences about columns that may tell the class, or identify the row.
    """

    graph: TableGraph
    relations: Sequence[RelationProfile]
    isolated: Mapping[str, int]
    classes: Sequence[ClassProfile]
    leaks: Sequence[str]

    def values(self) -> dict[str, Any]:
        """Returns all of it as JSON has it."""
        graph = self.graph
        tables = {
            each.name: {
                "path": str(each.path),
                "rows": each.rows,
                "columns": [c.values() | {"taken_for": graph.roles[each.name][c.name]} for c in each.columns],
            }
            for each in graph.tables
        }
        relations = {
            each.name: asdict(each) | {"ends": {end.column: asdict(end) for end in each.ends}}
            for each in self.relations
        }
        return {
            "tables": tables,
            "relations": relations,
            "isolated": dict(self.isolated),
            "label": None if graph.label is None else {"table": graph.label[0].name, "column": graph.label[1]},
            "classes": {each.name: each.rows for each in self.classes},
            "classes_by_split": {each.name: dict(each.parts) for each in self.classes if each.parts},
            "leaks": list(self.leaks),
            "not_read": list(graph.problems),
        }


def make_profile(graph: TableGraph, duck: Duck) -> Profile:
    """Returns the profile of the tables of a graph, which are read; raises InputError if a file cannot be read."""
    return Profile(
        graph=graph,
        relations=profile_relations(graph, duck),
        isolated=isolated_nodes(graph, duck),
        classes=_classes(graph),
        leaks=[*_leaks(graph)],
    )


@contextmanager
def profiled(config: GraphConfig) -> Iterator[Profile | None]:
    """Yields the profile of the tables that a pipeline names, whose files are open; None for a source that reads no tables.

    Raises:
        InputError: a file cannot be read, or lacks a column that a key names.
    """
    typed = as_typed(config) if isinstance(config, EdgeTableKeys) else config
    if not isinstance(typed, TypedTableKeys):
        yield None
        return
    with scratch_duck(MEMORY, "profile") as duck:
        graph = described_graph(typed, duck)
        if isinstance(config, EdgeTableKeys) and config.nodes is None:
            graph = replace(graph, node_types={"nodes": Ids(None, count=config.num_nodes)})
        yield make_profile(graph, duck)


def _classes(graph: TableGraph) -> list[ClassProfile]:
    if graph.label is None:
        return []
    table, column = graph.label
    files = table.files
    split = "NULL" if graph.split is None else f"lower(trim(CAST({files.field(graph.split)} AS VARCHAR)))"
    rows = " UNION ALL ".join(
        f"SELECT CAST({files.field(column)} AS VARCHAR) AS v, {split} AS part FROM {files.source(number)}"
        for number in range(len(files.paths))
    )
    sql = f"SELECT v, part, count(*) FROM ({rows}) WHERE v IS NOT NULL GROUP BY v, part"
    counts: dict[str, dict[str, int]] = {}
    for name, part, count in files.duck.rows(sql, str(files.paths[0])):
        of_class, place = counts.setdefault(one_line(str(name)), {}), PARTS[SPLITS[part]] if part in SPLITS else ""
        of_class[place] = of_class.get(place, 0) + int(count)
    found = [
        ClassProfile(name, sum(of.values()), {} if graph.split is None else {part: of.get(part, 0) for part in PARTS})
        for name, of in counts.items()
    ]
    return sorted(found, key=lambda each: (-each.rows, each.name))


def _leaks(graph: TableGraph) -> Iterator[str]:
    for table in graph.tables:
        for name in graph.features.get(table.name, ()):
            yield from _identifies(graph, table, table.column(name))
    for table in graph.tables:
        for name in graph.features.get(table.name, ()):
            if graph.roles[table.name][name].startswith("label"):
                yield f"{name} of {table.name} is the label and a feature: a model would read what it is to predict"
    if graph.label is None:
        return
    table, label = graph.label
    features = graph.features.get(table.name, ())
    for each in (table.column(name) for name in features):
        few = 1 < each.distinct * FEWEST_ROWS <= each.rows and "*" not in each.name
        if few and each.name != label and _tells(graph, each.name):
            yield f"each value of {each.name} has one {label}: if it comes from the label, leave it out"


def _identifies(graph: TableGraph, table: FoundTable, column: ColumnProfile) -> Iterator[str]:
    """Yields that a feature is an id: by what it is taken for, or by a value per row that is no measurement."""
    role, files = graph.roles[table.name][column.name], table.files
    alone = column.kind == "whole" or (column.kind == "text" and " " not in column.example)
    # The number of different values is an estimate.
    if alone and "*" not in column.name and column.distinct > 0.9 * column.rows > 1:
        sql = f"SELECT count(DISTINCT v) FROM ({files.union(files.field(column.name), distinct=False)})"
        alone = files.duck.rows(sql, str(files.paths[0]))[0][0] > NUMBERED * column.rows
    else:
        alone = False
    if role.startswith("id") or alone:
        yield f"{column.name} of {table.name} has a value per row and is a feature: an id tells a model nothing of new rows"


def _tells(graph: TableGraph, column: str) -> bool:
    """Tells whether rows with one value of a column of the labelled table have one class."""
    assert graph.label is not None
    files, label = graph.label[0].files, graph.label[1]
    fields = f"{files.field(column)} AS c, CAST({files.field(label)} AS VARCHAR) AS k"
    rows = " UNION ALL ".join(f"SELECT {fields} FROM {files.source(n)}" for n in range(len(files.paths)))
    unknown = ", ".join(map(literal, ("", *graph.no_label)))
    known = f"c IS NOT NULL AND k IS NOT NULL AND lower(trim(k)) NOT IN ({unknown})"
    sql = f"SELECT count(DISTINCT (c, k)) = count(DISTINCT c) FROM ({rows}) WHERE {known}"
    return bool(files.duck.rows(sql, str(files.paths[0]))[0][0])


MOST_BARS = 16
"""Ranges of numbers, and most values that are counted apart."""
COUNTED = 40
"""Most different values of a column of texts that is counted: of more, the frequent ones say little."""


def column_bars(table: FoundTable, column: ColumnProfile) -> list[tuple[str, int]]:
    """Returns (value or smallest value of a range, rows) for each bar, ranges in order; none of lists and of texts that differ."""
    files, field = table.files, table.files.field(column.first)
    if column.kind in ("list", "other"):
        return []
    if column.kind in ("whole", "number", "time") and column.distinct > MOST_BARS:
        number = f"epoch(TRY_CAST({field} AS TIMESTAMP))" if column.kind == "time" else f"TRY_CAST({field} AS DOUBLE)"
        place = f"CAST(least({MOST_BARS - 1}, floor({MOST_BARS} * (v - low) / (high - low))) AS INTEGER)"
        sql = (
            f"WITH x AS (SELECT v FROM ({files.union(number, distinct=False)}) WHERE isfinite(v)), "
            "ends AS (SELECT min(v) AS low, max(v) AS high FROM x) "
            f"SELECT {place} AS place, count(*), any_value(low), any_value(high) FROM x, ends WHERE high > low GROUP BY place"
        )
        found = {
            int(place): (int(rows), low, high) for place, rows, low, high in files.duck.rows(sql, str(files.paths[0]))
        }
        if not found:
            return []
        _, low, high = next(iter(found.values()))
        width = (high - low) / MOST_BARS
        return [(f"{low + place * width:.4g}", found.get(place, (0,))[0]) for place in range(MOST_BARS)]
    if column.distinct > COUNTED:
        return []
    values = files.union(f"CAST({field} AS VARCHAR)", distinct=False)
    order = "TRY_CAST(v AS DOUBLE), v" if column.kind in ("whole", "number", "time") else "n DESC, v"
    sql = f"SELECT v, count(*) AS n FROM ({values}) WHERE v IS NOT NULL GROUP BY v ORDER BY {order} LIMIT {MOST_BARS}"
    return [(str(value), int(rows)) for value, rows in files.duck.rows(sql, str(files.paths[0]))]
