"""Push, a scatter to in-neighbours: every node sums the values of its out-neighbours; and the reverse PageRank made of it.

A topology holds in-neighbours, but requests of a batch flow against the edges: a destination u needs its in-neighbours v. So each u adds
its value to the sums of its neighbours, and no transpose of the graph (4 bytes per edge more) is needed. Values are 64-bit integers,
fixed-point numbers for fractions: integer sums do not depend on the order in which threads add, so the result is the same bytes at any
thread count and on every machine. O(E): one sequential read of the topology and one random addition per edge.

The operation is also called scatter-add, and the product of the transposed adjacency matrix with a vector. Not checked: that sums stay
below 2^64; they wrap around.

The rows come from `Passes`: ranges of a topology that is mapped (`rows_in_order`), or windows of a file that exceeds the memory
(assets/sampling/edge_windows.py). No result depends on how they are cut.

Weighted reverse PageRank (Min et al.: Graph neural network training with data tiering, KDD 2022): a walker starts at a training node,
follows edges backwards, and returns to a training node with probability 1 - DAMPING. Its shares are integers of 2^-55.

Memory: 8 bytes per node for values and 8 for sums, of all nodes in `push` and of ranges in `push_by_ranges`; PageRank has two masses per
node, 16 bytes.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import as_ids, check_threads
from graphmill.kernels.errors import InputError
from graphmill.kernels.ranges import Allocate, node_ranges, sum_ranges
from graphmill.kernels.sampling.sample_layer import TopologyRows, rows_in_order
from graphmill.kernels.types import Array, Topology

Passes = Callable[[], Iterator[TopologyRows]]
"""Function that makes one pass: the rows of all nodes in order, some at a time; those before may be overwritten."""

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
    rows = TopologyRows(topology.indptr, topology.indices, topology.num_nodes)
    _add_values(rows, values, sums, 0, check_threads(threads))
    return sums


def node_slice(rows: TopologyRows) -> slice:
    """Returns the nodes of some rows, as a slice of an array with an element per node."""
    return slice(rows.first_node, rows.first_node + len(rows.indptr) - 1)


def push_by_ranges(
    passes: Passes,
    num_nodes: int,
    values_of: Callable[[TopologyRows], Array],
    take: Callable[[int, int, Array], None],
    *,
    pairs: bool = False,
    threads: int = 1,
    sums_at_once: int = 0,
) -> None:
    """Scatters values as `push` does, without an array of all values or sums: one pass over the edges per range of sums.

    Args:
        values_of: function from some rows to their nodes' values, u64[n] or u64[n, 2]; asked for all rows in every pass.
        take: function that gets (low, high, sums), the finished sums of these nodes, of the same shape.
        sums_at_once: nodes of a range; see `graphmill.kernels.ranges.sum_ranges`.

    Raises:
        InputError: an edge begins outside the graph.
    """
    for low, high in sum_ranges(num_nodes, sums_at_once):
        sums = np.zeros((high - low, 2) if pairs else high - low, np.uint64)
        for rows in passes():
            _add_values(rows, values_of(rows), sums, low, check_threads(threads))
        take(low, high, sums)


def row_arrays(rows: TopologyRows) -> tuple[Array, Array]:
    """Returns (i64[n+1], ids[m]) as kernels take them: where each row begins and ends in `indices`, and these."""
    arrays = rows.indptr - rows.first_edge if rows.first_edge else rows.indptr, rows.indices
    indptr, indices = (np.require(array, requirements=["C", "A"]) for array in arrays)
    return indptr, indices


def _add_values(rows: TopologyRows, values: Array, sums: Array, low: int, threads: int) -> None:
    """Adds the values of some rows' nodes to the sums, which are those of the nodes from `low` on."""
    values = np.require(values, requirements=["C", "A"])
    _native.push(*row_arrays(rows), values, sums, low, rows.num_nodes, threads)


def reverse_pagerank(
    topology: Topology,
    train_ids: Any,
    *,
    threads: int = 1,
    allocate: Allocate = np.zeros,
    sums_at_once: int = 0,
    passes: Passes | None = None,
) -> Array:
    """Returns f64[N]: the share of walkers at each node, multiples of 2^-55; the mass that reaches a node without in-neighbours is lost.

    Args:
        train_ids: ids[n], nodes that walkers start at and return to.
        passes: passes over the rows of the topology, None to read it where it lies.
    """
    train_ids = as_ids(train_ids, "train_ids")
    if len(train_ids) == 0:
        raise InputError("there are no training nodes to start from", "give a split with at least one node")
    numerator, denominator = map(np.uint64, DAMPING)
    back = np.uint64(WHOLE // len(train_ids)) // denominator * (denominator - numerator)
    mass, after = (allocate(topology.num_nodes, np.uint64) for _ in range(2))
    mass[train_ids] = WHOLE // len(train_ids)

    def values_of(rows: TopologyRows) -> Array:
        return mass[node_slice(rows)] // np.maximum(np.diff(rows.indptr), 1).astype(np.uint64)

    def take(low: int, high: int, sums: Array) -> None:
        after[low:high] = sums * numerator // denominator

    means: dict[str, Any] = {"threads": threads, "sums_at_once": sums_at_once}
    for _ in range(ITERATIONS):
        push_by_ranges(passes or partial(rows_in_order, topology), topology.num_nodes, values_of, take, **means)
        after[train_ids] += back
        mass, after = after, mass
    share = after.view(np.float64)  # in the place of the masses before
    for low, high in node_ranges(topology.num_nodes):
        share[low:high] = mass[low:high].astype(np.float64) / WHOLE
    return share
