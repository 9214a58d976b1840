"""Opens the tables of a configuration, and says which columns keys name: other keys than `features`, and none at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphmill.assets.sources.edges.entries import KEY, entry_columns
from graphmill.assets.sources.edges.node_tables import label_columns
from graphmill.assets.sources.readers.duck import Duck
from graphmill.assets.sources.readers.packing import unchecked_words
from graphmill.assets.sources.readers.table_features import feature_columns
from graphmill.assets.sources.readers.table_files import TableFiles
from graphmill.assets.sources.unread import unread_words
from graphmill.kernels.errors import InputError

if TYPE_CHECKING:
    from graphmill.assets.sources.edges.config import EdgeTableKeys


def open_table(config: EdgeTableKeys, duck: Duck, key: str) -> TableFiles:
    """Opens the files of `edges`, `nodes` or `feature_entries`.

    Raises:
        InputError: a pattern names no file, formats are mixed, or a file has no readable header.
    """
    taken = named_by(config, config.node_roles)
    if set(config.patterns("edges")) & set(config.patterns("nodes")):
        # One table of nodes that each name a node, such as comments and what they answer.
        taken |= named_by(config, config.edge_roles)
    table = TableFiles(duck, config.patterns(key), key, config.text_form(key), taken if key == "nodes" else {})
    if key == "nodes":
        table.taken.update(dict.fromkeys(labels_read(table, config), "label_columns"))
    return table


def named_columns(keys: Any, roles: Sequence[str]) -> dict[str, str]:
    """Returns key -> the column that it names, for each of `roles` that names one."""
    return {role: name for role in roles if (name := getattr(keys, role)) is not None}


def named_by(keys: Any, roles: Sequence[str]) -> dict[str, str]:
    """Returns column -> the key that names it, for each of `roles` that names one."""
    return {name: role for role, name in named_columns(keys, roles).items()}


def unread_columns(config: EdgeTableKeys, edges: TableFiles, nodes: TableFiles | None) -> list[str]:
    """Returns phrases about the columns that no key of the pipeline names."""
    found = unread_of(edges, {*named_by(config, config.edge_roles)}, "the edge tables")
    if nodes is not None:
        read = {*named_by(config, config.node_roles), *labels_read(nodes, config)}
        for features in (config.features, *config.feature_columns):
            read |= features_read(nodes, features)
        found += unread_of(nodes, read, "the node tables")
    if config.feature_entries is not None:
        entries = open_table(config, edges.duck, KEY)
        found += unread_of(entries, set(entry_columns(entries, config)), "the feature entries")
    return found


def labels_read(nodes: TableFiles, config: EdgeTableKeys) -> list[str]:
    """Returns the columns of several labels or of numbers; none if a name fits no column, which the reader of labels reports."""
    try:
        return label_columns(nodes, config, config.task)
    except InputError:
        return []


def features_read(nodes: TableFiles, features: str | tuple[str, ...] | None) -> set[str]:
    """Returns the columns that a key of features names; none if it fits no column, which the table of features reports."""
    try:
        return set() if features is None else set(feature_columns(nodes, features))
    except InputError:
        return set()


def unread_of(table: TableFiles, read: set[str], where: str) -> list[str]:
    """Returns phrases about columns of a table that are not among those that are read, and checksums that its files lack."""
    names = [name for name in table.columns if name not in read]
    return [*unread_words("column", "columns", names, f" of {where}"), *unchecked_words(table.paths)]
