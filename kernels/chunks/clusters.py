"""Clusters of nodes that are found in streams, and the graph in which each of them is one node.

Label propagation with a bound on size (Meyerhenke, Sanders and Schulz: Partitioning complex networks via size-constrained clustering,
2014): every node begins as a cluster; in a pass each node in turn goes to the cluster that most of its in-neighbours' edges come from, if
the cluster's weight stays within the bound. Of equal clusters it stays where it is, else it takes the lower number. A node without
in-neighbours goes to the first cluster that has one of its out-neighbours and room. The clusters are then nodes of a smaller graph, whose
edges have the number of edges between two clusters as weights, and the passes go on there, until few enough are left. Clusters without
edges are put together in the end, in order.

Every decision follows from the one before, so one thread makes them and the result is the same everywhere. Time: O(E) per pass, bound by
reading the neighbours' clusters at random. Memory beside the mapped topology: 33 bytes per node, and 12 bytes per edge between clusters
(48 while reverses are added to those of a directed graph). Rows are read in order in a pass, and by cluster for the smaller graph.
"""

from typing import Any, NamedTuple

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import as_ids
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

PASSES = 5
"""Passes over one graph before it is contracted; later ones move few nodes."""
LEAST_GAIN = 0.9
"""A graph that is contracted to more than this share of its nodes is not contracted once more."""


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
    indptr: Any, indices: Any, weights: Any, *, clusters: int, edges: int, most: int, undirected: bool = False
) -> Contracted:
    """Contracts a graph to few clusters, with few edges between them.

    Args:
        indptr, indices: i64[N+1] and ids[E], the in-neighbours; either may be mapped.
        weights: i64[N], positive.
        clusters, edges: numbers of clusters and of edges between them that are aimed at: at least 1. More are left where `most` forbids
            to put clusters together.
        most: largest weight of a cluster of several nodes.

    Returns:
        The graph of clusters.

    Raises:
        InputError: an edge leads to no node, or there are more nodes than an i32 can number.
    """
    indptr, indices, weights = np.asarray(indptr), as_ids(indices, "indices"), np.ascontiguousarray(weights, np.int64)
    num_nodes = len(weights)
    if len(indptr) != num_nodes + 1 or int(indptr[-1]) != len(indices) or num_nodes >= 2**31:
        problem = f"{len(indptr)} row ends and {len(indices)} edges for {num_nodes} nodes"
        raise InputError(problem, "give i64[N+1] that ascends from 0 to the number of edges, of fewer than 2^31 nodes")
    if len(indices) and not 0 <= indices.min() <= indices.max() < num_nodes:
        raise InputError(f"an edge leads to no node of {num_nodes}", "build the graph again")
    graph: tuple[Array, Array, Array | None] = (indptr, indices, None)
    found, before = np.arange(num_nodes, dtype=np.int32), 0
    while not before or ((len(weights) > clusters or len(graph[1]) > edges) and len(weights) <= LEAST_GAIN * before):
        aim = min(clusters, before // 2) if before else clusters
        cluster_of, count = _clusters(*graph, weights, aim, most)
        graph = _contracted(*graph, cluster_of, count)
        if not before and not undirected:
            graph = _native.both_directions(*graph)
        before = max(1, len(weights))
        found, weights = cluster_of[found], np.bincount(cluster_of, weights, count).astype(np.int64)
    cluster_of, weights = _pack_lonely(graph[0], weights, most)
    return Contracted(cluster_of[found], *_contracted(*graph, cluster_of, len(weights)), weights)


def _clusters(
    indptr: Array, indices: Array, edge_weights: Array | None, weights: Array, clusters: int, most: int
) -> tuple[Array, int]:
    """Returns (i32[N], the number of each node's cluster, and how many there are) after passes over one graph."""
    num_nodes = len(weights)
    cluster_of, sizes = np.arange(num_nodes, dtype=indices.dtype), weights.copy()
    roots = np.diff(indptr) == 0
    for _ in range(PASSES):
        if np.count_nonzero(sizes) <= clusters:
            break
        _native.join_clusters(indptr, indices, edge_weights, weights, most, roots, cluster_of, sizes)
    used = np.flatnonzero(sizes)
    number = np.zeros(num_nodes, np.int32)
    number[used] = np.arange(len(used), dtype=np.int32)
    return number[cluster_of], len(used)


def _contracted(
    indptr: Array, indices: Array, edge_weights: Array | None, cluster_of: Array, count: int
) -> tuple[Array, Array, Array]:
    by_cluster = np.argsort(cluster_of, kind="stable").astype(indices.dtype)
    bounds = np.concatenate([[0], np.cumsum(np.bincount(cluster_of, minlength=count))]).astype(np.int64)
    return _native.contract(indptr, indices, edge_weights, cluster_of, by_cluster, bounds)


def _pack_lonely(indptr: Array, weights: Array, most: int) -> tuple[Array, Array]:
    """Returns (i32[C], i64[C'], new numbers and weights of clusters): those without edges are put together up to the bound, in order."""
    lonely = np.diff(indptr) == 0
    place = np.cumsum(np.where(lonely, weights, 0)) // max(1, most)
    first = int(np.count_nonzero(~lonely))
    number = np.empty(len(weights), np.int32)
    number[~lonely] = np.arange(first, dtype=np.int32)
    number[lonely] = first + np.unique(place[lonely], return_inverse=True)[1].reshape(-1)
    return number, np.bincount(number, weights).astype(np.int64)
