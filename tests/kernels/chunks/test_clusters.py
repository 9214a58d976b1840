"""Clusters follow their rule, keep their bound, and the graph between them has the edges of the nodes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.whole_graphs import nested
from graphmill.kernels import _native
from graphmill.kernels.chunks.clusters import contract, join_reference
from graphmill.kernels.errors import InputError
from graphmill.kernels.graph.csc import build_csc
from tests.kernels.graphs import topologies


@settings(max_examples=60, deadline=None)
@given(topologies(max_nodes=20), st.integers(1, 12), st.booleans(), st.integers(0, 99))
def test_a_pass_follows_the_rule(graph, most, weighted, seed):
    draw, num_nodes = np.random.default_rng(seed), graph.num_nodes
    weights = draw.integers(1, 4, num_nodes)
    edge_weights = draw.integers(1, 5, len(graph.indices)) if weighted else None
    found, sizes = np.arange(num_nodes, dtype=graph.indices.dtype), weights.copy()
    roots = np.diff(graph.indptr) == 0
    for _ in range(3):
        expected = join_reference(graph.indptr, graph.indices, edge_weights, weights, most, found)
        moved = _native.join_clusters(graph.indptr, graph.indices, edge_weights, weights, most, roots, found, sizes)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(sizes, np.bincount(found, weights, num_nodes))
        assert moved or np.array_equal(found, expected)


@settings(max_examples=60, deadline=None)
@given(topologies(max_nodes=40), st.integers(1, 9), st.integers(1, 60), st.booleans())
def test_clusters_have_the_weights_and_the_edges_of_their_nodes(graph, clusters, most, undirected):
    if undirected:
        dst = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
        graph = build_csc(graph.indices, dst, graph.num_nodes, undirected=True, duplicates="keep", self_loops="keep")
    num_nodes = len(graph.indptr) - 1
    weights = np.arange(num_nodes) % 3 + 1
    found = contract(
        graph.indptr, graph.indices, weights, clusters=clusters, edges=10, most=most, undirected=undirected
    )
    count = len(found.weights)
    np.testing.assert_array_equal(found.weights, np.bincount(found.cluster_of, weights, count))
    several = np.bincount(found.cluster_of, minlength=count) > 1
    lonely = np.diff(found.indptr) == 0  # put together in the order of their numbers, the last of them across the bound
    assert (found.weights[several & ~lonely] <= most).all() and (found.weights[several] < most + 3 * most).all()
    expected = np.zeros((count, count), np.int64)
    for v in range(num_nodes):
        for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]:
            ends = found.cluster_of[v], found.cluster_of[u]
            for one, other in {ends} if undirected else (ends, ends[::-1]):
                expected[one, other] += one != other
    dense = np.zeros((count, count), np.int64)
    rows = np.repeat(np.arange(count), np.diff(found.indptr))
    dense[rows, found.indices] = found.edge_weights
    np.testing.assert_array_equal(dense, expected)
    assert (found.edge_weights > 0).all() and np.array_equal(expected, expected.T)


def test_clusters_are_the_communities_of_a_graph_and_as_few_as_asked_for():
    graph, num_nodes = nested(20_000, 200_000), 20_000
    aims = {"clusters": 2000, "edges": 250_000, "most": 100}
    found = contract(graph.indptr, graph.indices, np.ones(num_nodes), **aims, undirected=True)
    between = found.edge_weights.sum() / len(graph.indices)
    drawn = np.random.default_rng(1).permutation(found.cluster_of)
    dst = np.repeat(np.arange(num_nodes), np.diff(graph.indptr))
    at_random = np.mean(drawn[dst] != drawn[graph.indices])
    assert len(found.weights) <= 2000 and len(found.indices) <= 250_000 and between < 0.8 * at_random


def test_what_is_no_graph_is_refused():
    ones = np.ones(3, np.int64)
    for indptr, indices in (([0, 1], [0]), ([0, 1, 1, 1], [3]), ([0, 1, 1, 2], [0])):
        with pytest.raises(InputError):
            contract(np.array(indptr), np.array(indices, np.int32), ones, clusters=1, edges=1, most=9)
