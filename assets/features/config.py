"""The `[features]` tables, and the configuration that the stage hashes of them and of `[graph]`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from graphmill.assets.costs.needs import EDGE_ROLE
from graphmill.assets.sources.interface import GraphConfig, TableConfig
from graphmill.assets.sources.unread import EDGE_TABLE
from graphmill.kernels.errors import InputError

MAIN = "features"
"""Step name of the main feature table; that of `[features.NAME]` is features.NAME."""
EDGES = EDGE_ROLE
"""Step name of the table of rows of edges, and its role in a training."""


def of_edges(stage: str) -> str:
    """Returns the step name of a stage about rows of edges, and its role in a training: the stage has one of its own name for nodes."""
    return f"{stage}.{EDGE_TABLE}"


@dataclass(frozen=True, kw_only=True)
class FeatureTables:
    """The `[features]` table: the keys of the main table, and the other tables by name.

    Attributes:
        named: name -> keys of `[features.NAME]`, in the order of the file.
        alone: whether `[features]` has keys of its own, so that the main table is built as well.
        edges: the keys of `[features.edges]`, the rows of edges; None without.
        of_relations: relation -> keys of `[features.edges.RELATION]`, the rows of its edges; {} if one table has those of all.
    """

    main: TableConfig = field(default_factory=TableConfig)
    named: Mapping[str, TableConfig] = field(default_factory=dict)
    alone: bool = True
    edges: TableConfig | None = None
    of_relations: Mapping[str, TableConfig] = field(default_factory=dict)

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
    # whether the rows are those of edges
    of_edges: bool = field(default=False, metadata={"hashed": "unless default"})
    # relation -> the table with the rows of its edges, whose files' digests have the names of the relations
    of_relations: Mapping[str, TableConfig] = field(default_factory=dict, metadata={"hashed": False})

    @property
    def normalize(self) -> Literal["none", "row"]:
        """Whether rows are divided by their sums: `normalize` of [graph] is about rows of nodes."""
        return "none" if self.of_edges else self.graph.normalize


def features_config(
    graph: GraphConfig,
    table: TableConfig | None = None,
    *,
    of_edges: bool = False,
    of_relations: Mapping[str, TableConfig] | None = None,
) -> FeaturesConfig:
    """Returns the configuration of a feature table, reduced to the keys that decide its rows.

    Args:
        table: the feature table, None for the main one as the source has it.

    Raises:
        InputError: the source cannot read the table.
    """
    table, of_relations = table or TableConfig(), of_relations or {}
    if of_edges:
        require_edge_table(graph, table, of_relations)
    beside = of_edges and (table.file is not None or bool(of_relations))
    return FeaturesConfig(
        graph=graph,
        read={} if beside else graph.for_table(table).feature_keys(table),
        dtype=table.dtype,
        table=table,
        tensor=table.tensor,
        node_type=table.node_type,
        of_edges=of_edges,
        of_relations=of_relations,
    )


def require_edge_table(graph: GraphConfig, table: TableConfig, of_relations: Mapping[str, TableConfig]) -> None:
    """Raises InputError unless a source has rows of edges, or takes them from a file, or from files of relations."""
    for name, own in of_relations.items():
        if own.file is None or own != TableConfig(file=own.file, tensor=own.tensor):
            raise InputError(
                f"{name}: the rows of a relation have the keys file and tensor",
                "give it a file, and write other keys in [features.edges]",
            )
    if of_relations and table.file is not None:
        problem = (
            f"file = {str(table.file)!r} has the rows of all edges, and {next(iter(of_relations))} has rows of its own"
        )
        raise InputError(problem, "leave one of them out")
    if table.node_type is not None:
        raise InputError(f"node_type = {table.node_type!r}, but rows of edges are of no node type", "leave it out")
    if table.columns is not None or table.encode is not None:
        key = "columns" if table.columns is not None else "encode"
        raise InputError(
            f"{key} is for rows of nodes; rows of edges are read as they are", "give a file, or leave it out"
        )
    if not graph.takes_edge_rows:
        problem = f"source = '{graph.source}' gives its edges no ids, by which their rows are found"
        raise InputError(problem, "take another source: docs/own-data.md")
    if table.file is None and not of_relations and not graph.has_edge_rows:
        problem = f"source = '{graph.source}' has no rows of edges of its own"
        raise InputError(problem, "give a file [E, F] with a row for each edge, in the order of the source")


def step_name(table: str) -> str:
    """Returns the step name of a feature table, "" for the main one."""
    return f"{MAIN}.{table}" if table else MAIN
