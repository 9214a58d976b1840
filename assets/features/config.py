"""The `[features]` tables, and the configuration that the stage hashes of them and of `[graph]`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from graphmill.assets.sources.interface import GraphConfig, TableConfig

MAIN = "features"
"""Step name of the main feature table; that of `[features.NAME]` is features.NAME."""


@dataclass(frozen=True, kw_only=True)
class FeatureTables:
    """The `[features]` table: the keys of the main table, and the other tables by name.

    Attributes:
        main: the keys of `[features]` itself.
        named: name -> keys of `[features.NAME]`, in the order of the file.
        alone: whether `[features]` has keys of its own, so that the main table is built as well.
    """

    main: TableConfig = field(default_factory=TableConfig)
    named: Mapping[str, TableConfig] = field(default_factory=dict)
    alone: bool = True

    def find(self, name: str) -> TableConfig:
        """Returns the table of a name, "" for the main one."""
        return self.named[name] if name else self.main


@dataclass(frozen=True, kw_only=True)
class FeaturesConfig:
    """The stage's hashed configuration; `features_config` makes it."""

    # the `[graph]` table, with paths and options of reading
    graph: GraphConfig = field(metadata={"hashed": False})
    # the keys of `[graph]` that decide the rows, with their values
    read: Mapping[str, Any]
    # the type of the stored values
    dtype: str
    # the `[features]` table, for its keys with paths
    table: TableConfig = field(metadata={"hashed": False})
    # the tensor of a file that is read instead of the source's features, and the node type of its rows
    tensor: str | None = None
    node_type: str | None = None


def features_config(graph: GraphConfig, table: TableConfig | None = None) -> FeaturesConfig:
    """Returns the configuration of a feature table, reduced to the keys that decide its rows.

    Args:
        table: the feature table, None for the main one as the source has it.

    Raises:
        InputError: the source cannot read the table.
    """
    table = table or TableConfig()
    return FeaturesConfig(
        graph=graph,
        read=graph.for_table(table).feature_keys(table),
        dtype=table.dtype,
        table=table,
        tensor=table.tensor,
        node_type=table.node_type,
    )


def step_name(table: str) -> str:
    """Returns the step name of a feature table, "" for the main one."""
    return f"{MAIN}.{table}" if table else MAIN
