"""How stored parts are opened."""

from dataclasses import dataclass

from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.read_verified import map_vector
from graphmill.assets.storage.local.require import require
from graphmill.kernels.chunks.by_part import count_nodes
from graphmill.kernels.types import Array


@dataclass(frozen=True, kw_only=True)
class Partitions:
    """Parts of a graph.

    Attributes:
        part_of: i32[N], part of each node; mapped.
        num_nodes: i64[P], number of nodes of each part.
    """

    part_of: Array
    num_parts: int
    num_nodes: Array


def open_partitions(artifact: Artifact) -> Partitions:
    """Opens and verifies the parts of a graph."""
    require(artifact, {"stage": "partitions", "arrays": {"part_of": {"dtype": "int32", "ndim": 1}}})
    part_of, num_parts = map_vector(artifact, "part_of"), int(artifact.config["parts"])
    return Partitions(part_of=part_of, num_parts=num_parts, num_nodes=count_nodes(part_of, num_parts))
