"""Arrays with an element per node, worked through by ranges of nodes.

A graph of a hundred million nodes makes every temporary array of an element per node a gigabyte. So they are computed for `NODES_AT_ONCE`
nodes at a time, sorted runs for `KEYS_AT_ONCE`, and sums that edges add to at random for `SUMS_AT_ONCE` nodes at a time. What has to exist
for all nodes comes from an `Allocate`: `np.zeros`, or a mapped file if it is read and written in order.

NumPy makes such arrays unasked as well: an index of int32, the argument of `bincount` and a sum with another dtype are converted first, 8
bytes per element.

Cost: each range of sums takes one pass over the edges, so who knows what is free asks for longer ones. No result depends on these numbers.
"""

from collections.abc import Callable, Iterator
from typing import Any

from graphmill.kernels.types import Array

NODES_AT_ONCE = 1 << 17
KEYS_AT_ONCE = 1 << 19
SUMS_AT_ONCE = 1 << 24

Allocate = Callable[[int, Any], Array]
"""Function from (length, dtype) to a new array of zeros; `np.zeros` is one."""


def node_ranges(num_nodes: int) -> Iterator[tuple[int, int]]:
    """Yields (low, high), ranges of nodes whose temporary arrays exist at one time."""
    return _ranges(num_nodes, NODES_AT_ONCE)


def key_ranges(num_keys: int) -> Iterator[tuple[int, int]]:
    """Yields (low, high), ranges of keys that are sorted at one time: longer ones, since every pair of them is compared."""
    return _ranges(num_keys, KEYS_AT_ONCE)


def sum_ranges(num_nodes: int, at_once: int = 0) -> Iterator[tuple[int, int]]:
    """Yields (low, high), ranges of nodes whose sums exist at one time: `at_once` of them, at least `SUMS_AT_ONCE`."""
    return _ranges(num_nodes, max(at_once, SUMS_AT_ONCE))


def _ranges(num_nodes: int, step: int) -> Iterator[tuple[int, int]]:
    return ((low, min(low + step, num_nodes)) for low in range(0, num_nodes, step))
