"""Rankings, hit ratios and similarity against their definitions in plain Python."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.errors import InputError
from kernels.hotness.ranking import cache_sizes, hit_ratios, random_ranking, rank, similarity

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
