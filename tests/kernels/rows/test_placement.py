"""The hottest rows are placed first, within budgets, and smaller tiers are prefixes of larger ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.hotness.ranking import rank
from graphmill.kernels.rows.placement import place_bytes, place_rows
from graphmill.kernels.rows.slots import DEVICE, ELSEWHERE, HOST, NO_FEATURES, split_slots

orders = st.integers(0, 60).flatmap(lambda n: st.permutations(range(n))).map(lambda order: np.array(order, np.int32))
rows = st.integers(0, 70)


def tiers_of(slot: np.ndarray) -> list[tuple[int, int]]:
    tier, row = split_slots(slot)
    return list(zip(tier.tolist(), row.tolist(), strict=True))


@given(orders, rows, rows)
def test_every_node_is_in_the_tier_that_its_rank_gives_it(order, device_rows, host_rows):
    placement = place_rows(order, device_rows, host_rows)
    expected = [(ELSEWHERE, ELSEWHERE)] * len(order)
    for place, node in enumerate(order.tolist()):
        if place < device_rows:
            expected[node] = (DEVICE, place)
        elif place < device_rows + host_rows:
            expected[node] = (HOST, place - device_rows)
    assert tiers_of(placement.slot) == expected
    assert placement.device_ids.tolist() == order[:device_rows].tolist()
    assert placement.host_ids.tolist() == order[device_rows : device_rows + host_rows].tolist()


@given(orders, rows, rows, st.integers(0, 2**32), st.sampled_from([np.int32, np.int64]))
def test_nodes_without_features_take_no_space(order, device_rows, host_rows, seed, dtype):
    """What is placed is what would be placed if the other nodes were not in the order."""
    has = np.random.default_rng(seed).random(len(order)) < 0.6
    row_of = np.where(has, np.cumsum(has) - 1, -1).astype(dtype)
    placement, ranked = (
        place_rows(order, device_rows, host_rows, row_of),
        [node for node in order.tolist() if has[node]],
    )
    assert placement.device_ids.tolist() == ranked[:device_rows]
    assert placement.host_ids.tolist() == ranked[device_rows : device_rows + host_rows]
    expected = {node: (DEVICE, place) for place, node in enumerate(ranked[:device_rows])}
    expected |= {node: (HOST, place) for place, node in enumerate(ranked[device_rows:][:host_rows])}
    for node, found in enumerate(tiers_of(placement.slot)):
        assert found == (expected.get(node, (ELSEWHERE, ELSEWHERE)) if has[node] else (NO_FEATURES, NO_FEATURES))
    assert tiers_of(placement.prefix(0, 0).slot) == [(ELSEWHERE,) * 2 if each else (NO_FEATURES,) * 2 for each in has]


def test_row_of_must_be_about_the_ranked_nodes():
    with pytest.raises(InputError, match=r"row_of is int32\[4\], the order is of 3 nodes"):
        place_rows(np.arange(3), 1, 1, np.arange(4, dtype=np.int32))


@given(orders, rows, rows, rows, rows)
def test_a_prefix_keeps_slots_and_images(order, device_rows, host_rows, fewer_device, fewer_host):
    whole = place_rows(order, device_rows, host_rows)
    part = whole.prefix(fewer_device, fewer_host)
    assert part.device_ids.tolist() == whole.device_ids[:fewer_device].tolist()
    assert part.host_ids.tolist() == whole.host_ids[:fewer_host].tolist()
    kept = {*part.device_ids.tolist(), *part.host_ids.tolist()}
    for node, slot in enumerate(part.slot.tolist()):
        assert slot == (whole.slot[node] if node in kept else ELSEWHERE)
    again = whole.prefix(device_rows, host_rows)
    assert again.slot.tolist() == whole.slot.tolist()


@given(orders, st.integers(0, 40), st.integers(0, 2000), st.integers(0, 2000))
def test_budgets_in_bytes_hold_and_no_further_row_fits(order, row_bytes, device_bytes, host_bytes):
    placement = place_bytes(order, row_bytes, device_bytes, host_bytes)
    device, host = len(placement.device_ids), len(placement.host_ids)
    assert device * row_bytes <= device_bytes and host * row_bytes <= host_bytes
    assert (device + 1) * row_bytes > device_bytes or device == len(order)
    assert (host + 1) * row_bytes > host_bytes or device + host == len(order)


@pytest.mark.parametrize("num_rows", [0, 10, 29, 99, 100])
def test_a_cache_has_the_hottest_nodes(num_rows):
    hotness = np.random.default_rng(0).integers(0, 9, 100)
    placement = place_rows(rank(hotness), num_rows, 0)
    assert placement.device_ids.tolist() == rank(hotness)[:num_rows].tolist() and len(placement.host_ids) == 0
    cold = placement.slot == ELSEWHERE
    assert cold.sum() == 100 - num_rows
    assert num_rows in (0, 100) or hotness[~cold].min() >= hotness[cold].max()


def test_what_is_no_order_or_no_size_is_refused():
    for order in ([0, 0, 1], [0, 3, 1], [-1, 0, 1]):
        with pytest.raises(InputError, match="does not name every node once"):
            place_rows(np.array(order), 1, 1)
    for numbers in ((-1, 0), (0, -1)):
        with pytest.raises(InputError, match="a tier of -1"):
            place_rows(np.arange(3), *numbers)
    with pytest.raises(InputError, match="one number per node"):
        rank(np.array([1.0, np.nan]))
