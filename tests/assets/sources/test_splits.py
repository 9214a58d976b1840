"""Splits: stratified, reproducible, disjoint."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.assets.sources.splits import checked, split_problems, stratified
from graphmill.kernels.errors import InputError


@given(
    st.lists(st.integers(-1, 4), max_size=120),
    st.integers(0, 2**63),
    st.floats(0.01, 1),
    st.floats(0, 1),
)
def test_every_labelled_node_is_in_one_part(labels, seed, train_ratio, rest):
    labels = np.array(labels, np.int32)
    valid_ratio = (1 - train_ratio) * rest
    parts = stratified(labels, seed, train_ratio, valid_ratio)
    assert list(split_problems(parts, labels)) == []
    assert np.sort(np.concatenate(parts)).tolist() == np.flatnonzero(labels >= 0).tolist()
    for label in set(labels[labels >= 0].tolist()):
        size = np.count_nonzero(labels == label)
        train = np.count_nonzero(labels[parts[0]] == label)
        assert train >= 1 and abs(train - size * train_ratio) <= 1


def test_the_seed_decides():
    labels = np.repeat(np.arange(3, dtype=np.int32), 50)
    one, again, other = (stratified(labels, seed, 0.5, 0.25)[0] for seed in (1, 1, 2))
    assert np.array_equal(one, again) and not np.array_equal(one, other)
    assert one.dtype == np.int32 and np.all(np.diff(one) > 0)


def test_a_class_is_cut_in_the_same_shares():
    labels = np.repeat(np.array([0, 1], np.int32), [100, 1000])
    for part, share in zip(stratified(labels, 7, 0.6, 0.2), (0.6, 0.2, 0.2), strict=True):
        assert np.bincount(labels[part]).tolist() == [round(100 * share), round(1000 * share)]


def test_all_problems_at_once():
    labels = np.array([0, 0, -1, 1], np.int32)
    parts = (np.array([0, 0, 9]), np.array([0, 2]), np.array([3]))
    with pytest.raises(InputError) as caught:
        checked(parts, labels)
    for text in (
        "ids outside [0, 4): 9",
        "occur twice: 0",
        "have no label: 2",
        "train and valid overlap in 1 nodes: 0",
    ):
        assert text in caught.value.problem
