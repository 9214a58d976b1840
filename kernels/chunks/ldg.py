"""Partitions by streaming: nodes pass one after the other, and each goes to the part that has most of its neighbours and room for it.

Linear deterministic greedy (Stanton and Kliot: Streaming graph partitioning for large distributed graphs, KDD 2012), with restreaming
(Nishimura and Ugander, KDD 2013): from the second pass on a node sees the parts of all its neighbours, its own part of the pass before
included. Node v goes to the part i that maximises

    |in-neighbours of v in i| x (share of the room that is left in i)

where room is measured in nodes, edges and training nodes at once, and the fullest measure counts. A part that lacks room for v in any
measure is not a candidate. A node whose neighbours' parts are all full, or that has none, stays where it is if it fits there; else it goes
to the part of the least strain, of those that it fits into if there are any:

    strain of v in part i = sum over measures c of (weight of v in c) x (load of i in c), both as shares of the capacity

So a hub leaves a part that has its edges for one that has its nodes, and a node of few edges takes the other way; with the fullest measure
alone parts that are too full in different measures block each other. Ties go to the part that the node is in, then to the lower number.

Started from a partition that is out of balance, a pass repairs it: nodes leave parts only if the score is higher elsewhere or their part is
over its capacity.

Every decision follows from the one before, so one thread makes them and the result is the same everywhere. Time: O(E) per pass, bound by
reading the neighbours' parts (4 N bytes) at random. Memory beside the mapped topology: 4 N bytes for the parts, 8 N per measure.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import as_ids, as_int32
from graphmill.kernels.chunks.by_part import nodes_by_part
from graphmill.kernels.chunks.cut import check_edges, check_order
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

MOST_PARTS = 4096


def ldg_reference(
    indptr: Array, indices: Array, weights: Array, capacity: Array, num_parts: int, part_of: Array, order: Array
) -> Array:
    """Returns i32[N] after one pass (the rule, node by node)."""
    part_of = part_of.copy()
    load = np.zeros((num_parts, len(capacity)), np.int64)
    for v in np.flatnonzero(part_of >= 0).tolist():
        load[part_of[v]] += weights[v]

    def room(part: int) -> float:
        return min([1.0, *(1 - float(load[part, c]) / float(capacity[c]) for c in range(len(capacity)) if capacity[c])])

    def fits(part: int, v: int) -> bool:
        return all(load[part, c] + w <= capacity[c] for c, w in enumerate(weights[v]) if w)

    def strain(part: int, v: int) -> float:
        sums = 0.0
        for c in range(len(capacity)):
            if capacity[c]:
                sums += float(weights[v, c]) / float(capacity[c]) * (float(load[part, c]) / float(capacity[c]))
        return sums

    for v in map(int, order):
        before = int(part_of[v])
        if before >= 0:
            load[before] -= weights[v]
        found = [int(part_of[u]) for u in indices[indptr[v] : indptr[v + 1]] if u != v and part_of[u] >= 0]
        scored = [(-found.count(part) * room(part), part != before, part) for part in set(found) if fits(part, v)]
        if scored:
            best = min(scored)[2]
        elif before >= 0 and fits(before, v):
            best = before
        else:
            best = min(range(num_parts), key=lambda part: (not fits(part, v), strain(part, v), part))
        part_of[v] = best
        load[best] += weights[v]
    return part_of


def ldg(
    indptr: Any, indices: Any, weights: Any, num_parts: int, *, passes: int = 1, slack: float = 0.05,
    part_of: Array | None = None, order: Array | None = None, advance: Callable[[int], None] = lambda num_passes: None,
) -> Array:  # fmt: skip
    """Assigns nodes to parts.

    Args:
        indptr, indices: i64[N+1] and ids[E], the in-neighbours; either may be mapped.
        weights: i64[N, C], weight of each node in each measure; capacities are (1 + slack) x sum / parts, at least the largest weight.
        num_parts: 1 to 4,096.
        slack: share by which a part may be fuller than the mean.
        part_of: i32[N], part of each node before; -1 or None for no part. Not changed.
        order: ids[N], the order of the stream; None for ascending ids.
        advance: function that gets the number of passes that ended since its last call.

    Returns:
        i32[N]. No part exceeds a capacity, unless a node fits nowhere.
    """
    if not 1 <= num_parts <= MOST_PARTS or passes < 0 or slack < 0:
        problem = f"num_parts = {num_parts}, passes = {passes}, slack = {slack}"
        raise InputError(problem, f"give 1 to {MOST_PARTS} parts, 0 passes or more, a slack of 0 or more")
    num_nodes = len(indptr) - 1
    weights = np.ascontiguousarray(weights, np.int64)
    if weights.ndim != 2 or len(weights) != num_nodes:
        raise InputError(f"weights are {list(weights.shape)}", f"give weights as int64[{num_nodes}, measures]")
    given = np.full(num_nodes, -1, np.int32) if part_of is None else as_int32(part_of, "part_of", num_nodes)
    if len(given) and not -1 <= given.min() <= given.max() < num_parts:
        raise InputError(f"part_of has parts {given.min()} to {given.max()}", f"give -1 to {num_parts - 1}")
    indices = check_edges(indptr, indices)
    out = given.copy()
    sequence = np.empty(0, indices.dtype) if order is None else check_order(order, num_nodes).astype(indices.dtype)
    capacity = capacities(weights, num_parts, slack)
    run = _native.ldg32 if indices.dtype == np.int32 else _native.ldg64
    for _ in range(passes):
        moved = run(np.asarray(indptr), indices, sequence, weights, capacity, num_parts, out)
        advance(1)
        if moved == 0:
            break
    return out


def capacities(weights: Array, num_parts: int, slack: float) -> Array:
    """Returns i64[C], the capacity of a part in each measure."""
    sums, largest = weights.sum(axis=0), weights.max(axis=0, initial=0)
    return np.maximum(np.ceil(sums * (1 + slack) / num_parts).astype(np.int64), largest)


def cut_matrix(indptr: Any, indices: Any, part_of: Array, num_parts: int) -> Array:
    """Returns i64[P, P]: in row i and column j the edges that lead from part j to part i."""
    indices = as_ids(indices, "indices")
    counts = np.zeros((num_parts, num_parts), np.int64)
    run = _native.cut_matrix32 if indices.dtype == np.int32 else _native.cut_matrix64
    run(np.asarray(indptr), indices, as_int32(part_of, "part_of", len(indptr) - 1), num_parts, counts)
    return counts


def count_replicas(indptr: Any, indices: Any, part_of: Array, num_parts: int) -> int:
    """Returns the sum over parts of their nodes and in-neighbours, each once: N x the replication factor (HongTu, Table 3).

    Memory: 4 N bytes for stamps, and an id per node.
    """
    return count_copies(indptr, indices, *nodes_by_part(part_of, num_parts, indices.dtype))


def count_copies(indptr: Any, indices: Any, nodes: Array, bounds: Array) -> int:
    """Returns the same of sets of nodes: set i is nodes[bounds[i]] to nodes[bounds[i + 1] - 1]; 4 N bytes for stamps."""
    indices = as_ids(indices, "indices")
    run = _native.replicas32 if indices.dtype == np.int32 else _native.replicas64
    return run(np.asarray(indptr), indices, nodes.astype(indices.dtype, copy=False), bounds)
