"""The degrees of nodes in the relations of tables, counted by DuckDB within its memory: nothing here grows with the tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphmill.assets.sources.profile.graph import Ids, Joined, TableGraph
from graphmill.assets.sources.readers.duck import Duck


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
