"""Segments: every row in exactly one place, pages and sizes as a recount finds them, at any number of threads."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.disk_cache.segment_size import SegmentSizes, stored_rows_reference
from graphmill.kernels.disk_cache.segments import ALL, disk_state, split_segment, split_segment_reference
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.pages import PAGE_BYTES, padded_bytes, touched_pages, touched_pages_reference
from graphmill.kernels.rows.slots import ELSEWHERE, HOST, make_slots

THREADS = st.sampled_from([1, 2, 8])
IDS = st.sampled_from([np.int32, np.int64])


def draw_batches(seed, num_batches, num_nodes, most, dtype=np.int32, tier_share=0.2):
    """Batches of distinct ids, small ids more often, some of them empty; and slots with some nodes on the host."""
    rng = np.random.default_rng(seed)
    batches = [
        np.unique((rng.random(rng.integers(0, most + 1)) ** 2 * num_nodes).astype(dtype)) for _ in range(num_batches)
    ]
    batches = [rng.permutation(batch) for batch in batches]
    slot = np.full(num_nodes, ELSEWHERE, np.int32)
    hot = rng.permutation(num_nodes)[: int(tier_share * num_nodes)]
    slot[hot] = make_slots(HOST, np.arange(len(hot)))
    ptr = np.cumsum([0, *map(len, batches)])
    return ptr, np.concatenate([np.zeros(0, dtype), *batches]), slot


@given(
    st.integers(0, 2**32), st.integers(0, 9), st.integers(1, 300), st.integers(0, 200), IDS, THREADS,
    st.sampled_from([ALL, 0, 1, 7, 50]), st.sampled_from([0, 0.3, 1]),
)  # fmt: skip
def test_a_segment_equals_the_reference(seed, num_batches, num_nodes, most, dtype, threads, most_cached, tier_share):
    ptr, ids, slot = draw_batches(seed, num_batches, num_nodes, most, dtype, tier_share)
    state = disk_state(slot)
    before = state.copy()
    found = split_segment(ptr, ids, state, most_cached, threads)
    expected = split_segment_reference(ptr, ids, before, most_cached)
    for name in ("cache_ids", "packed_ptr", "packed_ids", "member_ptr", "members"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)
    assert found.cache_ids.dtype == found.packed_ids.dtype == dtype
    np.testing.assert_array_equal(state, before)


@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 300), THREADS, st.sampled_from([ALL, 0, 20]))
def test_every_row_has_exactly_one_place(seed, num_batches, num_nodes, threads, most_cached):
    ptr, ids, slot = draw_batches(seed, num_batches, num_nodes, 200)
    segment = split_segment(ptr, ids, disk_state(slot), most_cached, threads)
    for b in range(num_batches):
        wanted = ids[ptr[b] : ptr[b + 1]]
        packed = segment.packed_ids[segment.packed_ptr[b] : segment.packed_ptr[b + 1]]
        cached = segment.cache_ids[segment.members[segment.member_ptr[b] : segment.member_ptr[b + 1]]]
        places = np.concatenate([packed, cached, wanted[slot[wanted] != ELSEWHERE]])
        assert sorted(places) == sorted(wanted)
        assert (np.diff(packed) > 0).all()


@given(
    st.integers(0, 2**32), st.integers(0, 6), st.integers(1, 400),
    st.sampled_from([0, 1, 4, 100, 400, 512, 688, 1200, 1536, 4096, 4097, 9000]), IDS, THREADS,
)  # fmt: skip
def test_pages_and_runs_equal_a_recount(seed, num_batches, num_rows, row_bytes, dtype, threads):
    ptr, rows, _ = draw_batches(seed, num_batches, num_rows, 60, dtype)
    pages, runs = touched_pages(ptr, rows, num_rows, row_bytes, threads)
    expected = touched_pages_reference(ptr, rows, row_bytes)
    np.testing.assert_array_equal(pages, expected[0])
    np.testing.assert_array_equal(runs, expected[1])
    if row_bytes:
        whole, one = touched_pages([0, num_rows], np.arange(num_rows), num_rows, row_bytes, threads)
        assert (whole[0] * PAGE_BYTES, one[0]) == (padded_bytes(num_rows * row_bytes), 1)


@given(
    st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 200), IDS, THREADS, st.sampled_from([1, 3, 8, 1024]),
    st.integers(1, 7),
)  # fmt: skip
def test_rows_of_every_size_equal_a_recount(seed, num_batches, num_nodes, dtype, threads, exact_sizes, at_once):
    ptr, ids, slot = draw_batches(seed, num_batches, num_nodes, 60, dtype)
    sizes = SegmentSizes(slot, num_batches, exact_sizes)
    for first in range(0, num_batches, at_once):
        cut = ptr[first : first + at_once + 1]
        sizes.add(cut - cut[0], ids[cut[0] : cut[-1]], threads)
    known = list(sizes.sizes())
    assert known == sorted(set(known)) and known[0] == 1 and known[-1] == num_batches
    counted = {size: stored_rows_reference(ptr, ids, slot, size) for size in known}
    assert {size: sizes.rows(size) for size in known} == counted
    for budget in {0, *counted.values(), counted[1] - 1, counted[num_batches] - 1}:
        fitting = [size for size in known if counted[size] <= budget]
        assert sizes.smallest(budget) == (fitting[0] if fitting else None)
        later = [size for size in fitting if size > 2]
        assert sizes.smallest(budget, above=2) == (later[0] if later else None)


@pytest.mark.parametrize("threads", [2, 5])
def test_batches_that_threads_share_count_alike(threads):
    """Large enough for several pieces a batch."""
    rng = np.random.default_rng(0)
    batches = [rng.choice(300_000, 200_000, replace=False) for _ in range(6)]
    ptr, ids, slot = np.arange(7) * 200_000, np.concatenate(batches), np.full(300_000, ELSEWHERE, np.int32)
    sizes = SegmentSizes(slot, 6, exact_sizes=2)
    sizes.add(ptr, ids, threads)
    for size in sizes.sizes():
        assert sizes.rows(size) == stored_rows_reference(ptr, ids, slot, size)


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 100), st.integers(0, 400))
def test_the_printed_algorithm_extrapolates_the_first_segment(seed, num_batches, num_nodes, budget):
    ptr, ids, slot = draw_batches(seed, num_batches, num_nodes, 40)
    sizes = SegmentSizes(slot, num_batches)
    sizes.add(ptr, ids)
    expected = None
    for size in range(num_batches, 0, -1):
        first = stored_rows_reference(ptr[: size + 1], ids, slot, size)
        if first * num_batches / size <= budget:
            expected = size
    assert sizes.as_printed(budget) == expected


def test_wrong_batches_are_refused():
    slot = np.full(5, ELSEWHERE, np.int32)
    with pytest.raises(InputError, match="batch 1 has node 3 twice"):
        SegmentSizes(slot, 2).add([0, 1, 3], [3, 3, 3])
    with pytest.raises(InputError, match="batch 2 of 1"):
        SegmentSizes(slot, 1).add([0, 1, 2], [3, 3])
    for ids in ([5], [-1]):
        with pytest.raises(InputError, match=f"node id {ids[0]} at position 0 is not in 0..4"):
            split_segment([0, 1], ids, disk_state(slot))
        with pytest.raises(InputError, match="row"):
            touched_pages([0, 1], ids, 5, 512)
    with pytest.raises(InputError, match="ptr"):
        split_segment([0, 2], [1], disk_state(slot))
    with pytest.raises(InputError, match="ptr is float64"):  # as integers it would cut them
        touched_pages([0, 1.5, 2], [1, 2], 5, 512)
    with pytest.raises(InputError, match="writable int32"):
        split_segment([0, 1], [1], slot.astype(np.int64))
