"""The streaming partitioner does what its rule says, keeps its capacities, and finds communities."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.chunks.ldg import capacities, count_replicas, cut_matrix, ldg, ldg_reference
from graphmill.kernels.errors import InputError
from graphmill.kernels.graph.csc import build_csc
from graphmill.kernels.graph.generate import rmat_edges, sbm_edges
from tests.kernels.graphs import random_topology, topologies


def weights_of(graph, seed=0):
    trained = np.random.default_rng(seed).random(graph.num_nodes) < 0.3
    return np.stack([np.ones(graph.num_nodes, int), graph.in_degree, trained], axis=1).astype(np.int64)


@settings(max_examples=60, deadline=None)
@given(
    topologies(max_nodes=20),
    st.integers(1, 6),
    st.integers(1, 3),
    st.sampled_from([0.0, 0.05, 0.5]),
    st.booleans(),
    st.integers(0, 99),
)
def test_passes_follow_the_rule(graph, num_parts, passes, slack, ordered, seed):
    weights = weights_of(graph, seed)
    order = np.random.default_rng(seed).permutation(graph.num_nodes) if ordered else np.arange(graph.num_nodes)
    expected = np.full(graph.num_nodes, -1, np.int32)
    for _ in range(passes):
        expected = ldg_reference(
            graph.indptr, graph.indices, weights, capacities(weights, num_parts, slack), num_parts, expected, order
        )
    found = ldg(
        graph.indptr, graph.indices, weights, num_parts, passes=passes, slack=slack, order=order if ordered else None
    )
    np.testing.assert_array_equal(found, expected)


@settings(max_examples=40, deadline=None)
@given(topologies(max_nodes=20), st.integers(1, 6), st.integers(0, 99))
def test_counts_between_parts_are_those_of_a_loop(graph, num_parts, seed):
    part_of = np.random.default_rng(seed).integers(0, num_parts, graph.num_nodes).astype(np.int32)
    expected, sets = np.zeros((num_parts, num_parts), int), [set() for _ in range(num_parts)]
    for v in range(graph.num_nodes):
        sets[part_of[v]].add(v)
        for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]:
            expected[part_of[v], part_of[u]] += 1
            sets[part_of[v]].add(int(u))
    np.testing.assert_array_equal(cut_matrix(graph.indptr, graph.indices, part_of, num_parts), expected)
    assert count_replicas(graph.indptr, graph.indices, part_of, num_parts) == sum(map(len, sets))


def test_communities_are_found_and_capacities_kept():
    src, dst = sbm_edges(8000, 80_000, 16, 0.9, 3)
    graph = build_csc(src, dst, 8000, undirected=True, duplicates="merge", self_loops="drop")
    weights = np.stack([np.ones(8000, np.int64), graph.in_degree.astype(np.int64)], axis=1)
    found = ldg(graph.indptr, graph.indices, weights, 8, passes=5)
    cut = cut_matrix(graph.indptr, graph.indices, found, 8)
    assert 1 - np.trace(cut) / cut.sum() < 0.45  # 0.875 for parts at random
    for measure, capacity in zip(weights.T, capacities(weights, 8, 0.05), strict=True):
        assert np.bincount(found, weights=measure, minlength=8).max() <= capacity


def test_a_pass_repairs_a_partition_that_is_out_of_balance():
    graph = random_topology(2000, 10_000, seed=1)
    weights = np.ones((2000, 1), np.int64)
    found = ldg(graph.indptr, graph.indices, weights, 4, part_of=np.zeros(2000, np.int32))
    assert np.bincount(found, minlength=4).max() <= 525


@pytest.mark.parametrize("start", ["nowhere", "one part", "hubs apart"])
def test_hubs_and_nodes_without_edges_are_balanced_in_all_measures(start):
    """Parts that are too full in different measures do not block each other."""
    src, dst = rmat_edges(20_000, 300_000, 1)
    graph = build_csc(src, dst, 20_000, undirected=False, duplicates="merge", self_loops="drop")
    trained = np.random.default_rng(0).random(20_000) < 0.3
    weights = np.stack([np.ones(20_000, np.int64), graph.in_degree, trained], axis=1).astype(np.int64)
    by_degree = np.argsort(np.argsort(-np.asarray(graph.in_degree), kind="stable")) // 5000
    part_of = {"nowhere": None, "one part": np.zeros(20_000, np.int32), "hubs apart": by_degree.astype(np.int32)}[start]
    found = ldg(graph.indptr, graph.indices, weights, 4, passes=5, part_of=part_of)
    for measure in weights.T:
        assert np.bincount(found, weights=measure, minlength=4).max() <= np.ceil(1.05 * measure.sum() / 4)


def test_orders_and_edges_that_lead_nowhere_are_refused():
    """Native code reads at these places."""
    graph = random_topology(20, 60, seed=1)
    for order in (np.arange(3), np.zeros(20, np.int64), np.arange(1, 21)):
        with pytest.raises(InputError, match="the order of 20 nodes is not a permutation"):
            ldg(graph.indptr, graph.indices, weights_of(graph), 2, order=order)
    for nowhere in (20, -1):
        with pytest.raises(InputError, match="an edge leads to no node of 20"):
            ldg(graph.indptr, np.where(np.arange(60) == 5, nowhere, graph.indices), weights_of(graph), 2)
    with pytest.raises(InputError, match="indptr does not fit"):
        ldg(graph.indptr, graph.indices[:-1], weights_of(graph), 2)


def test_what_is_out_of_range_is_refused():
    graph = random_topology(20, 60)
    weights = weights_of(graph)
    for wrong in ({"num_parts": 0}, {"num_parts": 5000}, {"passes": -1}, {"slack": -0.1}):
        with pytest.raises(InputError, match="remedy"):
            ldg(graph.indptr, graph.indices, weights, **{"num_parts": 2} | wrong)
    with pytest.raises(InputError, match="remedy"):
        ldg(graph.indptr, graph.indices, weights[:3], 2)
    with pytest.raises(InputError, match="remedy"):
        ldg(graph.indptr, graph.indices, weights, 2, part_of=np.full(20, 2, np.int32))
