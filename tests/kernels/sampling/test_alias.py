"""Alias tables are those of the reference, give every neighbour its share exactly, and refuse what is no weight."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.alias import (
    WHOLE,
    alias_ranges,
    alias_reference,
    build_alias,
    check_weights,
    masses,
    masses_reference,
)
from tests.kernels.graphs import random_topology, topologies, topology

WEIGHTS = st.one_of(
    st.sampled_from([0.0, 1.0, 1e-30, 1e30, 5e-324]), st.floats(0, 1e6, allow_subnormal=True), st.just(3.0)
)


@settings(deadline=None)
@given(topologies(), st.booleans(), st.sampled_from(["uniform", "none"]), st.integers(1, 3), st.data())
def test_tables_equal_the_reference(graph, of_nodes, empty, threads, data):
    size = graph.num_nodes if of_nodes else graph.num_edges
    weights = np.array(data.draw(st.lists(WEIGHTS, min_size=size, max_size=size)), np.float64)
    if not of_nodes and data.draw(st.booleans()):
        weights = weights.astype(np.float32)
    tables = build_alias(graph, weights, of_nodes=of_nodes, empty=empty, threads=threads)
    by_edge = weights[graph.indices] if of_nodes else weights
    support = np.diff(graph.indptr) if tables.support is None else tables.support
    for v in range(graph.num_nodes):
        low, high = graph.indptr[v], graph.indptr[v + 1]
        assert list(map(tuple, tables.table[low:high].tolist())) == alias_reference(by_edge[low:high], empty)
        weighty = np.count_nonzero(by_edge[low:high])
        assert support[v] == (weighty if weighty or empty == "none" else high - low)


@settings(deadline=None)
@given(st.lists(WEIGHTS, min_size=1, max_size=40))
def test_masses_add_up_and_are_close_to_the_weights(weights):
    weights = np.array(weights)
    if not weights.any():
        return
    table = np.array(alias_reference(weights), np.uint32)
    mass = masses(table).tolist()
    assert mass == masses_reference(weights) and sum(mass) == len(weights) * WHOLE
    assert [m > 0 for m in mass] == (weights > 0).tolist()
    assert [t > 0 for t in table[:, 0].tolist()] == (weights > 0).tolist()
    total = sum(map(Fraction, weights.tolist()))
    for m, w in zip(mass, weights.tolist(), strict=True):
        assert abs(Fraction(m, len(weights) * WHOLE) - Fraction(w) / total) < Fraction(1, 2**30)


def test_a_table_is_the_same_at_any_number_of_threads_and_in_any_ranges():
    graph = random_topology(20_000, 100_000)
    weights = np.random.default_rng(1).pareto(0.5, graph.num_edges)
    one = build_alias(graph, weights)
    assert one.support is None
    for threads, most in ((2, 1000), (8, 1)):
        made = list(alias_ranges(graph, weights, threads=threads, most_edges=most))
        assert np.concatenate([rows for _, _, rows, _ in made]).tobytes() == one.table.tobytes()
        assert made[-1][1] == graph.num_nodes and len(made) > 50


@pytest.mark.parametrize(
    ("weights", "of_nodes", "problem"),
    [
        ([1, -1, 1], False, "the weight -1.0 of the edge 2 -> 0 is negative"),
        ([1, float("nan"), 1], False, "the weight nan of the edge 2 -> 0 is not finite"),
        ([1, float("inf"), 1], True, "the weight inf of node 1 is not finite"),
        ([0, 0, 1], False, "the weights of all 2 in-neighbours of node 0 are all 0"),
        ([1, 0, 0], True, "the weights of all 2 in-neighbours of node 0 are all 0"),
    ],
)
def test_what_is_no_weight_is_refused(weights, of_nodes, problem):
    graph = topology([[1, 2], [0], []])
    with pytest.raises(InputError) as caught:
        check_weights(graph, np.array(weights, float), of_nodes=of_nodes)
    assert problem in str(caught.value) and caught.value.remedy


def test_weights_of_another_size_or_type_are_refused():
    graph = topology([[1, 2], [0], []])
    for weights, of_nodes in ((np.ones(2), False), (np.ones(3, np.int64), False), (np.ones(3, np.float32), True)):
        with pytest.raises(InputError, match=r"give float"):
            check_weights(graph, weights, of_nodes=of_nodes)
