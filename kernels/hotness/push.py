"""Push, a scatter to in-neighbours: every node sums the values of its out-neighbours; and the reverse PageRank made of it.

A topology holds in-neighbours, but requests of a batch flow against the edges: a destination u needs its in-neighbours v. So each u adds
its value to the sums of its neighbours, and no transpose of the graph (4 bytes per edge more) is needed. Values are 64-bit integers,
fixed-point numbers for fractions: integer sums do not depend on the order in which threads add, so the result is the same bytes at any
thread count and on every machine. O(E): one sequential read of the topology and one random addition per edge.

The operation is also called scatter-add, and the product of the transposed adjacency matrix with a vector. Not checked: that sums stay
below 2^64; they wrap around.

Weighted reverse PageRank (Min et al.: Graph neural network training with data tiering, KDD 2022): a walker starts at a training node,
follows edges backwards, and returns to a training node with probability 1 - DAMPING. Its shares are integers of 2^-55.

Memory: 8 bytes per node for values and 8 for sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels import _native
from kernels.arrays import as_ids, check_threads
from kernels.errors import InputError
from kernels.types import Array, Topology

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
        topology: the in-neighbours.
        values: u64[N], or u64[N, 2] for two sums in one pass.
        threads: number of native threads; the result does not depend on it.

    Returns:
        u64[N] or u64[N, 2]: for every node v the sum of values[u] over its out-edges (v, u), modulo 2^64.

    Raises:
        InputError: values do not fit the graph, or an edge begins outside it.
    """
    values = np.require(values, requirements=["C", "A"])
    if values.dtype != np.uint64 or values.shape not in ((topology.num_nodes,), (topology.num_nodes, 2)):
        raise InputError(f"values are {values.dtype}{list(values.shape)}", f"give uint64[{topology.num_nodes}]")
    if topology.indptr[-1] != topology.num_edges or (np.diff(topology.indptr) < 0).any():
        raise InputError("indptr is no list of row ends", "rebuild the graph with build_csc")
    sums = np.zeros_like(values)
    indptr, indices = (np.require(array, requirements=["C", "A"]) for array in (topology.indptr, topology.indices))
    _native.push(indptr, indices, values, sums, check_threads(threads))
    return sums


def reverse_pagerank(topology: Topology, train_ids: Any, *, iterations: int = ITERATIONS, threads: int = 1) -> Array:
    """Returns f64[N]: the share of walkers at each node, multiples of 2^-55; the mass that reaches a node without in-neighbours is lost.

    Args:
        topology: the in-neighbours.
        train_ids: ids[n], nodes that walkers start at and return to.
        iterations: steps of the walk.
        threads: number of native threads; the result does not depend on it.

    Raises:
        InputError: `train_ids` is empty.
    """
    train_ids = as_ids(train_ids, "train_ids")
    if len(train_ids) == 0:
        raise InputError("there are no training nodes to start from", "give a split with at least one node")
    numerator, denominator = DAMPING
    start = np.zeros(topology.num_nodes, np.uint64)
    start[train_ids] = WHOLE // len(train_ids)
    back = start // np.uint64(denominator) * np.uint64(denominator - numerator)
    degree = np.maximum(np.diff(topology.indptr), 1).astype(np.uint64)
    mass = start
    for _ in range(iterations):
        mass = back + push(topology, mass // degree, threads=threads) * np.uint64(numerator) // np.uint64(denominator)
    return mass.astype(np.float64) / WHOLE
