"""Every neighbour and every pair of neighbours is taken equally often; layers, steps and nodes draw apart."""

from itertools import combinations, combinations_with_replacement
from math import factorial, prod

import numpy as np
import pytest

from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey
from tests.kernels.graphs import topology
from tests.kernels.sampling.chi_square import chi_square_limit

ROUNDS = 300


def taken_positions(degree, fanout, replace=False, copies=20):
    """i64[ROUNDS * copies, fanout]: positions that equal rows give up over many steps."""
    graph = topology([list(range(degree))] * degree)
    sampler = Sampler(graph, [fanout], seed=11, replace=replace)
    rounds = []
    for step in range(ROUNDS):
        (block,) = sampler.sample(BatchKey(0, 0, step), np.arange(copies))
        rounds.append(block.src_ids[block.indices].reshape(copies, fanout))
    return np.concatenate(rounds)


@pytest.mark.parametrize(("degree", "fanout"), [(20, 5), (20, 19), (90, 70)])
def test_inclusion_is_uniform(degree, fanout):
    taken = taken_positions(degree, fanout)
    assert all(len(set(row)) == fanout for row in taken.tolist())
    counts = np.bincount(taken.ravel(), minlength=degree)
    expected = len(taken) * fanout / degree
    # A sample of fixed size has less variance than independent draws; the factor restores chi-square.
    statistic = ((counts - expected) ** 2 / expected).sum() * (degree - 1) / (degree - fanout)
    freedom = degree - 1
    assert abs(statistic - freedom) < 4 * np.sqrt(2 * freedom)


def test_pairs_are_included_equally_often():
    degree, fanout = 12, 4
    taken = taken_positions(degree, fanout, copies=12)
    counts = dict.fromkeys(combinations(range(degree), 2), 0)
    for row in taken.tolist():
        for pair in combinations(row, 2):
            counts[pair] += 1
    chance = fanout * (fanout - 1) / (degree * (degree - 1))
    deviation = np.sqrt(len(taken) * chance * (1 - chance))
    scores = (np.array(list(counts.values())) - len(taken) * chance) / deviation
    assert np.abs(scores).max() < 4.2  # 66 pairs
    assert 0.6 < scores.var() < 1.5


@pytest.mark.parametrize(("degree", "fanout"), [(8, 3), (7, 6), (6, 2)])
def test_every_subset_is_equally_likely(degree, fanout):
    # All inclusion probabilities, of single neighbours, pairs and more, follow from this one.
    taken = taken_positions(degree, fanout, copies=degree)
    counts = dict.fromkeys(combinations(range(degree), fanout), 0)
    for row in taken.tolist():
        counts[tuple(row)] += 1
    expected = len(taken) / len(counts)
    assert sum((count - expected) ** 2 for count in counts.values()) / expected < chi_square_limit(len(counts) - 1)


def test_every_multiset_has_its_multinomial_probability():
    degree, fanout = 4, 3
    taken = taken_positions(degree, fanout, replace=True, copies=degree)
    statistic = 0.0
    multisets = list(combinations_with_replacement(range(degree), fanout))
    for chosen in multisets:
        orders = factorial(fanout) // prod(factorial(chosen.count(each)) for each in set(chosen))
        expected = len(taken) * orders / degree**fanout
        statistic += ((taken == chosen).all(axis=1).sum() - expected) ** 2 / expected
    assert statistic < chi_square_limit(len(multisets) - 1)


def test_drawing_with_replacement_is_uniform_and_repeats():
    taken = taken_positions(10, 5, replace=True, copies=10)
    counts = np.bincount(taken.ravel(), minlength=10)
    assert ((counts - len(taken) / 2) ** 2 / (len(taken) / 2)).sum() < 34  # 9 degrees of freedom, p about 1e-4
    distinct = np.mean([len(set(row)) for row in taken.tolist()])
    assert abs(distinct - 10 * (1 - 0.9**5)) < 0.05


def test_layers_steps_epochs_streams_and_nodes_draw_apart():
    graph = topology([list(range(40))] * 40)
    sampler = Sampler(graph, [10, 10], seed=0)
    seen = set()
    keys = [BatchKey(0, 0, 0), BatchKey(0, 0, 1), BatchKey(0, 1, 0), BatchKey(1, 0, 0)]
    for batch in keys:
        for block in sampler.sample(batch, [5, 6]):
            for i in range(2):
                seen.add(tuple(block.src_ids[block.indices[block.start[i] : block.end[i]]].tolist()))
    assert len(seen) == len(keys) * 2 * 2


def test_a_node_draws_the_same_neighbours_in_any_batch():
    graph = topology([list(range(40))] * 40)
    sampler = Sampler(graph, [7], seed=0)
    alone = sampler.sample(BatchKey(0, 0, 3), [9])[0]
    among = sampler.sample(BatchKey(0, 0, 3), [1, 2, 9])[0]
    row = among.indices[among.start[2] : among.end[2]]
    assert alone.src_ids[alone.indices].tolist() == among.src_ids[row].tolist()
