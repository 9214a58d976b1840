"""Reach: the rule in NumPy, the same bytes at any thread count, and what is really drawn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels import _native
from graphmill.kernels.hotness.reach import ReachModel, reach_reference, reciprocity
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey
from tests.kernels.graphs import random_topology, topologies, topology


@settings(max_examples=150, deadline=None)
@given(graph=topologies(), data=st.data(), fanouts=st.lists(st.sampled_from([1, 2, 5, -1]), min_size=1, max_size=3))
def test_all_versions_agree_at_any_thread_count(graph, data, fanouts):
    share, drawn, numbers = data.draw(st.floats(0, 1)), np.zeros(graph.num_nodes), st.floats(0, 1)
    versions = [ReachModel(graph, share, threads) for threads in (1, 2, 8)]
    for fanout in fanouts:
        rates = np.array(data.draw(st.lists(numbers, min_size=graph.num_nodes, max_size=graph.num_nodes)))
        made = [version.step(rates, fanout) for version in versions]
        assert made[0].tobytes() == made[1].tobytes() == made[2].tobytes()
        # A node has up to 9 out-edges a neighbour here; the fixed point has 40 binary places.
        expected, drawn = reach_reference(graph, rates, fanout, drawn, share)
        np.testing.assert_allclose(made[0], expected, rtol=1e-9, atol=1e-9)
        assert ((made[0] >= 0) & (made[0] <= 1)).all()


def test_logarithm_and_exponential_are_those_of_the_library_to_the_last_digits():
    """Through the kernel: one node u with one in-neighbour v, whose reach undoes the logarithm."""
    graph = topology([[1], []])
    for rate in (0.0, 1e-12, 1e-6, 0.1, 0.4999, 0.5, 0.75, 0.99, 1 - 2**-19):
        reach = ReachModel(graph, 0.0).step(np.array([rate, 0.0]), 1)
        assert reach[1] == pytest.approx(rate, rel=1e-12, abs=2.0**-40) and reach[0] == 0
    values = np.empty((2, 2), np.uint64)
    before, after = np.array([0.1, 0.0]), np.empty(2)
    _native.pick_exponents(graph.indptr, np.array([0.4, 0.0]), 1, False, 2.0**40, before, after, values, 1)
    assert values[0, 0] == round(-np.log1p(-(0.3 / 0.9)) * 2**40) and values[1].tolist() == [0, 2**40]
    assert after.tolist() == pytest.approx([0.4, 0.0])


def test_a_hub_of_many_sure_neighbours_does_not_overflow():
    graph = topology([[0]] * 70_000)
    assert ReachModel(graph, 0.0).step(np.ones(70_000), 1)[0] == 1.0
    assert ReachModel(graph, 0.0).step(np.full(70_000, 1e-7), 1)[0] == pytest.approx(-np.expm1(-7e-3), rel=1e-3)


@pytest.mark.parametrize("mutual", [True, False])
def test_expected_inputs_are_those_of_sampled_epochs(mutual):
    """A sparse random graph: with the echo left in, the expected inputs of a mutual one are far off."""
    rng = np.random.default_rng(1)
    pairs = rng.integers(0, 3000, (9000, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    rows = [set() for _ in range(3000)]
    for u, v in pairs.tolist():
        rows[u].add(v)
        if mutual:
            rows[v].add(u)
    graph, train = topology(rows), np.arange(300, dtype=np.int32)
    batches = [batch for epoch in range(40) for batch in EpochPlan(train, 30, seed=2).batches(epoch)]
    sampler = Sampler(graph, (4, 4), seed=2)
    for batch in batches:
        sampler.sample(batch.key, batch.seeds, transpose="none")
    seen = sampler.take_visits(np.zeros(3000, np.uint32)) / len(batches)

    def expected(share):
        model, rates = ReachModel(graph, share), np.zeros(3000)
        rates[train] = 0.1
        for _ in range(2):
            rates = rates + (1 - rates) * model.step(rates, 4)
        return rates

    share = reciprocity(graph, 0)
    assert share == 1.0 if mutual else share < 0.01
    ours, with_echo = expected(share), expected(0.0)
    assert abs(ours[train].mean() / seen[train].mean() - 1) < 0.03
    assert abs(ours.sum() / seen.sum() - 1) < 0.02
    if mutual:
        assert with_echo[train].mean() / seen[train].mean() > 1.2


def test_reciprocity_is_a_share_of_edges():
    assert reciprocity(topology([[], []]), 0) == 0.0
    assert reciprocity(topology([[1], [0]]), 0) == 1.0
    half = topology([[1, 2], [0, 2], [], []])  # 0 and 1 have each other, 2 has nobody
    assert abs(reciprocity(half, 3) - 0.5) < 0.05
    assert reciprocity(half, 3) == reciprocity(half, 3)
    (block,) = Sampler(half, [-1], seed=0).sample(BatchKey(0, 0, 0), [0])
    assert block.num_src == 3
    assert 0 <= reciprocity(random_topology(50, 300), 1) <= 1
