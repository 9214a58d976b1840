"""The different ids of edges, and their places."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.graph.id_set import (
    IdSet,
    RankIndex,
    id_set_reference,
    look_up_reference,
    unique_places,
    unique_places_reference,
)

IDS = st.lists(
    st.one_of(st.integers(-3, 200), st.integers(-(2**63), 2**63 - 1), st.integers(2**28 - 3, 2**28 + 3)), max_size=60
)


@settings(max_examples=100, deadline=None)
@given(IDS, IDS)
def test_set_equals_the_reference(first, second):
    ids = [np.array(each, np.int64) for each in (first, second)]
    found = IdSet()
    for side, each in enumerate(ids):
        for piece in np.array_split(each, 3):
            found.add(piece, side)
    values, both = found.sorted()
    expected, shared = id_set_reference(*ids)
    assert values.dtype == np.int64 and np.array_equal(values, expected) and both == shared


def test_many_far_ids():
    ids = np.random.default_rng(0).integers(-(2**62), 2**62, 20_000)
    found = IdSet()
    found.add(ids, 0)
    found.add(ids[:500], 1)
    values, both = found.sorted()
    assert np.array_equal(values, np.unique(ids)) and both == len(np.unique(ids[:500]))


@settings(max_examples=100, deadline=None)
@given(IDS, IDS, st.sampled_from([1, 2]))
def test_places_equal_the_reference(ids, given_ids, threads):
    known = np.unique(np.array(ids, np.int64))
    asked = np.array(given_ids + ids[::2], np.int64)
    assert np.array_equal(RankIndex(known).look_up(asked, threads), look_up_reference(known, asked))


@settings(max_examples=100, deadline=None)
@given(IDS, st.integers(0, 60))
def test_unique_places_equal_the_reference(ids, shift):
    """Ids of any span: a sort of no digit, of some and of all."""
    given_ids = np.array(ids, np.int64) >> shift
    for mine, theirs in zip(unique_places(given_ids), unique_places_reference(given_ids), strict=True):
        assert mine.dtype == theirs.dtype and np.array_equal(mine, theirs)


def test_unique_places_of_many_ids():
    for span in (50, 1 << 11, 1 << 22, 1 << 33, 1 << 62):
        ids = np.random.default_rng(span % 97).integers(0, span, 50_000) - 7
        for mine, theirs in zip(unique_places(ids), unique_places_reference(ids), strict=True):
            assert np.array_equal(mine, theirs)
