"""Clusters of nodes that are found in streams, and the graph in which each of them is one node.

Label propagation with a bound on size (Meyerhenke, Sanders and Schulz: Partitioning complex networks via size-constrained clustering,
2014): every node begins as a cluster; in a pass each node in turn goes to the cluster that most of its in-neighbours' edges come from, if
the cluster's weight stays within the bound. Of equal clusters it stays where it is, else it takes the lower number. A node without
in-neighbours goes to the first cluster that has one of its out-neighbours and room. The clusters are then nodes of a smaller graph, whose
edges have the number of edges between two clusters as weights, and the passes go on there, until few enough are left. Clusters without
edges are put together in the end, in order.

If more edges than are asked for are left between clusters, some are drawn in proportion to their weights: light ones, of which each says
little, stand for others then. Communities in communities were cut by METIS as well with four tenths of the edges as with all.

The smaller graph is made without an array of its edges in memory: a pass writes each edge to the range of rows that it belongs to, a file
with a few million edges, and each range is sorted there; equal edges then lie side by side and are added up.

Every decision follows from the one before, so one thread makes them and the result is the same everywhere. Time: O(E) per pass, bound by
reading the neighbours' clusters at random, and O(E log E) to sort. Memory beside the mapped topology: 44 bytes per node; in the arrays of
`allocate`, which are read and written in order, at most 28 bytes for each edge and each reverse that is added.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.chunks.cut import check_edges
from graphmill.kernels.errors import InputError
from graphmill.kernels.ranges import Allocate, key_ranges, node_ranges
from graphmill.kernels.rng import absorb_ids, draws, key
from graphmill.kernels.types import Array, Stream

PASSES = 5
"""Passes over one graph before it is contracted; later ones move few nodes."""
LEAST_GAIN = 0.9
"""A graph that is contracted to more than this share of its nodes is not contracted once more."""
EDGES_AT_ONCE = 1 << 22
"""Edges that are sorted at a time; a row of more is sorted as a whole."""
MOST_WEIGHT = 1 << 14
"""Weight from which on an edge is never left out."""
THINNED = 8
"""The word of the stream of generators that draws edges between clusters."""


class Contracted(NamedTuple):
    """A graph of clusters."""

    # The cluster of each node, 0 to C - 1, i32[N].
    cluster_of: Array
    # i64[C+1], i32[E'] ascending by row, i64[E']: each edge in both directions with the number of the
    # nodes' edges that it stands for, without self-loops.
    indptr: Array
    indices: Array
    edge_weights: Array
    # The sums of the nodes' weights, i64[C].
    weights: Array


def join_reference(
    indptr: Array, indices: Array, edge_weights: Array | None, weights: Array, most: int, cluster_of: Array
) -> Array:
    """Returns ids[N], the clusters after one pass (the rule, node by node)."""
    cluster_of = cluster_of.copy()
    sizes = np.bincount(cluster_of, weights, len(weights)).astype(np.int64)

    def move(node: int, to: int) -> None:
        sizes[cluster_of[node]] -= weights[node]
        sizes[to] += weights[node]
        cluster_of[node] = to

    for v in range(len(weights)):
        row, counts = range(int(indptr[v]), int(indptr[v + 1])), {}
        for edge in row:
            if indices[edge] != v:
                found = int(cluster_of[indices[edge]])
                counts[found] = counts.get(found, 0) + (1 if edge_weights is None else int(edge_weights[edge]))
        before = int(cluster_of[v])
        room = [each for each in counts if each == before or sizes[each] + weights[v] <= most]
        best = min({*room, before}, key=lambda each: (-counts.get(each, 0), each != before, each))
        if best != before:
            move(v, best)
        for u in (int(indices[edge]) for edge in row):
            alone = indptr[u] == indptr[u + 1] and cluster_of[u] == u
            if alone and u not in (v, best) and sizes[best] + weights[u] <= most:
                move(u, best)
    return cluster_of


def contract(
    indptr: Any, indices: Any, weights: Any, *, clusters: int, edges: int, most: int, undirected: bool = False,
    seed: int = 0, allocate: Allocate = np.zeros, advance: Callable[[int], None] = lambda num_passes: None,
) -> Contracted:  # fmt: skip
    """Contracts a graph to few clusters, with few edges between them.

    Args:
        indptr, indices: i64[N+1] and ids[E], the in-neighbours; either may be mapped.
        weights: i64[N], positive.
        clusters: number of clusters that is aimed at, at least 1; more are left where `most` forbids to put clusters together.
        edges: number of edges between them that is aimed at, at least 1: of more, some are drawn (see above).
        most: largest weight of a cluster of several nodes.
        undirected: whether the graph has the reverse of each edge; else reverses are added to the edges between clusters.
        seed: seed of these draws.
        allocate: makes the arrays of edges.
        advance: function that gets the number of passes that ended since its last call.

    Returns:
        The graph of clusters.

    Raises:
        InputError: an edge leads to no node, or there are more nodes than an i32 can number.
    """
    indptr, weights = np.asarray(indptr), np.ascontiguousarray(weights, np.int64)
    num_nodes = len(weights)
    if len(indptr) != num_nodes + 1 or num_nodes >= 2**31:
        problem = f"{len(indptr)} row ends for {num_nodes} nodes"
        raise InputError(problem, "give i64[N+1] that ascends from 0 to the number of edges, of fewer than 2^31 nodes")
    graph: list[Any] = [indptr, check_edges(indptr, indices), None]
    found, before = np.empty(0, np.int32), 0
    while not before or clusters < len(weights) <= LEAST_GAIN * before:
        aim = min(clusters, before // 2) if before else clusters
        cluster_of, count = _clusters(graph[0], graph[1], graph[2], weights, aim, most, advance)
        sums = np.bincount(cluster_of, weights, count).astype(np.int64)
        found, before, weights = cluster_of[found] if before else cluster_of, max(1, len(weights)), sums
        graph[:] = _contracted(graph, cluster_of, count, allocate, reverses=graph[2] is None and not undirected)
        advance(1)
    cluster_of, weights = _pack_lonely(graph[0], weights, most)
    graph[:] = _contracted(graph, cluster_of, len(weights), allocate, reverses=False)
    fewer = _thinned(graph, edges, key(seed, Stream.GENERATORS, THINNED), allocate)
    return Contracted(cluster_of[found], fewer[0], fewer[1], fewer[2], weights)


def _clusters(
    indptr: Array, indices: Array, edge_weights: Array | None, weights: Array, clusters: int, most: int,
    advance: Callable[[int], None],
) -> tuple[Array, int]:  # fmt: skip
    """Returns (i32[N], the number of each node's cluster, and how many there are) after passes over one graph."""
    num_nodes = len(weights)
    cluster_of, sizes = np.arange(num_nodes, dtype=indices.dtype), weights.copy()
    roots = np.diff(indptr) == 0
    for _ in range(PASSES):
        if np.count_nonzero(sizes) <= clusters:
            break
        _native.join_clusters(indptr, indices, edge_weights, weights, most, roots, cluster_of, sizes)
        advance(1)
    used = np.flatnonzero(sizes)
    number = np.zeros(num_nodes, np.int32)
    number[used] = np.arange(len(used), dtype=np.int32)
    return number[cluster_of], len(used)


def _contracted(
    graph: list[Any], cluster_of: Array, count: int, allocate: Allocate, *, reverses: bool
) -> tuple[Array, Array, Array]:
    """Returns (i64[C+1], i32[E'] ascending by row, i64[E']), the graph of clusters; with `reverses` the sum of it and its reverse.

    Args:
        graph: row starts, sources, and weights of edges or None; emptied as soon as its edges are not needed any more.
    """
    counts, weighted = np.zeros(count, np.int64), graph[2] is not None
    _native.count_edges(graph[0], graph[1], cluster_of, reverses, counts)
    ends = np.cumsum(counts)
    range_of = np.empty(count, np.int32)
    for low, high in node_ranges(count):
        range_of[low:high] = np.maximum(ends[low:high] - 1, 0) // EDGES_AT_ONCE
    # Where the rows of each range begin, and its edges; a range may have none.
    number = 1 + (int(ends[-1]) // EDGES_AT_ONCE if count else 0)
    rows = np.searchsorted(range_of, np.arange(number + 1, dtype=np.int32))
    bounds = np.where(rows > 0, ends[rows - 1], 0) if count else rows
    del ends
    records = _edges((1 + weighted) * int(bounds[-1]), np.int64, allocate)
    _native.scatter_edges(graph[0], graph[1], graph[2], cluster_of, reverses, range_of, bounds[:-1].copy(), records)
    graph.clear()
    counts[:] = 0
    for span, (first, last) in zip(pairwise((1 + weighted) * bounds), pairwise(rows), strict=True):
        _native.sort_edges(records[slice(*span)], weighted, int(first), counts[first:last])
    starts = np.append(0, np.cumsum(counts))
    columns, sums = (_edges(int(starts[-1]), dtype, allocate) for dtype in (np.int32, np.int64))
    _native.merge_edges(records, weighted, columns, sums)
    return starts, columns, sums


def _thinned(graph: list[Any], most: int, stream: int, allocate: Allocate) -> list[Any]:
    """Returns about `most` of the edges of a graph; both directions of an edge stay or go.

    An edge of a weight below a threshold is kept with the probability weight / threshold, and weighs as much as the threshold then: the
    expected weight of each edge, and of each cut, stays as it is (threshold sampling: Duffield, Lund and Thorup, 2005).
    """
    starts, columns, sums = graph
    if len(columns) <= most:
        return graph
    least, kept, counts = _threshold(sums, most), _edges(len(columns), bool, allocate), np.zeros(len(starts), np.int64)
    for low, high in key_ranges(len(columns)):
        first = int(np.searchsorted(starts, low, "right")) - 1
        last = int(np.searchsorted(starts, high))
        rows = np.repeat(np.arange(first, last), np.diff(np.clip(starts[first : last + 1], low, high)))
        ends = np.minimum(rows, columns[low:high]) * (len(starts) - 1) + np.maximum(rows, columns[low:high])
        drawn = draws(absorb_ids(stream, ends), 0) >> np.uint64(32)
        kept[low:high] = drawn * np.uint64(least) < np.minimum(sums[low:high], least).astype(np.uint64) << np.uint64(32)
        counts[first + 1 : last + 1] += np.bincount(rows[kept[low:high]] - first, minlength=last - first)
    starts, end = np.cumsum(counts), 0
    thinned = [_edges(int(starts[-1]), dtype, allocate) for dtype in (np.int32, np.int64)]
    for low, high in key_ranges(len(columns)):
        chosen = kept[low:high]
        begin, end = end, end + int(np.count_nonzero(chosen))
        thinned[0][begin:end] = columns[low:high][chosen]
        thinned[1][begin:end] = np.maximum(sums[low:high][chosen], least)
    return [starts, *thinned]


def _threshold(sums: Array, most: int) -> int:
    """Returns the least threshold, up to `MOST_WEIGHT`, with which `most` edges are expected to be kept."""
    counts = np.zeros(MOST_WEIGHT + 1, np.int64)
    for low, high in key_ranges(len(sums)):
        counts += np.bincount(np.minimum(sums[low:high], MOST_WEIGHT), minlength=MOST_WEIGHT + 1)
    lighter, of_weight = np.cumsum(counts), np.cumsum(counts * np.arange(MOST_WEIGHT + 1))
    at = np.arange(1, MOST_WEIGHT + 1)
    enough = of_weight[at - 1] + (len(sums) - lighter[at - 1]) * at <= most * at
    return int(at[np.argmax(enough)]) if enough.any() else MOST_WEIGHT


def _edges(length: int, dtype: Any, allocate: Allocate) -> Array:
    """Returns zeros; a file of none cannot be mapped."""
    return np.asarray((allocate if length else np.zeros)(length, dtype))


def _pack_lonely(indptr: Array, weights: Array, most: int) -> tuple[Array, Array]:
    """Returns (i32[C], i64[C'], new numbers and weights of clusters): those without edges are put together up to the bound, in order."""
    lonely = np.diff(indptr) == 0
    place = np.cumsum(np.where(lonely, weights, 0)) // max(1, most)
    first = int(np.count_nonzero(~lonely))
    number = np.empty(len(weights), np.int32)
    number[~lonely] = np.arange(first, dtype=np.int32)
    number[lonely] = first + np.unique(place[lonely], return_inverse=True)[1].reshape(-1)
    return number, np.bincount(number, weights).astype(np.int64)
