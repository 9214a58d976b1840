"""Opens the tables of a configuration, and says which columns other keys than `features` name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphmill.assets.sources.readers.duck import Duck
from graphmill.assets.sources.readers.table_files import TableFiles

if TYPE_CHECKING:
    from graphmill.assets.sources.edges.config import EdgeTableKeys

OF_EDGES = ("source_column", "target_column", "weight_column", "type_column")
OF_NODES = ("id_column", "label_column", "split_column", "name_column")
"""Keys of `[graph]` that name a column of the tables."""


def open_table(config: EdgeTableKeys, duck: Duck, key: str) -> TableFiles:
    """Opens the files of `edges`, `nodes` or `feature_entries`.

    Raises:
        InputError: a pattern names no file, formats are mixed, or a file has no readable header.
    """
    taken = named_by(config, OF_NODES)
    if set(config.patterns("edges")) & set(config.patterns("nodes")):
        taken |= named_by(
            config, OF_EDGES
        )  # one table of nodes that each name a node, such as comments and what they answer
    return TableFiles(duck, config.patterns(key), key, config.text_form(key), taken if key == "nodes" else {})


def named_by(keys: Any, roles: tuple[str, ...]) -> dict[str, str]:
    """Returns column -> the key that names it, for each of `roles` that names one."""
    return {getattr(keys, role): role for role in roles if getattr(keys, role) is not None}
