"""The mask is a function of key, node and column, and drops what it says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.layers.dropout import (
    dropout,
    dropout_reference,
    relu_dropout,
    relu_dropout_backward,
    relu_dropout_reference,
)
from graphmill.kernels.rng import key

KEYS, IDS, WIDTHS = st.integers(0, 2**64 - 1), st.lists(st.integers(0, 2**31 - 1), max_size=12), st.integers(0, 140)
FLOATS, THREADS = st.sampled_from([np.float32, np.float64]), st.sampled_from([1, 2, 8])
RATES = st.sampled_from([0.0, 1e-6, 0.1, 0.5, 0.9, 0.99999])


@given(KEYS, IDS, WIDTHS, RATES, FLOATS, st.sampled_from([np.int32, np.int64]), THREADS)
def test_elements_equal_the_reference(mask_key, ids, width, p, dtype, id_dtype, threads):
    node_ids = np.array(ids, id_dtype)
    x = np.random.default_rng(0).standard_normal((len(ids), width)).astype(dtype)
    expected = dropout_reference(x, node_ids, mask_key, p)
    out = dropout(x, node_ids, mask_key, p, threads=threads)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, expected)
    assert dropout(x, node_ids, mask_key, p, out=x, threads=threads) is x
    np.testing.assert_array_equal(x, expected)


@given(KEYS, IDS, WIDTHS, RATES, FLOATS, st.booleans(), THREADS)
def test_bias_relu_and_dropout_in_place_equal_the_reference(mask_key, ids, width, p, dtype, biased, threads):
    node_ids, generator = np.array(ids, np.int32), np.random.default_rng(0)
    x, grad = (generator.standard_normal((len(ids), width)).astype(dtype) for _ in range(2))
    bias = generator.standard_normal(width).astype(dtype) if biased else None
    expected = relu_dropout_reference(x, bias, node_ids, mask_key, p)
    raised = x if bias is None else x + bias
    relu_dropout(x, bias, node_ids, mask_key, p, threads=threads)
    np.testing.assert_array_equal(x, expected)
    # The gradient of the composition: that of dropout where the value was above 0.
    dropped = dropout_reference(grad, node_ids, mask_key, p)
    relu_dropout_backward(x, grad, p, grad, threads=threads)
    np.testing.assert_array_equal(grad, np.where(raised > 0, dropped, dtype(0)))


def test_what_is_no_number_stays_so_unless_it_is_dropped():
    x = np.full((1, 100), np.nan, np.float32)
    relu_dropout(x, None, np.array([1]), 5, 0.5)
    assert 0 < np.isnan(x).sum() < 100 and (x[~np.isnan(x)] == 0).all()
    with pytest.raises(InputError, match="bias is"):
        relu_dropout(x, np.zeros(3, np.float32), np.array([1]), 5, 0.5)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_the_rate_and_the_mean_hold_in_every_lane(p):
    kept = dropout(np.ones((4000, 16)), np.arange(4000), key(3), p) > 0
    rate = 1 - kept.mean(axis=0)  # by column: four lanes of four draws
    assert np.abs(rate - p).max() < 4.5 * np.sqrt(p * (1 - p) / 4000)
    assert abs(dropout(np.ones((4000, 16)), np.arange(4000), key(3), p).mean() - 1) < 0.05


def test_masks_belong_to_nodes_not_to_rows():
    ids = np.array([7, 3, 12])
    x = np.ones((3, 50), np.float32)
    assert np.array_equal(dropout(x, ids, 5, 0.5)[::-1], dropout(x, ids[::-1], 5, 0.5))
    assert not np.array_equal(dropout(x, ids, 5, 0.5), dropout(x, ids, 6, 0.5))
    assert not np.array_equal(dropout(x, ids, 5, 0.5)[0], dropout(x, ids, 5, 0.5)[1])


def test_no_dropout_is_the_identity_and_dropped_values_do_not_leak():
    x = np.array([[np.nan, np.inf, -0.0, 1.5] * 30], np.float32)
    np.testing.assert_array_equal(dropout(x, [1], 5, 0.0), x)
    out = dropout(x, [1], 5, 0.9)
    assert (out == 0).sum() > 60 and np.isfinite(dropout(np.full_like(x, np.nan), [1], 5, 0.9)).sum() > 60


@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan")])
def test_a_rate_that_is_no_probability_is_refused(p):
    with pytest.raises(InputError, match="dropout p"):
        dropout(np.ones((1, 1)), [0], 0, p)


def test_what_does_not_fit_is_refused():
    x = np.ones((4, 4), np.float32)
    for call in (
        lambda: dropout(x, [0, 1], 0, 0.5),
        lambda: dropout(x.astype(np.float16), range(4), 0, 0.5),
        lambda: dropout(x[:3], range(3), 0, 0.5, out=x[1:]),
    ):
        with pytest.raises(InputError, match="remedy"):
            call()
