"""A slot says tier and row, or that there is none; what does not fit is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.slots import (
    DEVICE,
    ELSEWHERE,
    HOST,
    MAX_ROWS,
    NO_FEATURES,
    PEER,
    STAGED,
    Tiers,
    make_slots,
    split_slots,
)


@given(st.sampled_from([DEVICE, HOST, STAGED, PEER]), st.lists(st.integers(0, MAX_ROWS - 1)))
def test_unpack_undoes_pack(tier, rows):
    slots = make_slots(tier, np.array(rows, np.int64))
    assert slots.dtype == np.int32 and (slots >= 0).all()
    tiers, back = split_slots(slots)
    assert (tiers == tier).all() and back.tolist() == rows


def test_the_layout_is_fixed():
    assert make_slots(STAGED, [5]).tolist() == [2 << 29 | 5]
    assert make_slots(PEER, [MAX_ROWS - 1]).tolist() == [2**31 - 1]
    tier, row = split_slots(np.array([NO_FEATURES, ELSEWHERE], np.int32))
    assert tier.tolist() == row.tolist() == [-1, -2]


@pytest.mark.parametrize(("tier", "rows"), [(4, [0]), (-1, [0]), (0, [MAX_ROWS]), (1, [0, -1]), (2, [0.5])])
def test_what_does_not_fit_into_a_slot_is_refused(tier, rows):
    with pytest.raises(InputError, match="remedy"):
        make_slots(tier, rows)


def test_tiers_that_do_not_belong_together_are_refused():
    rows = np.zeros((4, 3), np.float32)
    huge = np.broadcast_to(rows[:1], (MAX_ROWS + 1, 3))
    for arguments in (
        {},
        {"device": rows[0]},
        {"device": rows, "host": rows.astype(np.float16)},
        {"device": rows, "staged": rows[:, :2]},
        {"host": huge},
        {"peers": (rows, rows), "peer_stride": 3},
        {"peers": (rows[:0],), "peer_stride": 0},
        {"peers": (rows,) * 3, "peer_stride": MAX_ROWS // 2},
    ):
        with pytest.raises(InputError, match="remedy"):
            Tiers(**arguments)
    tiers = Tiers(host=rows, peers=(rows, rows[:2]), peer_stride=4)
    assert (tiers.width, tiers.dtype) == (3, np.float32)
    assert [name for name, _ in tiers.given()] == ["host", "peer 0", "peer 1"]
