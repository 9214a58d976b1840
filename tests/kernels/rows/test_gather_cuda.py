"""The CUDA gather, on the shim and on a device: right rows, every output byte stored once, nothing touched beyond the tiers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphmill.kernels.arrays import BFLOAT16
from graphmill.kernels.cuda.protocol import RowsView
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.gather import TABLE_DTYPES, gather_tiered_reference
from graphmill.kernels.rows.gather_cuda import gather_tiered_cuda, pick_variant
from graphmill.kernels.rows.slots import ELSEWHERE, HOST, Tiers, make_slots
from tests.kernels.rows.tiered import WIDTHS, random_rows, random_tiers, valid_slots


def moved(machine, tiers):
    """The same tiers in the machine's memory: host and staged rows pinned, the others on the device."""
    own = {name: rows if rows is None else machine.put(rows) for name, rows in tiers.own()}
    own |= {name: machine.pin(rows) for name, rows in tiers.own() if rows is not None and name == "host"}
    return Tiers(**own, peers=tuple(machine.put(rows) for rows in tiers.peers), peer_stride=tiers.peer_stride)


def assert_gathers(machine, tiers, slots, out_dtype, seed=0, slots_on_device=False, **options):
    start = np.full((len(slots), tiers.width), 7, out_dtype)
    out = machine.put(start)
    device = machine.device(seed, **options)
    given = device.upload(slots) if slots_on_device else slots
    assert gather_tiered_cuda(given, moved(machine, tiers), out, device) is out
    with np.errstate(all="ignore"):
        expected = gather_tiered_reference(slots, tiers, out_dtype)
    result = machine.get(out)
    np.testing.assert_array_equal(result, expected)
    if result.dtype == tiers.dtype:  # NaN payloads too
        assert result.tobytes() == expected.tobytes()
    machine.assert_stored_once("out", start)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, BFLOAT16])
def test_common_widths_are_exact(machine, width, dtype):
    generator = np.random.default_rng(width)
    tiers = random_tiers(generator, width, dtype)
    assert_gathers(machine, tiers, generator.choice(valid_slots(tiers), 70), np.float32)
    assert_gathers(machine, tiers, generator.choice(valid_slots(tiers), 33), dtype)


@pytest.mark.parametrize("out_dtype", [np.float32, np.float64, None])
@pytest.mark.parametrize("dtype", TABLE_DTYPES)
def test_every_dtype(machine, dtype, out_dtype):
    generator = np.random.default_rng(5)
    tiers = random_tiers(generator, 48, dtype)
    assert_gathers(machine, tiers, generator.choice(valid_slots(tiers), 40), np.dtype(out_dtype or dtype))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("hits", [0.1, 0.5, 0.9])
def test_many_blocks_that_each_take_several_rounds(machine, seed, hits):
    generator = np.random.default_rng(seed)
    tiers = random_tiers(generator, 100, np.float32, counts=(50, 200, None), peers=())
    cached = generator.random(6000) < hits
    slots = np.where(
        cached, generator.integers(0, 50, 6000), make_slots(HOST, generator.integers(0, 200, 6000))
    ).astype(np.int32)
    assert_gathers(machine, tiers, slots, np.float32, seed)


@pytest.mark.parametrize("counts", [(3, None, None), (None, 3, None), (None, None, 3), (None, None, None), (0, 0, 1)])
@pytest.mark.parametrize("num_slots", [0, 1, 4, 5])
def test_absent_tiers_and_few_slots(machine, counts, num_slots):
    generator = np.random.default_rng(num_slots)
    tiers = random_tiers(generator, 12, np.float32, counts, peers=(0, 5))
    slots = generator.choice(valid_slots(tiers), num_slots)
    assert_gathers(machine, tiers, slots, np.float32)
    assert_gathers(machine, tiers, slots, np.float32, slots_on_device=True)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from([0, 1, 4, 12, 33]),
    st.sampled_from([np.float16, np.float32]),
    st.tuples(*[st.sampled_from([None, 0, 1, 6])] * 3),
    st.sampled_from([(), (3,), (0, 8, 2)]),
    st.integers(0, 40),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_rows_equal_the_reference(machine, width, dtype, counts, peers, num_slots, slots_on_device, seed):
    if counts == (None,) * 3 and not peers:
        counts = (2, None, None)
    generator = np.random.default_rng(seed)
    tiers = random_tiers(generator, width, dtype, counts, peers)
    slots = generator.choice(valid_slots(tiers), num_slots)
    assert_gathers(machine, tiers, slots, np.float32, seed, slots_on_device)


@pytest.mark.parametrize("offset", [1, 2, 4, 8])
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32])
def test_rows_at_any_address(machine, dtype, offset):
    generator, dtype = np.random.default_rng(offset), np.dtype(dtype)
    wide = random_rows(generator, 6, 64 + offset, dtype)
    tiers = Tiers(device=random_rows(generator, 3, 64, dtype), staged=wide[:, offset:])
    assert_gathers(machine, tiers, generator.choice(valid_slots(tiers), 30), np.float32)


@pytest.mark.parametrize("bad", [ELSEWHERE, -7, 3, int(make_slots(HOST, [0])[0]), 2**31 - 1])
def test_a_slot_without_a_row_is_named(machine, bad):
    tiers = moved(machine, Tiers(device=np.ones((3, 5), np.float32)))
    slots = np.array([0, 2, bad, 1, bad], np.int32)
    out = machine.put(np.full((5, 5), 7, np.float32))
    device = machine.device()
    with pytest.raises(InputError, match=f"slot {bad} at position 2 "):
        gather_tiered_cuda(slots, tiers, out, device)
    assert (machine.get(out) == 7).all()  # checked before anything is launched
    with pytest.raises(InputError, match=f"slot {bad} at position 2 "):
        gather_tiered_cuda(device.upload(slots), tiers, out, device)
    assert machine.get(out)[:, 0].tolist() == [1, 1, 0, 1, 0]


def test_what_does_not_fit_is_refused(machine):
    tiers, slots = moved(machine, Tiers(device=np.ones((3, 4), np.float32))), np.zeros(2, np.int32)
    out = machine.put(np.zeros((2, 4), np.float32))
    device = machine.device()
    for wrong in (
        (device.upload(np.zeros(4, np.int32))[::2], tiers, out),
        (device.upload(slots.astype(np.int64)), tiers, out),
        (slots.astype(np.int64), tiers, out),
        (slots, tiers, out[:1]),
        (slots, tiers, machine.put(np.zeros((2, 4), np.float16))),
        (slots, tiers, machine.put(np.zeros((4, 4), np.float32))[::2]),
        (slots, moved(machine, Tiers(device=np.ones((3, 4), np.int64))), out),
    ):
        with pytest.raises(InputError, match="remedy"):
            gather_tiered_cuda(*wrong, device)


def test_variants_use_the_widest_access_that_fits():
    def variant(width, dtype="float32", out="float32", address=256, out_address=512):
        size = {"float32": 4, "float16": 2, "float64": 8, "uint8": 1}
        rows = RowsView(address, 9, width, width * size[dtype], dtype)
        target = RowsView(out_address, 9, width, width * size[out], out)
        chosen = pick_variant(target, [replace(rows, count=0, dtype="", pointer=1), rows])
        return chosen["PACK"], chosen["TEAM"]

    assert variant(128) == (4, 32)
    assert variant(100) == (4, 32)  # 25 steps
    assert variant(172) == (4, 16)  # 43 steps: 48 lanes of 16 or 8, 64 of 32
    assert variant(602) == (2, 16)  # rows start at multiples of 8 bytes
    assert variant(101) == (1, 32)  # parts of a warp would load less than 128 bytes together
    assert (variant(1), variant(3), variant(8)) == ((1, 1), (1, 4), (4, 2))
    assert variant(768, "float16", "float16") == (8, 32)
    assert variant(768, "float16", "float32") == (4, 32)
    assert variant(768, "uint8", "uint8") == (16, 16)
    assert variant(128, address=264) == (2, 32) and variant(128, out_address=516) == (1, 32)
