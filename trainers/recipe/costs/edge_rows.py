"""The bytes of the rows of the edges of batches, whatever the technique is; 0 for a training that reads none.

A batch has each of its edges' rows once (trainers/batches/edge_rows.py). How many they are is known of drawn batches alone: no batch has
more than edges of all layers, and none more than the table has rows.
"""

from graphmill.assets.costs.needs import Sizes
from graphmill.assets.features.config import of_edges
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.recipe.costs.batch import BatchSizes
from graphmill.trainers.recipe.costs.step import item_bytes

ID_BYTES, PLACE_BYTES, LISTED_BYTES = 8, 4, 8
"""Bytes of an edge's id and of its place in a block, and of the id of a row among those of a batch."""
SORTED_BYTES = 40
"""Bytes of an edge while the places of a batch's edges are found: its id in two orders, the order itself, and places."""


def edge_row_bytes(train: TrainConfig, sizes: Sizes) -> int:
    """Returns the bytes of the row of an edge as batches have it; 0 without rows of edges."""
    return sizes.edge_width * item_bytes(train) * train.edge_features


def rows_of_batch(batch: BatchSizes, sizes: Sizes) -> int:
    """Returns the most rows of edges that a batch has."""
    return min(sum(batch.edges), sizes.num_edge_rows)


def listed_bytes(batch: BatchSizes, sizes: Sizes) -> int:
    """Returns the bytes of ids and places of the edges of a batch."""
    return (ID_BYTES + PLACE_BYTES) * sum(batch.edges) + LISTED_BYTES * rows_of_batch(batch, sizes)


def packs_edges(sizes: Sizes) -> bool:
    """Returns whether a training takes rows of edges from packed chunks."""
    role = of_edges("packed_chunks")
    return role in sizes.artifacts or role in sizes.configs


def host_rows(sizes: Sizes) -> tuple[int, bool]:
    """Returns (packed rows of edges on the host, whether they are counted)."""
    role = of_edges("cache_plan")
    if role in sizes.artifacts:
        return int(sizes.artifacts[role].summary["numbers"]["num_host_rows"]), True
    if role not in sizes.configs:
        return 0, True
    budget = sizes.configs[role].edges.num_bytes("host", sizes.edge_bytes)
    return min(sizes.num_edge_rows, budget // max(1, sizes.edge_row_bytes)), False
