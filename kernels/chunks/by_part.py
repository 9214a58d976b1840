"""The nodes of each part of a graph, found by ranges of nodes, so that temporary arrays have no element per node.

Cost: O(N log R) for ranges of R nodes. Memory: an id per node, and 40 bytes for each node of a range.
"""

import numpy as np
from numpy.typing import DTypeLike

from graphmill.kernels.ranges import node_ranges
from graphmill.kernels.types import Array


def count_nodes(part_of: Array, num_parts: int) -> Array:
    """Returns i64[P], the number of nodes of each part."""
    counts = np.zeros(num_parts, np.int64)
    for low, high in node_ranges(len(part_of)):
        counts += np.bincount(part_of[low:high], minlength=num_parts)
    return counts


def nodes_by_part(part_of: Array, num_parts: int, dtype: DTypeLike) -> tuple[Array, Array]:
    """Returns ids[N], the nodes by part and then by id, and i64[P+1], the bounds of the parts among them.

    Args:
        part_of: i32[N], part of each node.
        dtype: type of the ids.
    """
    bounds = np.concatenate([[0], np.cumsum(count_nodes(part_of, num_parts))])
    nodes, begins = np.empty(len(part_of), dtype), bounds[:-1].copy()
    for low, high in node_ranges(len(part_of)):
        part = part_of[low:high]
        order, counts = np.argsort(part, kind="stable"), np.bincount(part, minlength=num_parts)
        within = np.arange(high - low) - np.repeat(np.cumsum(counts) - counts, counts)
        nodes[np.repeat(begins, counts) + within] = order + low
        begins += counts
    return nodes, bounds
