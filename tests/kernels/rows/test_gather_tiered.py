"""Each row arrives from the tier that its slot names, whatever the dtype and width, or nothing is written."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.arrays import BFLOAT16
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.gather import TABLE_DTYPES, gather_tiered, gather_tiered_reference
from graphmill.kernels.rows.slots import DEVICE, ELSEWHERE, HOST, NO_FEATURES, PEER, STAGED, Tiers, make_slots
from graphmill.kernels.types import NO_TRAFFIC
from tests.kernels.rows.tiered import WIDTHS, random_rows, random_tiers, valid_slots


def assert_gathers(tiers, slots, out_dtype, threads=1):
    out = np.full((len(slots), tiers.width), 7, out_dtype)
    with np.errstate(all="ignore"):
        expected = gather_tiered_reference(slots, tiers, out.dtype)
    assert gather_tiered(slots, tiers, out, threads) == NO_TRAFFIC
    np.testing.assert_array_equal(out, expected)
    if out.dtype == tiers.dtype:  # NaN payloads too
        assert out.tobytes() == expected.tobytes()


@given(
    st.sampled_from(TABLE_DTYPES),
    st.sampled_from([np.float32, np.float64, None]),
    st.integers(0, 40),
    st.tuples(*[st.sampled_from([None, 0, 1, 6])] * 3),
    st.sampled_from([(), (3,), (0, 8, 2)]),
    st.integers(0, 60),
    st.sampled_from([1, 2, 8]),
)
def test_rows_equal_the_reference(dtype, out_dtype, width, counts, peers, num_slots, threads):
    if counts == (None,) * 3 and not peers:
        counts = (2, None, None)
    generator = np.random.default_rng(width + 41 * num_slots)
    tiers = random_tiers(generator, width, dtype, counts, peers)
    assert_gathers(tiers, generator.choice(valid_slots(tiers), num_slots), out_dtype or dtype, threads)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, BFLOAT16])
def test_common_widths_are_exact(width, dtype):
    generator = np.random.default_rng(width)
    tiers = random_tiers(generator, width, dtype)
    slots = generator.choice(valid_slots(tiers), 3000)
    assert_gathers(tiers, slots, np.float32, threads=2)
    assert_gathers(tiers, slots, dtype, threads=2)


@pytest.mark.parametrize(("width", "dtype"), [(1, np.float32), (100, np.float32), (129, np.uint8), (128, np.float32)])
@pytest.mark.parametrize("first", [0, 1, 13])
def test_outputs_that_are_written_past_the_caches(width, dtype, first):
    """Rows begin and end anywhere in a line of the caches."""
    generator = np.random.default_rng(width)
    tiers = random_tiers(generator, width, dtype)
    count = (8 << 20) // (width * np.dtype(dtype).itemsize) + 3
    slots = generator.choice(valid_slots(tiers), count)
    expected = gather_tiered_reference(slots, tiers, dtype)
    around = np.full(count * width + first + 64, 7, dtype)
    out = around[first : first + count * width].reshape(count, width)
    for threads in (1, 3):
        out[:] = 7
        gather_tiered(slots, tiers, out, threads)
        assert out.tobytes() == expected.tobytes()
        assert (around[:first] == 7).all() and (around[first + count * width :] == 7).all()


def test_a_node_without_features_gets_zeros():
    tiers = Tiers(device=np.ones((2, 3), np.float32))
    out = np.full((3, 3), np.nan, np.float32)
    gather_tiered(np.array([0, -1, 1], np.int32), tiers, out)
    assert out.tolist() == [[1, 1, 1], [0, 0, 0], [1, 1, 1]]


@pytest.mark.parametrize(
    ("slot", "message"),
    [
        (ELSEWHERE, "in none of the tiers\n  remedy: stage"),
        (-3, "is no slot"),
        (int(make_slots(DEVICE, [2])[0]), "row 2 of the device tier, which has 2 rows"),
        (int(make_slots(HOST, [0])[0]), "row 0 of the host tier, which is not given"),
        (int(make_slots(STAGED, [5])[0]), "row 5 of the staged tier, which has 3 rows"),
        (int(make_slots(PEER, [6])[0]), "row 6 of the peer tier, which the 2 peers with stride 4 do not have"),
        (int(make_slots(PEER, [8])[0]), "row 8 of the peer tier"),
    ],
)
def test_a_slot_without_a_row_is_named_and_nothing_is_written(slot, message):
    rows = np.ones((4, 2), np.float32)
    tiers = Tiers(device=rows[:2], staged=rows[:3], peers=(rows, rows[:2]), peer_stride=4)
    out = np.zeros((3, 2), np.float32)
    with pytest.raises(InputError, match=f"slot {slot} at position 1 .*{message}"):
        gather_tiered(np.array([0, slot, NO_FEATURES], np.int32), tiers, out)
    assert not out.any()


def test_what_does_not_fit_is_refused():
    tiers, slots = Tiers(device=np.ones((6, 2), np.float32)), np.zeros(1, np.int32)
    out = np.empty((1, 2), np.float32)
    for arguments in (
        (slots.astype(np.int64), tiers, out),
        (slots, tiers, np.empty((2, 2), np.float32)),
        (slots, tiers, out.astype(np.float16)),
        (slots, tiers, out, 0),
        (slots, tiers, torch.empty(1, 2)),
        (slots, Tiers(device=torch.ones(6, 2)), out),
        (slots, Tiers(device=np.ones((6, 2), np.int64)), out),
        (slots, Tiers(device=np.asfortranarray(np.ones((6, 2), np.float32))), out),
    ):
        with pytest.raises(InputError, match="remedy"):
            gather_tiered(*arguments)


def test_rows_of_a_mapped_file_that_straddle_pages(tmp_path):
    rows = random_rows(np.random.default_rng(0), 300, 301, np.float32)
    rows.tofile(tmp_path / "rows")
    mapped = np.memmap(tmp_path / "rows", np.float32, "r", shape=rows.shape)
    assert_gathers(Tiers(device=rows[:10].copy(), host=mapped), make_slots(HOST, np.arange(300)[::-1]), np.float32)
