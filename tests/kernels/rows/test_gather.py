"""Rows arrive converted, from any table that may be stored, or nothing is written."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.gather import TABLE_DTYPES, gather, gather_reference

pytestmark = pytest.mark.smoke


@given(
    st.sampled_from(TABLE_DTYPES),
    st.sampled_from([np.float32, np.float64, None]),
    st.sampled_from([np.int32, np.int64]),
    st.integers(0, 40),
    st.integers(0, 30),
    st.sampled_from([1, 2, 8]),
)
def test_rows_equal_the_reference(dtype, out_dtype, id_dtype, width, count, threads):
    generator = np.random.default_rng(width * 31 + count)
    bits = generator.integers(0, 256, (20, width * dtype.itemsize), np.uint8)
    table = bits.view(dtype).reshape(20, width)  # every bit pattern: infinities, NaN, subnormal numbers
    ids = generator.integers(0, 20, count).astype(id_dtype)
    out = np.full((count, width), 7, out_dtype or dtype)
    with np.errstate(all="ignore"):
        expected = gather_reference(table, ids, out.dtype)
    assert gather(table, ids, out, threads) is out
    np.testing.assert_array_equal(out, expected)


@given(
    st.sampled_from(TABLE_DTYPES),
    st.sampled_from([np.float32, np.float64, None]),
    st.tuples(st.sampled_from([np.int32, np.int64]), st.sampled_from([np.int32, np.int64])),
    st.integers(0, 40),
    st.integers(0, 30),
    st.integers(1, 8),
    st.integers(0, 2**32 - 1),
)
def test_rows_by_row_of_equal_the_reference(dtype, out_dtype, id_dtypes, width, count, threads, seed):
    """Nodes find their rows in any order; those without features get zeros."""
    generator = np.random.default_rng(seed)
    table = generator.integers(0, 256, (20, width * dtype.itemsize), np.uint8).view(dtype).reshape(20, width)
    row_of = generator.integers(-1, 20, 50).astype(id_dtypes[0])
    row_of[generator.random(50) < 0.3] = -1
    ids = generator.integers(0, 50, count).astype(id_dtypes[1])
    out = np.full((count, width), 7, out_dtype or dtype)
    with np.errstate(all="ignore"):
        expected = gather_reference(table, ids, out.dtype, row_of)
    assert gather(table, ids, out, threads, row_of) is out
    np.testing.assert_array_equal(out, expected)
    assert not out[row_of[ids] < 0].any()


def test_a_large_output_by_row_of():
    generator = np.random.default_rng(0)
    table, row_of = generator.random((1000, 50), np.float32), generator.integers(-1, 1000, 3000)
    ids = generator.integers(0, 3000, (8 << 20) // 200 + 5)
    out = np.full((len(ids), 50), 7, np.float32)
    np.testing.assert_array_equal(gather(table, ids, out, 2, row_of), gather_reference(table, ids, row_of=row_of))


@pytest.mark.parametrize(
    ("ids", "row_of", "message"),
    [
        ([0, 3], [0, 1, 2], "node id 3 at position 1 is not one of 3 nodes"),
        ([0, 1], [0, 6], "node 1 has row 6 of a table of 6 rows"),
        ([1], [0, -2], "node 1 has row -2"),
        ([0], [[0]], "row_of is int64"),
        ([0], [0.5], "row_of is float64"),
    ],
)
def test_a_row_of_that_does_not_fit_is_refused(ids, row_of, message):
    out = np.full((len(ids), 2), 7, np.float32)
    with pytest.raises(InputError, match=message):
        gather(np.ones((6, 2), np.float32), np.array(ids), out, row_of=np.array(row_of))
    assert (out == 7).all()


def test_every_float16_is_exact():
    table = np.arange(65536, dtype=np.uint16).view(np.float16).reshape(4096, 16)
    out = np.empty((4096, 16), np.float32)
    np.testing.assert_array_equal(gather(table, np.arange(4096), out), table.astype(np.float32))


def test_every_bfloat16_is_exact():
    table = np.arange(65536, dtype=np.uint16).reshape(4096, 16)
    tensor = torch.from_numpy(table).view(torch.bfloat16)
    out = np.empty((4096, 16), np.float32)
    np.testing.assert_array_equal(gather(table, np.arange(4096), out), tensor.float().numpy())


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("width", [3, 16, 50, 100, 128, 150])
def test_an_output_larger_than_the_caches_begins_and_ends_anywhere_in_a_line(width, threads):
    generator, count = np.random.default_rng(width), (8 << 20) // (4 * width) + 5
    table, ids = generator.random((1000, width), np.float32), generator.integers(0, 1000, count)
    for place in (0, 1, 9):
        around = np.full(count * width + 32, 7, np.float32)
        first = place - around.ctypes.data // 4 % 16 + 16
        out = around[first : first + count * width].reshape(count, width)
        np.testing.assert_array_equal(gather(table, ids, out, threads), table[ids])
        assert set(around[:first]) | set(around[first + count * width :]) == {7}


def test_a_mapped_table_and_rows_that_are_apart(tmp_path):
    whole = np.arange(60, dtype=np.float32).reshape(6, 10)
    whole.tofile(tmp_path / "table")
    mapped = np.memmap(tmp_path / "table", np.float32, "r", shape=(6, 10))
    ids = np.array([5, 0, 5])
    np.testing.assert_array_equal(gather(mapped, ids, np.empty((3, 10), np.float32)), whole[ids])
    np.testing.assert_array_equal(gather(whole[::2, 3:7], [2, 1], np.empty((2, 4))), whole[::2, 3:7][[2, 1]])
    np.testing.assert_array_equal(gather(whole[::-1], [1], np.empty((1, 10))), whole[::-1][[1]])


@pytest.mark.parametrize("bad", [6, -1, 2**40])
def test_ids_out_of_range_are_named_and_nothing_is_written(bad):
    out = np.zeros((3, 2), np.float32)
    with pytest.raises(InputError, match=f"node id {bad} at position 1 .* 6 rows"):
        gather(np.ones((6, 2), np.float32), np.array([0, bad, 1]), out)
    assert not out.any()


def test_what_does_not_fit_is_refused():
    table, out = np.ones((6, 2), np.float32), np.empty((1, 2), np.float32)
    frozen = np.empty((1, 2), np.float32)
    frozen.setflags(write=False)
    for arguments in (
        (table.astype(np.int64), [0], out),
        (table[0], [0], out),
        (np.asfortranarray(table), [0], out),
        (table, [0, 1], out),
        (table, [0], out.astype(np.float16)),
        (table, [0, 1], np.empty((4, 2), np.float32)[::2]),
        (table, [0], frozen),
        (table.astype(">f4"), [0], out),
    ):
        with pytest.raises(InputError):
            gather(*arguments)
