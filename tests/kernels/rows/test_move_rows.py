"""Moving rows: native code and the CUDA kernels do what NumPy does, to the bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.move_rows import (
    add_rows,
    add_rows_reference,
    place_rows,
    place_rows_reference,
    take_rows,
    take_rows_reference,
)

REFERENCES = {"place": (place_rows, place_rows_reference), "add": (add_rows, add_rows_reference)}
WIDTHS = [0, 1, 3, 8, 47, 128]


def drawn(num_rows, num_out, count, width, dtype, seed, ids=np.int32):
    generator = np.random.default_rng(seed)
    source, out = (generator.standard_normal((n, width)).astype(dtype) for n in (num_rows, num_out))
    return (
        source,
        generator.integers(0, num_rows, count).astype(ids),
        out,
        generator.permutation(num_out)[:count].astype(ids),
    )


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(REFERENCES)), st.integers(1, 600), st.integers(0, 600), st.sampled_from(WIDTHS),
    st.sampled_from([np.float32, np.float64]), st.sampled_from([np.int32, np.int64]), st.integers(0, 99),
)  # fmt: skip
def test_rows_move_as_in_numpy_at_any_thread_count(name, num_rows, count, width, dtype, ids, seed):
    source, source_rows, out, out_rows = drawn(num_rows, count + 5, count, width, dtype, seed, ids)
    move, reference = REFERENCES[name]
    expected = out.copy()
    reference(source, source_rows, expected, out_rows)
    for threads in (1, 2, 8):
        found = out.copy()
        assert move(source, source_rows, found, out_rows, threads) is found
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", REFERENCES)
def test_without_a_list_all_rows_move_in_order(name):
    source, _, out, rows = drawn(40, 60, 40, 5, np.float32, 1)
    move, reference = REFERENCES[name]
    expected = out.copy()
    reference(source, None, expected, rows)
    np.testing.assert_array_equal(move(source, None, out, rows), expected)
    back, other = np.ones((40, 5), np.float32), np.ones((40, 5), np.float32)
    reference(out, rows, other, None)
    np.testing.assert_array_equal(move(out, rows, back, None), other)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 600), st.sampled_from(WIDTHS), st.sampled_from([np.float32, np.float64]), st.integers(0, 99))
def test_taken_rows_are_zero(count, width, dtype, seed):
    _, _, source, rows = drawn(1, count + 7, count, width, dtype, seed)
    left, expected, found = source.copy(), np.empty((count, width), dtype), np.empty((count, width), dtype)
    take_rows_reference(left, rows, expected)
    take_rows(source, rows, found, threads=2)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(source, left)


def test_what_does_not_fit_is_refused():
    rows, floats = np.arange(3, dtype=np.int32), np.ones((5, 4), np.float32)
    for wrong in (
        (floats, rows, np.ones((5, 3), np.float32), rows),
        (floats, rows, np.ones((5, 4)), rows),
        (floats, rows, np.ones((5, 4), np.float32), rows[:2]),
        (floats, rows + 3, np.ones((5, 4), np.float32), rows),
        (floats, rows, np.ones((5, 4), np.float32), rows - 1),
        (floats[:, ::2], rows, np.ones((5, 2), np.float32), rows),
        (floats, rows, floats, rows + 1),
        (floats.astype(np.float16), rows, np.ones((5, 4), np.float16), rows),
    ):
        with pytest.raises(InputError, match="remedy"):
            place_rows(*wrong)
