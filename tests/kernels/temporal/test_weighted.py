"""Weighted draws as of a time: blocks of the reference, to the byte, and the probabilities of successive draws among earlier edges."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.alias import build_alias
from graphmill.kernels.sampling.weighted import WeightedSampler
from graphmill.kernels.temporal.sampler import TemporalSampler, temporal_reference
from graphmill.kernels.types import BatchKey
from tests.kernels.graphs import assert_same_blocks
from tests.kernels.sampling.chi_square import assert_fits
from tests.kernels.sampling.test_weighted import FIELDS, successive
from tests.kernels.temporal.graphs import random_edges, timed_graphs, timed_topology

pytestmark = pytest.mark.smoke
KEY = BatchKey(0, 1, 2)
WEIGHTS = st.sampled_from([0.0, 0.0, 1.0, 2.0, 1e-9, 1e9])


@st.composite
def cases(draw):
    """A graph with weights, fan-outs, seeds with their times, and how edges are drawn."""
    graph = draw(timed_graphs())
    pair = st.tuples(st.integers(0, graph.num_nodes - 1), st.sampled_from([-1.0, 0.0, 3.0, 3.5, 7.0, 20.0]))
    pairs = draw(st.lists(pair, unique=True, max_size=8))
    fanouts = draw(st.lists(st.sampled_from([-1, 1, 2, 3, 7]), min_size=1, max_size=3))
    weights = np.array(draw(st.lists(WEIGHTS, min_size=graph.num_edges, max_size=graph.num_edges)), float)
    empty = draw(st.sampled_from(["uniform", "none"]))
    how = {"tables": build_alias(graph, weights, empty=empty), "empty": empty, "replace": draw(st.booleans())}
    seeds = np.array([v for v, _ in pairs], graph.indices.dtype)
    return graph, fanouts, seeds, np.array([t for _, t in pairs], float), how


@settings(deadline=None)
@given(cases(), st.sampled_from([np.inf, 1.0, 2.5, 4.0]))
def test_blocks_equal_the_reference(case, window):
    graph, fanouts, seeds, times, how = case
    sampler = TemporalSampler(graph, fanouts, seed=5, window=window, **how)
    for step in range(2):
        batch = BatchKey(0, 3, step)
        expected = temporal_reference(graph, fanouts, batch, seeds, times, seed=5, window=window, **how)
        assert_same_blocks(sampler.timed(batch, seeds, times).blocks, expected.blocks, FIELDS)


@settings(deadline=None)
@given(cases())
def test_a_time_after_all_edges_gives_the_blocks_of_weighted_sampling_without_times(case):
    graph, fanouts, seeds, _, how = case
    seeds, tables, replace = np.unique(seeds), how["tables"], how["replace"]
    timed = TemporalSampler(graph, fanouts, seed=3, times=np.full(graph.num_nodes, 99.0), **how)
    plain = WeightedSampler(graph, tables, fanouts, seed=3, replace=replace)
    assert_same_blocks(timed.sample(KEY, seeds), plain.sample(KEY, seeds), FIELDS)


def test_drawn_edges_are_earlier_and_have_weight():
    """On 1,000 drawn graphs, compared with a search through the list of edges."""
    for seed in range(1000):
        generator, edges = np.random.default_rng(seed), random_edges(seed)
        num_nodes, _, target, times = edges
        graph = timed_topology(*edges)
        weights = generator.choice([0.0, 1.0, 5.0, 100.0], graph.num_edges)
        seeds = generator.integers(0, num_nodes, 4)
        seed_times = generator.integers(0, 12, 4) + generator.permutation(4) / 8
        window, fanout = float(generator.choice([np.inf, 2, 5])), int(generator.choice([-1, 1, 2, 4]))
        weight_of = np.empty(graph.num_edges)
        weight_of[graph.edge_ids] = weights
        how = {"tables": build_alias(graph, weights, empty="none"), "empty": "none", "window": window}
        found = TemporalSampler(graph, [fanout, 3], seed=seed, **how).timed(KEY, seeds, seed_times, edge_ids=True)
        for block, most in zip(reversed(found.blocks), (fanout, 3), strict=True):
            for i in range(block.num_dst):
                v, time = block.src_ids[i], found.times[i]
                seen = (target == v) & (times < time) & (times >= time - window)
                weighty = np.flatnonzero(seen & (weight_of > 0))
                row = slice(block.start[i], block.end[i])
                taken, share = block.edge_id[row], block.share[row]
                assert len(set(taken.tolist())) == len(taken) and np.isin(taken, weighty).all()
                assert len(taken) == (len(weighty) if most < 0 else min(most, len(weighty)))
                whole = len(taken) == len(weighty)
                if len(taken):
                    wanted = weight_of[taken] / weight_of[weighty].sum() if whole else 1 / len(taken)
                    np.testing.assert_allclose(share, np.broadcast_to(wanted, len(taken)), rtol=1e-5, atol=1e-8)


ROWS = {
    "even": [1, 1, 1, 1, 1, 1, 1],
    "most of the weight is later": [1, 2, 3, 0, 4, 1e6, 1e6],
    "one dominant among the earlier": [1, 1, 1e7, 1, 1, 3, 3],
    "little is admissible": [1e-3, 2e-3, 1e-3, 3e-3, 1e-3, 1e3, 1],
}


def star(weights, relations=None):
    """Node 0 with an edge of the time i from node i + 1, and its weights in the order of its row."""
    leaves = np.arange(1, len(weights) + 1)
    graph = timed_topology(len(weights) + 1, leaves, np.zeros_like(leaves), np.arange(float(len(weights))), relations)
    return graph, np.asarray(weights, float)[graph.edge_ids]


@pytest.mark.parametrize("relations", [None, [1, 0, 1, 0, 1, 0, 0]])
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("k", [1, 2, 3])
def test_sets_are_those_of_successive_draws_among_the_earlier(row, k, relations):
    graph, weights = star(ROWS[row], relations)
    sampler = TemporalSampler(graph, [k], seed=4, tables=build_alias(graph, weights))
    expected, counts = successive(ROWS[row][:5], k), Counter()
    for step in range(5000):
        (block,), _ = sampler.timed(BatchKey(0, 0, step), [0], [4.5])
        counts[tuple(sorted((block.src_ids[block.indices] - 1).tolist()))] += 1
    assert counts.keys() <= expected.keys()
    assert_fits([counts[each] for each in expected], list(expected.values()))


@pytest.mark.parametrize("row", ROWS)
def test_draws_with_replacement_have_the_weights_of_the_window(row):
    (graph, weights), k = star(ROWS[row]), 7
    sampler = TemporalSampler(graph, [k], seed=4, replace=True, window=4.0, tables=build_alias(graph, weights))
    counts = np.zeros(len(weights))
    for step in range(3000):
        (block,), _ = sampler.timed(BatchKey(0, 0, step), [0], [4.5])
        assert len(block.indices) == k and np.allclose(block.share, 1 / k)
        np.add.at(counts, block.src_ids[block.indices] - 1, 1)
    seen = np.array(ROWS[row], float)[1:5]  # edges of the times 1 to 4
    assert counts.sum() == counts[1:5].sum() and not counts[1:5][seen == 0].any()
    assert_fits(counts[1:5][seen > 0], seen[seen > 0] / seen.sum())


def test_each_seed_of_a_batch_draws_by_weight_from_its_own_past():
    graph, weights = star([1, 2, 3, 4, 5, 6])
    sampler, counts = TemporalSampler(graph, [1], seed=2, tables=build_alias(graph, weights)), np.zeros((2, 6), int)
    for step in range(4000):
        (block,), _ = sampler.timed(BatchKey(0, 0, step), [0, 0], [2.0, 5.0])
        counts[[0, 1], block.src_ids[block.indices] - 1] += 1
    assert not counts[0, 2:].any() and not counts[1, 5:].any()
    assert_fits(counts[0, :2], np.array([1, 2]) / 3)
    assert_fits(counts[1, :5], np.arange(1, 6) / 15)


def test_long_rows_of_many_draws():
    """Repetitions found by hashing, spans of masses, and a map that grows, beside the reference."""
    generator = np.random.default_rng(0)
    source, target = generator.integers(0, 900, 20_000), (900 * generator.random(20_000) ** 4).astype(np.int64)
    graph = timed_topology(900, source, target, generator.random(20_000))
    weights = 10.0 ** generator.integers(-9, 9, 20_000)
    weights[::5] = 0
    tables, seeds, times = build_alias(graph, weights, empty="none"), np.arange(0, 900, 30), generator.random(30)
    for replace in (False, True):
        how = {"tables": tables, "empty": "none", "replace": replace}
        found = TemporalSampler(graph, [80, 3], seed=4, **how).timed(KEY, seeds, times)
        expected = temporal_reference(graph, [80, 3], KEY, seeds, times, seed=4, **how)
        assert_same_blocks(found.blocks, expected.blocks, FIELDS)


def test_a_node_whose_earlier_edges_have_no_weight():
    graph, weights = star([0, 0, 0, 7])
    table, seeds, times = build_alias(graph, weights), [0], [3.0]
    with pytest.raises(InputError, match=r"node 0 as of the time 3.* all have the weight 0\n  remedy: set empty_rows"):
        TemporalSampler(graph, [2], seed=0, tables=table).timed(KEY, seeds, times)
    (none,), _ = TemporalSampler(graph, [2], seed=0, tables=table, empty="none").timed(KEY, seeds, times)
    assert len(none.indices) == 0
    counts = Counter()
    uniform = TemporalSampler(graph, [2], seed=0, tables=table, empty="uniform")
    for step in range(3000):
        (block,), _ = uniform.timed(BatchKey(0, 0, step), seeds, times)
        counts[tuple((block.src_ids[block.indices] - 1).tolist())] += 1
        assert np.allclose(block.share, 1 / 2)
    assert_fits([counts[each] for each in ((0, 1), (0, 2), (1, 2))], np.full(3, 1 / 3))
    (late,), _ = TemporalSampler(graph, [2], seed=0, tables=table).timed(KEY, seeds, [4.0])
    assert late.src_ids[late.indices].tolist() == [4]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"choose": "recent"}, "the latest edges are taken whatever their weights are"),
        ({"fanouts": [(1, 2)]}, "has numbers per relation, which uniform sampling draws alone"),
        ({"tables": build_alias(*star([1, 2, 3]))}, "the graph has 2 edges"),
    ],
)
def test_what_weights_do_not_go_with(change, problem):
    graph, weights = star([1, 2], [0, 1])
    how = {"fanouts": [1], "tables": build_alias(graph, weights)} | change
    with pytest.raises(InputError, match=problem):
        TemporalSampler(graph, how.pop("fanouts"), seed=0, **how)


def test_a_damaged_table_is_told():
    graph, weights = star([1, 2, 3, 4])
    tables = build_alias(graph, weights)
    tables.table[:, 0], tables.table[:, 1] = 1, 99
    with pytest.raises(InputError, match="the alias table of node 0 does not fit its row"):
        TemporalSampler(graph, [2], seed=0, tables=tables).timed(KEY, [0], [3.5])
