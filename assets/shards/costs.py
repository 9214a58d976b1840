"""What shards take of the machine."""

from typing import Any

from graphmill.assets.costs.needs import LIBRARIES, Need, Sizes, Term
from graphmill.kernels.ranges import NODES_AT_ONCE


def shards_need(semantic: Any, execution: Any, sizes: Sizes) -> Need:
    """Returns the need of the shards stage; the written files are mapped."""
    nodes = sizes.num_nodes
    lists = Term("lists of the nodes of each part", 9 * nodes + 24 * min(nodes, NODES_AT_ONCE))
    stored = sizes.feature_bytes + (4 + sizes.id_bytes) * sizes.num_nodes
    return Need(name="shards", phases=((LIBRARIES, lists),), stored=stored, work=sizes.feature_bytes)
