"""Words for the contents of a source that a build leaves: `inspect` and the line of the build name them once."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphmill.kernels.errors import one_line

EDGE_TABLE = "edges"
"""Name of the table of rows of edges, of which no table of rows of nodes is called."""
MOST_NAMES = 8
"""Names that are shown of a list."""


def unread_words(one: str, several: str, names: Iterable[str], where: str = "") -> list[str]:
    """Returns one phrase for names that are not read, such as "columns a, b of the edge tables"; none without names."""
    listed = [*map(one_line, names)]
    if not listed:
        return []
    more = len(listed) - MOST_NAMES
    shown = ", ".join(listed[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
    return [f"{one if len(listed) == 1 else several} {shown}{where}"]


def unread_notes(unread: Sequence[str]) -> list[str]:
    """Returns the line of a survey about phrases of what is not read; none without phrases."""
    return [f"not read: {'; '.join(unread)}"] if unread else []


def named_tables(tables: Any) -> dict[str, Mapping[str, Any]]:
    """Returns the `[features.NAME]` tables of a pipeline file's `[features]` that are about nodes; their form is not checked yet."""
    found = tables if isinstance(tables, Mapping) else {}
    return {
        name: keys for name, keys in found.items() if isinstance(keys, Mapping) and name not in ("encode", EDGE_TABLE)
    }


def has_edge_table(tables: Any) -> bool:
    """Returns whether a pipeline file's `[features]` has the table of rows of edges, whose form is not checked yet."""
    return isinstance(tables, Mapping) and isinstance(tables.get(EDGE_TABLE), Mapping)


def all_tables(tables: Any) -> list[Mapping[str, Any]]:
    """Returns the keys of `[features]` and of each `[features.NAME]`; none if the file has no such table."""
    return [tables, *named_tables(tables).values()] if isinstance(tables, Mapping) else []


def named_columns(tables: Any) -> tuple[str, ...]:
    """Returns the `columns` of the `[features]` tables of a pipeline file, whose form is not checked yet."""
    found: list[str] = []
    for value in all_tables(tables):
        columns = value.get("columns")
        listed = columns if isinstance(columns, list) else [columns]
        found += [each for each in listed if isinstance(each, str)]
    return tuple(dict.fromkeys(found))


def encodes(graph: Mapping[str, Any]) -> bool:
    """Returns whether `[graph]`, or the table of a node type in it, has encoders; the forms of the tables are not checked yet."""
    nodes = graph.get("nodes")
    inner = nodes.values() if isinstance(nodes, Mapping) else ()
    return any("encode" in each for each in (graph, *(table for table in inner if isinstance(table, Mapping))))


def asked_by_features(tables: Any) -> dict[str, Any]:
    """Returns the wishes of `[features]`, whose form is not checked yet, about a source, by the names of `GraphConfig`."""
    encodes = any("encode" in each for each in all_tables(tables))
    return {"feature_columns": named_columns(tables), "encodes": encodes, "edge_rows": has_edge_table(tables)}
