"""The columns of tables that nothing reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphmill.assets.sources.edges.entries import KEY, entry_columns
from graphmill.assets.sources.edges.open_table import OF_EDGES, OF_NODES, open_table
from graphmill.assets.sources.readers.table_features import feature_columns
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.sources.unread import unread_words
from graphmill.kernels.errors import InputError

if TYPE_CHECKING:
    from graphmill.assets.sources.edges.config import EdgeTableKeys


def unread_columns(config: EdgeTableKeys, edges: TableFiles, nodes: TableFiles | None) -> list[str]:
    """Returns phrases about the columns that no key of the pipeline names.

    Args:
        config: configuration of the source.
        edges, nodes: the tables.
    """
    found = unread_of(edges, {getattr(config, key) for key in OF_EDGES}, "the edge tables")
    if nodes is not None:
        read = {getattr(config, key) for key in OF_NODES}
        for features in (config.features, *config.feature_columns):
            read |= features_read(nodes, features)
        found += unread_of(nodes, read, "the node tables")
    if config.feature_entries is not None:
        entries = open_table(config, edges.duck, KEY)
        found += unread_of(entries, set(entry_columns(entries, config)), "the feature entries")
    return found


def features_read(nodes: TableFiles, features: str | tuple[str, ...] | None) -> set[str]:
    """Returns the columns that a key of features names; none if it fits no column, which the table of features reports."""
    try:
        return set() if features is None else set(feature_columns(nodes, features))
    except InputError:
        return set()


def unread_of(table: TableFiles, read: set[str | None], where: str) -> list[str]:
    """Returns phrases about the columns of a table that are not among those that are read; `where` names the table."""
    names = [name for name in table.columns if name not in read]
    return unread_words("column", "columns", names, f" of {where}")
