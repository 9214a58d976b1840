"""Clusters follow their rule, keep their bound, and the graph between them has the edges of the nodes."""

import tracemalloc
from tempfile import TemporaryFile
from unittest.mock import patch
from weakref import finalize

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.whole_graphs import nested
from graphmill.kernels import _native
from graphmill.kernels.chunks import clusters
from graphmill.kernels.chunks.clusters import contract, join_reference
from graphmill.kernels.errors import InputError
from graphmill.kernels.graph.csc import build_csc
from tests.kernels.graphs import random_topology, topologies


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
@given(topologies(max_nodes=40), st.integers(1, 9), st.integers(1, 60), st.booleans(), st.integers(1, 30))
def test_clusters_have_the_weights_and_the_edges_of_their_nodes(graph, aim, most, undirected, at_once):
    if undirected:
        dst = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
        graph = build_csc(graph.indices, dst, graph.num_nodes, undirected=True, duplicates="keep", self_loops="keep")
    num_nodes = len(graph.indptr) - 1
    weights = np.arange(num_nodes) % 3 + 1
    with patch("graphmill.kernels.chunks.clusters.EDGES_AT_ONCE", at_once):
        found = contract(
            graph.indptr, graph.indices, weights, clusters=aim, edges=10**6, most=most, undirected=undirected
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
    ascending = np.diff(rows * count + found.indices) > 0
    assert ascending.all() and len(found.indices) == found.indptr[-1]


def test_clusters_are_the_communities_of_a_graph_and_as_few_as_asked_for():
    graph, num_nodes = nested(20_000, 200_000), 20_000
    aims = {"clusters": 2000, "edges": 250_000, "most": 100}
    found = contract(graph.indptr, graph.indices, np.ones(num_nodes), **aims, undirected=True)
    assert len(found.weights) <= 2000 and len(found.indices) <= 250_000
    between = found.edge_weights.sum() / len(graph.indices)
    drawn = np.random.default_rng(1).permutation(found.cluster_of)
    dst = np.repeat(np.arange(num_nodes), np.diff(graph.indptr))
    at_random = np.mean(drawn[dst] != drawn[graph.indices])
    assert between < 0.8 * at_random


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 99), st.sampled_from([0.1, 0.5, 0.9]), st.integers(1, 300), st.integers(1, 50))
def test_edges_that_are_left_out_are_stood_for_by_others(seed, share, heavy, at_once):
    """Both directions stay or go, heavy edges stay, and the weight of a cut is kept in expectation."""
    src, dst = np.random.default_rng(seed).integers(0, 60, (2, 3000))
    graph = build_csc(src, dst, 60, undirected=True, duplicates="merge", self_loops="drop")
    starts, columns = graph.indptr, graph.indices
    rows, count = np.repeat(np.arange(60), np.diff(starts)), len(columns)
    sums = 1 + (rows + columns).astype(np.int64) ** 3 % heavy
    most, dense = int(share * count), np.zeros((2, 60, 60), np.int64)
    with patch("graphmill.kernels.ranges.KEYS_AT_ONCE", at_once * 7):
        found = clusters._thinned([starts, columns, sums], most, seed, np.zeros)
    same = clusters._thinned([starts, columns, sums], most, seed, np.zeros)
    for one, other in zip(found, same, strict=True):
        np.testing.assert_array_equal(one, other)
    least = clusters._threshold(sums, most)
    expected = np.minimum(1, sums / least).sum()
    assert expected <= most < np.minimum(1, sums / max(1, least - 1)).sum() and found[0][-1] == len(found[1])
    dense[0, rows, columns] = sums
    dense[1, np.repeat(np.arange(60), np.diff(found[0])), found[1]] = found[2]
    stays = dense[0] >= least
    assert np.array_equal(dense[1], dense[1].T) and np.array_equal(dense[1][stays], dense[0][stays])
    assert set(np.unique(dense[1][(dense[0] > 0) & (dense[0] < least)])) <= {0, least}
    deviation = np.sqrt((np.minimum(sums, least) * (least - np.minimum(sums, least))).sum() * 2)
    assert abs(dense[1].sum() - dense[0].sum()) <= 5 * deviation
    assert clusters._thinned([starts, columns, sums], count, seed, np.zeros) == [starts, columns, sums]


@pytest.mark.parametrize("undirected", [True, False])
def test_memory_has_no_term_of_edges(undirected, monkeypatch):
    """What `allocate` makes lies in files; that is the place of edges, and it is as large as the docstring says."""
    made = {}
    for name in ("NODES_AT_ONCE", "KEYS_AT_ONCE"):
        monkeypatch.setattr(f"graphmill.kernels.ranges.{name}", 1 << 11)
    monkeypatch.setattr("graphmill.kernels.chunks.clusters.MOST_WEIGHT", 1 << 8)

    def allocate(length, dtype):
        """Counts an array while it lives, and hides it from the counter of memory."""
        array = np.memmap(TemporaryFile(), dtype, "w+", shape=length)  # noqa: SIM115
        made[id(array)] = array.nbytes
        finalize(array, made.pop, id(array))
        most[0] = max(most[0], sum(made.values()))
        return array

    num_nodes, peaks = 20_000, []
    for degree in (4, 40):
        graph = random_topology(num_nodes, degree * num_nodes, seed=1)
        indptr, indices = graph.indptr, graph.indices
        if undirected:
            dst = np.repeat(np.arange(num_nodes), np.diff(indptr))
            both = build_csc(indices, dst, num_nodes, undirected=True, duplicates="merge", self_loops="drop")
            indptr, indices = both.indptr, both.indices
        most = [0]
        tracemalloc.start()
        contract(
            indptr, indices, np.ones(num_nodes, int), clusters=2000, edges=4000, most=100, undirected=undirected,
            allocate=allocate,
        )  # fmt: skip
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert most[0] <= 28 * len(indices) * (1 if undirected else 2)
    assert max(peaks) < 44 * num_nodes + (1 << 17) and abs(peaks[1] - peaks[0]) < 0.2 * peaks[0]


def test_what_is_no_graph_is_refused():
    ones = np.ones(3, np.int64)
    for indptr, indices in (([0, 1], [0]), ([0, 1, 1, 1], [3]), ([0, 1, 1, 2], [0])):
        with pytest.raises(InputError):
            contract(np.array(indptr), np.array(indices, np.int32), ones, clusters=1, edges=1, most=9)
