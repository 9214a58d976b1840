"""How stored features are opened, by memory mapping; it needs only NumPy and xxhash."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.read_verified import read_vector
from graphmill.assets.storage.local.require import require
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array, Topology


def open_features(artifact: Artifact, *, verified: bool = False) -> FeatureTable:
    """Opens a features artifact without reading a row.

    Args:
        verified: whether to read `row_of`, if there is one, into memory and compare it with its digest; else it is mapped.
    """
    require(artifact, {"stage": "features", "arrays": {"rows": {"ndim": 2}}})
    columns = artifact.summary["numbers"].get("type_columns")
    table = replace(artifact.table("rows"), type_columns=None if columns is None else tuple(columns))
    if "page_digests.npy" in artifact.files:
        table = replace(table, page_digest=artifact.array("page_digests"))
    if "row_of.npy" not in artifact.files:
        return table
    return replace(table, row_of=read_vector(artifact, "row_of") if verified else artifact.array("row_of"))


@dataclass(frozen=True, kw_only=True)
class NodeTypes:
    """The node types of a graph and the columns of their features.

    Attributes:
        starts: T+1 ids: the nodes of type t are starts[t] to starts[t + 1] - 1.
        columns: T numbers of columns, 0 for a type without features.
    """

    starts: tuple[int, ...]
    columns: tuple[int, ...]

    @property
    def featureless(self) -> tuple[int, ...]:
        """The numbers of the types without features."""
        return tuple(each for each, columns in enumerate(self.columns) if not columns)


class NodeRows(Protocol):
    """Rows of the nodes of a graph: a feature table, or the shards of one; see there for the attributes."""

    @property
    def width(self) -> int: ...  # noqa: D102
    @property
    def row_of(self) -> Array | None: ...  # noqa: D102
    @property
    def type_columns(self) -> tuple[int, ...] | None: ...  # noqa: D102


def node_types(topology: Topology, rows: NodeRows) -> NodeTypes | None:
    """Returns the node types of a graph with the columns of their features; None if its nodes have no types.

    Args:
        rows: the features. If they do not say the columns of types, a type has all of them if its first node has a row.
    """
    if topology.node_type_ptr is None:
        return None
    starts, columns = tuple(int(first) for first in topology.node_type_ptr), rows.type_columns
    if columns is None:
        there = [low < high and (rows.row_of is None or rows.row_of[low] >= 0) for low, high in pairwise(starts)]
        columns = tuple(rows.width if each else 0 for each in there)
    return NodeTypes(starts=starts, columns=columns)


def require_edges(table: FeatureTable, topology: Topology) -> None:
    """Refuses rows of edges that a graph does not name: it has no edge ids, or larger ones."""
    if topology.edge_ids is None:
        problem = f"{table.path.parent} has rows of edges, and the graph keeps no ids of its edges"
        raise InputError(problem, "build both from one source: graphmill build PIPELINE")


def require_nodes(table: FeatureTable, num_nodes: int, other: str) -> None:
    """Refuses features of another graph.

    Args:
        other: name of the thing with these nodes, for the error.
    """
    if table.num_nodes != num_nodes:
        problem = f"the features in {table.path.parent} are about {table.num_nodes} nodes, {other} about {num_nodes}"
        raise InputError(problem, "build both from one source: graphmill build PIPELINE")
