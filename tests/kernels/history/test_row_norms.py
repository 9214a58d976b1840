"""Norms of rows: native code against NumPy to the bit, and NumPy against exact arithmetic."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.history.row_norms import row_norms, row_norms_reference


def drawn_rows(num_rows: int, width: int, dtype, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((num_rows, width)) * 10.0 ** rng.integers(-30, 30, (num_rows, 1))
    rows[rng.random(rows.shape) < 0.05] = 0
    return rows.astype(dtype)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 300),
    st.sampled_from([0, 1, 7, 31, 32, 33, 64, 100, 256]),
    st.sampled_from([np.float32, np.float64]),
    st.integers(0, 99),
)
def test_native_norms_have_the_bits_of_numpy(num_rows, width, dtype, seed):
    rows = drawn_rows(num_rows, width, dtype, seed)
    expected = row_norms_reference(rows)
    assert expected.dtype == np.float32
    for threads in (1, 2, 8):
        np.testing.assert_array_equal(row_norms(rows, threads=threads), expected)
    exact = [math.sqrt(math.fsum(float(value) ** 2 for value in row)) for row in rows]
    np.testing.assert_allclose(expected, exact, rtol=1e-6)


def test_what_is_no_number_shows():
    rows = np.zeros((4, 40), np.float32)
    rows[0, 33], rows[1, 5], rows[2, :] = np.nan, -np.inf, 1e38
    norms = row_norms(rows)
    assert np.isnan(norms[0]) and np.isinf(norms[1]) and np.isinf(norms[2]) and norms[3] == 0
    assert row_norms(np.full((1, 4), 1e-30, np.float32))[0] == np.float32(2e-30)  # squares that float32 does not hold


def test_what_does_not_fit_is_refused():
    rows = np.ones((3, 4), np.float32)
    for wrong in (
        (rows.astype(np.float16), None),
        (rows[0], None),
        (rows, np.empty(2, np.float32)),
        (rows, np.empty(3)),
    ):
        with pytest.raises(InputError, match="remedy"):
            row_norms(wrong[0], wrong[1])
