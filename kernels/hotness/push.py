"""Push, a scatter to in-neighbours: every node sums the values of its out-neighbours; and the reverse PageRank made of it.

A topology holds in-neighbours, but requests of a batch flow against the edges: a destination u needs its in-neighbours v. So each u adds
its value to the sums of its neighbours, and no transpose of the graph (4 bytes per edge more) is needed. Values are 64-bit integers,
fixed-point numbers for fractions: integer sums do not depend on the order in which threads add, so the result is the same bytes at any
thread count and on every machine. O(E): one sequential read of the topology and one random addition per edge.

The operation is also called scatter-add, and the product of the transposed adjacency matrix with a vector. Not checked: that sums stay
below 2^64; they wrap around.

Weighted reverse PageRank (Min et al.: Graph neural network training with data tiering, KDD 2022): a walker starts at a training node,
follows edges backwards, and returns to a training node with probability 1 - DAMPING. Its shares are integers of 2^-55.

Memory: 8 bytes per node for values and 8 for sums, of all nodes in `push` and of ranges in `push_by_ranges`; PageRank has two masses per
node, 16 bytes.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import as_ids, check_threads
from graphmill.kernels.errors import InputError
from graphmill.kernels.ranges import Allocate, node_ranges, sum_ranges
from graphmill.kernels.types import Array, Topology

DAMPING = 85, 100  # numerator, denominator
ITERATIONS = 10
WHOLE = 1 << 55  # all walkers together; times the numerator of DAMPING it still fits 64 bits


def push_reference(topology: Topology, values: Array) -> Array:
    """Returns the sums as `push` does (the rule in NumPy)."""
    sums = np.zeros_like(values)
    np.add.at(sums, topology.indices, np.repeat(values, np.diff(topology.indptr), axis=0))
    return sums


def push(topology: Topology, values: Array, *, threads: int = 1) -> Array:
    """Scatters the values of nodes to their in-neighbours.

    Args:
        values: u64[N], or u64[N, 2] for two sums in one pass.

    Returns:
        u64[N] or u64[N, 2]: for every node v the sum of values[u] over its out-edges (v, u), modulo 2^64.
    """
    if values.dtype != np.uint64 or values.shape not in ((topology.num_nodes,), (topology.num_nodes, 2)):
        raise InputError(f"values are {values.dtype}{list(values.shape)}", f"give uint64[{topology.num_nodes}]")
    if topology.indptr[-1] != topology.num_edges:
        raise InputError("indptr is no list of row ends", "rebuild the graph with build_csc")
    sums = np.zeros_like(values, order="C", subok=False)
    _add_values(topology, 0, values, sums, 0, check_threads(threads))
    return sums


def push_by_ranges(
    topology: Topology,
    values_of: Callable[[int, int], Array],
    take: Callable[[int, int, Array], None],
    *,
    pairs: bool = False,
    threads: int = 1,
    sums_at_once: int = 0,
) -> None:
    """Scatters values as `push` does, without an array of all values or sums: one pass over the edges per range of sums.

    Args:
        values_of: function from (first, last) to these nodes' values, u64[last - first] or u64[.., 2]; asked for every range in every pass.
        take: function that gets (low, high, sums), the finished sums of these nodes, of the same shape.
        sums_at_once: nodes of a range; see `graphmill.kernels.ranges.sum_ranges`.

    Raises:
        InputError: an edge begins outside the graph.
    """
    for low, high in sum_ranges(topology.num_nodes, sums_at_once):
        sums = np.zeros((high - low, 2) if pairs else high - low, np.uint64)
        for first, last in node_ranges(topology.num_nodes):
            _add_values(topology, first, values_of(first, last), sums, low, check_threads(threads))
        take(low, high, sums)


def _add_values(topology: Topology, first: int, values: Array, sums: Array, low: int, threads: int) -> None:
    """Adds the values of the nodes from `first` on to the sums, which are those of the nodes from `low` on."""
    arrays = topology.indptr[first : first + len(values) + 1], topology.indices, values
    indptr, indices, values = (np.require(array, requirements=["C", "A"]) for array in arrays)
    _native.push(indptr, indices, values, sums, low, topology.num_nodes, threads)


def reverse_pagerank(
    topology: Topology, train_ids: Any, *, threads: int = 1, allocate: Allocate = np.zeros, sums_at_once: int = 0
) -> Array:
    """Returns f64[N]: the share of walkers at each node, multiples of 2^-55; the mass that reaches a node without in-neighbours is lost.

    Args:
        train_ids: ids[n], nodes that walkers start at and return to.
    """
    train_ids = as_ids(train_ids, "train_ids")
    if len(train_ids) == 0:
        raise InputError("there are no training nodes to start from", "give a split with at least one node")
    numerator, denominator = map(np.uint64, DAMPING)
    back = np.uint64(WHOLE // len(train_ids)) // denominator * (denominator - numerator)
    mass, after = (allocate(topology.num_nodes, np.uint64) for _ in range(2))
    mass[train_ids] = WHOLE // len(train_ids)

    def values_of(first: int, last: int) -> Array:
        return mass[first:last] // np.maximum(np.diff(topology.indptr[first : last + 1]), 1).astype(np.uint64)

    def take(low: int, high: int, sums: Array) -> None:
        after[low:high] = sums * numerator // denominator

    for _ in range(ITERATIONS):
        push_by_ranges(topology, values_of, take, threads=threads, sums_at_once=sums_at_once)
        after[train_ids] += back
        mass, after = after, mass
    share = after.view(np.float64)  # in the place of the masses before
    for low, high in node_ranges(topology.num_nodes):
        share[low:high] = mass[low:high].astype(np.float64) / WHOLE
    return share
