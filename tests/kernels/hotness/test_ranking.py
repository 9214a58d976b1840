"""Rankings, hit ratios and similarity against their definitions in plain Python."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.hotness.ranking import (
    cache_sizes,
    expected_hit_ratios,
    held_out_hit_ratios,
    hit_ratios,
    random_ranking,
    rank,
    similarity,
)

COUNTS = st.lists(st.integers(0, 6), min_size=1, max_size=40)


@given(counts=COUNTS, as_float=st.booleans())
def test_hottest_first_and_ties_by_smaller_id(counts, as_float):
    score = np.array(counts, np.float64 if as_float else np.uint32)
    assert rank(score).tolist() == sorted(range(len(counts)), key=lambda v: (-counts[v], v))


def test_extremes_keep_their_order():
    assert rank(np.array([0, 2**32 - 1, 1], np.uint32)).tolist() == [1, 2, 0]
    assert rank(np.array([-0.0, 0.0, -np.inf, 1e-300])).tolist() == [3, 0, 1, 2]
    assert rank(np.zeros(0)).tolist() == []
    for bad in (np.array([1.0, np.nan]), np.zeros((2, 2))):
        with pytest.raises(InputError):
            rank(bad)


@given(counts=COUNTS, seed=st.integers(0, 9))
def test_a_cache_hits_what_it_holds_and_the_optimum_hits_most(counts, seed):
    visits, num_nodes = np.array(counts, np.uint32), len(counts)
    order, total = random_ranking(num_nodes, seed), max(1, sum(counts))
    assert sorted(order.tolist()) == list(range(num_nodes))
    sizes = np.arange(num_nodes + 1)
    hits = hit_ratios(order, visits, sizes)
    assert hits.tolist() == [sum(counts[v] for v in order[:size]) / total for size in sizes]
    assert (hit_ratios(rank(visits), visits, sizes) >= hits).all()


@given(counts=COUNTS, seed=st.integers(0, 9))
def test_rates_that_are_counts_expect_what_the_counts_hold(counts, seed):
    visits, order = np.array(counts), random_ranking(len(counts), seed)
    sizes = np.arange(len(counts) + 1)
    expected = expected_hit_ratios(order, visits / 8, sizes)
    np.testing.assert_allclose(expected, hit_ratios(order, visits, sizes), atol=1e-12)


def left_out(batches, sizes):
    """Hit ratios of caches that each batch finds filled by the counts of the others, nodes of equal counts in a random order."""
    rng, counts = np.random.default_rng(1), batches.sum(axis=0)
    hits, total = np.zeros(len(sizes)), batches.sum()
    for batch in batches:
        others = counts - batch
        for _ in range(20):
            order = np.lexsort((rng.random(len(others)), -others))
            hits += np.cumsum(np.concatenate([[0], batch[order]]))[sizes] / 20
    return hits / total


@pytest.mark.parametrize(("num_batches", "most"), [(6, 0.8), (40, 0.3), (3, 0.99)])
def test_a_batch_finds_the_cache_that_the_others_fill(num_batches, most):
    """Against leaving out one batch after the other; in between stands the ranking that saw the batch itself."""
    rng = np.random.default_rng(0)
    rates = most * rng.random(3000) ** 3
    batches = (rng.random((num_batches, 3000)) < rates).astype(np.int64)
    visits, sizes = batches.sum(axis=0), np.array([0, 30, 300, 1000, 2500, 3000])
    found = held_out_hit_ratios(visits, num_batches, sizes)
    np.testing.assert_allclose(found, left_out(batches, sizes), atol=0.015)
    assert found[0] == 0 and found[-1] == pytest.approx(1)
    seen = hit_ratios(rank(visits), visits, sizes)
    assert (seen[1:4] > found[1:4] + 0.005).all(), "the counts of a batch favour its own nodes"


@given(counts=COUNTS)
def test_held_out_ratios_rise_to_one_and_stay_below_the_counts_own(counts):
    visits, sizes = np.array(counts), np.arange(len(counts) + 1)
    found = held_out_hit_ratios(visits, 6, sizes)
    assert (np.diff(found) > -1e-12).all() and found[0] == 0
    assert found[-1] == pytest.approx(float(sum(counts) > 0))


def test_cache_sizes_round_down():
    assert cache_sizes([0, 0.1, 0.5, 1], 15).tolist() == [0, 1, 7, 15]


@given(pairs=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=10, max_size=60))
def test_similarity_is_the_paper_s_formula(pairs):
    first, second = (np.array(column, np.uint32) for column in zip(*pairs, strict=True))
    size = len(pairs) // 10
    top = [set(rank(visits)[:size].tolist()) for visits in (first, second)]
    shared = sum(min(int(first[v]), int(second[v])) for v in top[0] & top[1])
    total = sum(int(second[v]) for v in top[1])
    assert similarity(first, second) == (shared / total if total else 1.0)
    assert similarity(first, first) == 1.0
