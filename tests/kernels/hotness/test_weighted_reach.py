"""Inclusion probabilities and the reach of weighted sampling and of walks, against sampling and against exact sums."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels import _native
from graphmill.kernels.errors import InputError
from graphmill.kernels.hotness.reach import ReachModel
from graphmill.kernels.hotness.walk_reach import WalkReach
from graphmill.kernels.hotness.weighted_reach import WeightedReach, inclusions_reference
from graphmill.kernels.sampling.alias import build_alias
from graphmill.kernels.sampling.walk import Walks, WalkSampler
from graphmill.kernels.sampling.weighted import WeightedSampler
from graphmill.kernels.types import BatchKey
from tests.kernels.graphs import random_topology, topology
from tests.kernels.sampling.test_walk import steps


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 1.0, 2.0, 1e3, 1e-6]), min_size=1, max_size=30),
    st.sampled_from([-1, 1, 2, 5, 40]),
    st.booleans(),
)
def test_inclusions_equal_the_reference(weights, fanout, replace):
    if not any(weights):
        return
    graph = topology([list(range(len(weights))), *[[]] * (len(weights) - 1)])
    table = build_alias(graph, np.array(weights)).table
    found, expected = _native.weighted_inclusions(table, fanout, replace), inclusions_reference(table, fanout, replace)
    assert np.allclose(found, expected, atol=2e-3)


@pytest.mark.parametrize("replace", [False, True])
def test_inclusions_are_how_often_neighbours_are_drawn(replace):
    weights = np.random.default_rng(0).pareto(1.0, 60) + 0.01
    graph = topology([list(range(60)), *[[]] * 59])
    tables, counts = build_alias(graph, weights), np.zeros(60)
    sampler = WeightedSampler(graph, tables, [8], seed=1, replace=replace)
    for step in range(3000):
        (block,) = sampler.sample(BatchKey(0, 0, step), [0])
        counts[np.unique(block.src_ids[block.indices])] += 1
    found = _native.weighted_inclusions(tables.table, 8, replace)
    assert np.abs(counts / 3000 - found).max() < 0.05  # without replacement the formula is an approximation


@pytest.mark.parametrize("replace", [False, True])
def test_equal_weights_have_the_reach_of_uniform_sampling(replace):
    graph = random_topology(300, 3000)
    tables = build_alias(graph, np.ones(3000))
    rates = np.random.default_rng(0).random(300) * 0.3 + 0.01
    weighted = WeightedReach(graph, tables, 0.0, replace=replace)
    uniform = ReachModel(graph, 0.0, replace=replace)
    for fanout in (3, 2):
        mine, other = weighted.step(rates, fanout), uniform.step(rates, fanout)
        assert np.allclose(mine, other, atol=2e-3)
        rates = rates + (1 - rates) * other


@pytest.mark.parametrize("threads", [2, 8])
def test_reach_is_the_same_bytes_at_any_number_of_threads(threads):
    graph = random_topology(5000, 50_000)
    tables = build_alias(graph, np.random.default_rng(1).pareto(1.0, 50_000))
    rates = np.random.default_rng(0).random(5000) * 0.2
    for make in (
        lambda n: WeightedReach(graph, tables, 0.4, threads=n),
        lambda n: WalkReach(graph, Walks(), 0.4, threads=n),
    ):
        one, many = make(1), make(threads)
        for fanout in (4, 3):
            assert one.step(rates, fanout).tobytes() == many.step(rates, fanout).tobytes()


@pytest.mark.parametrize("restart", [0.2, 1.0])
def test_expected_visits_are_exact_sums_of_transition_powers(restart):
    graph = topology([[1, 2, 3], [0, 4], [0, 0, 5], [4], [1], [4, 2, 0, 5]])  # no dead ends
    reach = WalkReach(graph, Walks(length=4, restart=restart), 0.0)
    starts = np.eye(6)[0] * 2.0**40
    found = reach.expected_visits(starts) / 2.0**40
    assert np.allclose(found, steps(graph, restart, 4, 0).sum(axis=0), atol=1e-6)


def test_reach_of_walks_orders_nodes_as_visits_do():
    graph = random_topology(400, 6000)
    rates = np.zeros(400)
    rates[::4] = 0.5
    found, counts = WalkReach(graph, Walks(), 0.0).step(rates, 5), np.zeros(400)
    sampler, generator = WalkSampler(graph, Walks(), [5], seed=1), np.random.default_rng(2)
    for step in range(400):
        seeds = np.flatnonzero(generator.random(400) < rates)
        (block,) = sampler.sample(BatchKey(0, 0, step), seeds)
        counts[block.src_ids[block.num_dst :]] += 1
    others = rates == 0
    assert np.corrcoef(found[others], counts[others])[0, 1] > 0.9


def test_a_damaged_table_is_refused():
    graph = topology([[0, 1, 2], [], []])
    tables = build_alias(graph, np.ones(3))
    tables.table[:, 1] = 3
    with pytest.raises(InputError, match="the alias table of node 0 does not fit its row"):
        WeightedReach(graph, tables, 0.0).step(np.ones(3), 2)
