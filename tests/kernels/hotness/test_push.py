"""Sums over out-neighbours: exact, in any order, and the PageRank that they make."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.hotness.push import push, push_reference, reverse_pagerank
from tests.kernels.graphs import random_topology, topologies, topology


@settings(max_examples=100, deadline=None)
@given(graph=topologies(), data=st.data())
def test_both_versions_agree_at_any_thread_count(graph, data):
    words = st.integers(0, 2**64 - 1)
    values = np.array(data.draw(st.lists(words, min_size=graph.num_nodes, max_size=graph.num_nodes)), np.uint64)
    expected = push_reference(graph, values)
    for threads in (1, 2, 8):
        assert push(graph, values, threads=threads).tolist() == expected.tolist()
    assert push(graph, np.repeat(values, 2)[::2]).tolist() == expected.tolist()


def test_many_pieces_and_threads():
    graph = random_topology(20_000, 200_000, seed=2)
    values = np.random.default_rng(0).integers(0, 2**60, 20_000).astype(np.uint64)
    expected = push_reference(graph, values)
    assert all(push(graph, values, threads=threads).tobytes() == expected.tobytes() for threads in (1, 2, 8))


def test_what_does_not_fit_is_refused():
    graph = topology([[1], [0], []])
    for values in (np.zeros(2, np.uint64), np.zeros(3, np.int64)):
        with pytest.raises(InputError, match=r"give uint64\[3\]"):
            push(graph, values)
    with pytest.raises(InputError, match="outside"):
        push(topology([[5], []]), np.ones(2, np.uint64))
    with pytest.raises(InputError, match="indptr"):
        push(replace(graph, indptr=np.array([0, 2, 1, 2])), np.zeros(3, np.uint64))


def test_reverse_pagerank_is_that_of_plain_floats_and_keeps_to_what_training_reaches():
    graph = random_topology(200, 1500, seed=4)
    train = np.arange(0, 200, 10)
    degree = np.maximum(np.diff(graph.indptr), 1)
    start = np.zeros(200)
    start[train] = 1 / len(train)
    mass = start
    for _ in range(10):
        pushed = np.zeros(200)
        np.add.at(pushed, graph.indices, np.repeat(mass / degree, np.diff(graph.indptr)))
        mass = 0.15 * start + 0.85 * pushed
    ours = reverse_pagerank(graph, train)
    np.testing.assert_allclose(ours, mass, rtol=1e-9, atol=1e-12)
    assert reverse_pagerank(graph, train, threads=8).tobytes() == ours.tobytes()
    chain = topology([[1], [2], [3], [], [0]])  # 0 asks 1, 1 asks 2, 2 asks 3; nobody that trains asks 4
    scores = reverse_pagerank(chain, [0])
    assert (scores[:4] > 0).all() and scores[4] == 0
    with pytest.raises(InputError, match="training nodes"):
        reverse_pagerank(chain, [])
