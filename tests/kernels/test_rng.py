"""Draws are the stated function of their words, natively and in NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels import rng
from graphmill.kernels.errors import InputError

WORDS = st.integers(0, 2**64 - 1)


def test_draws_are_splitmix64():
    # The first outputs of the published generator for the seeds 0 and 1234567.
    assert [int(rng.draws(0, i)) for i in range(3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert rng.draws(1234567, np.arange(3)).tolist() == expected


def test_key_is_pinned():
    # Stored artifacts depend on these bits.
    assert rng.key(0, 7, 1) == rng.absorb(rng.absorb(rng.absorb(0, 0), 7), 1)
    assert rng.key(1, 2, 3) == 0xD0734750FDE362B3


@given(WORDS, st.lists(st.integers(0, 2**63 - 1), max_size=20), st.sampled_from([1, 2, 8]))
def test_absorb_ids_is_absorb_of_each(h, ids, threads):
    native = rng.absorb_ids(h, np.array(ids, np.int64), threads=threads)
    assert native.tolist() == [rng.absorb(h, i) for i in ids]
    assert native.tolist() == rng.absorb_ids_reference(h, np.array(ids, np.int64)).tolist()


@given(WORDS, st.integers(1, 2**63 - 1))
def test_bounded_is_in_range(x, n):
    assert rng.bounded(x, n) == x * n // 2**64 < n


@given(st.lists(WORDS, min_size=1), st.sampled_from([1, 7, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**63 - 1]))
def test_bounded_each_is_bounded_of_each(words, n):
    assert rng.bounded_each(np.array(words, np.uint64), n).tolist() == [rng.bounded(x, n) for x in words]


@given(WORDS, st.integers(0, 300))
def test_permutation_holds_every_position(h, n):
    assert sorted(rng.permutation(h, n).tolist()) == list(range(n))


def test_permutation_is_uniform():
    counts = np.zeros((5, 5))
    for h in range(4000):
        counts[np.arange(5), rng.permutation(rng.key(h), 5)] += 1
    assert ((counts - 800) ** 2 / 800).sum() < 45  # 16 degrees of freedom, p about 1e-4


def test_uniform_is_a_fraction():
    values = rng.uniform(rng.key(5), 20000)
    assert values.dtype == np.float32 and values.min() >= 0 and values.max() < 1
    counts = np.histogram(values, 20, (0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 50


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_normal_int_equals_its_reference(dtype, threads):
    ids = np.array([0, 3, 3, 2**31 - 1], dtype).repeat(700)
    expected = rng.normal_int_reference(9, ids, 11)
    assert rng.normal_int(9, ids, 11, threads=threads).tobytes() == expected.tobytes()


def test_normal_int_has_the_stated_moments():
    values = rng.normal_int(rng.key(1), np.arange(4000), 50).astype(float)
    assert abs(values.mean()) < 2  # the mean of 200,000 has deviation 0.47
    assert abs(values.var() / rng.NORMAL_VARIANCE - 1) < 0.02
    assert np.abs(values).max() <= 1020


@given(st.integers(-(2**70), 2**70), st.integers(-(2**70), 2**70))
def test_streams_differ(a, b):
    assert rng.key(a, b) == rng.key(a % 2**64, b % 2**64)
    assert rng.key(a, b, 0) != rng.key(a, b, 1)


def test_bad_arguments_are_named():
    for call in (
        lambda: rng.absorb_ids(0, np.array([0.5])),
        lambda: rng.normal_int(0, [1], -1),
        lambda: rng.permutation(0, -1),
        lambda: rng.absorb_ids(0, [1], threads=0),
    ):
        with pytest.raises(InputError, match="remedy"):
            call()
