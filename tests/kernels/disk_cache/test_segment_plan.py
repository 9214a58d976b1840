"""The plan of a segment: predictions equal a naive recount, rows have one place, the same bytes at any number of threads."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.disk_cache.segment_plan import plan_segment
from graphmill.kernels.disk_cache.segments import ALL, disk_state
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.kernels.rows.slots import ELSEWHERE
from tests.kernels.disk_cache.test_segments import draw_batches

ORDERS = st.sampled_from(["filled", "gray", "minhash", "id"])


def pages_of(rows, row_bytes):
    """The pages that hold some bytes of these rows, byte by byte in effect."""
    spans = [range(row * row_bytes // PAGE_BYTES, (row * row_bytes + row_bytes - 1) // PAGE_BYTES + 1) for row in rows]
    return {page for span in spans for page in span}


@settings(deadline=None)
@given(
    st.integers(0, 2**32), st.integers(1, 70), st.integers(1, 300), ORDERS, st.sampled_from([ALL, 0, 30]),
    st.sampled_from([4, 100, 400, 512, 688, 1200, 1536, 4096, 5000]),
)  # fmt: skip
def test_predictions_equal_a_recount(seed, num_batches, num_nodes, order, most_cached, row_bytes):
    ptr, ids, slot = draw_batches(seed, num_batches, num_nodes, 60)
    plan = plan_segment(
        ptr, ids, disk_state(slot), row_bytes, order=order, seed=3, most_cached=most_cached, compare=True
    )
    row_of = {int(node): row for row, node in enumerate(plan.cache_ids)}
    assert len(row_of) == len(plan.cache_ids)
    assert plan.pages_by_id is not None
    by_id = {node: row for row, node in enumerate(sorted(row_of))}
    disk_bytes = -(-len(row_of) * row_bytes // PAGE_BYTES) * PAGE_BYTES
    for b in range(num_batches):
        wanted = [int(node) for node in ids[ptr[b] : ptr[b + 1]] if slot[node] == ELSEWHERE]
        packed = plan.packed_ids[plan.packed_ptr[b] : plan.packed_ptr[b + 1]].tolist()
        cached = [node for node in wanted if node in row_of]
        assert packed == sorted(packed) and sorted(packed + cached) == sorted(wanted)
        pages = pages_of([row_of[node] for node in cached], row_bytes)
        section = len(pages_of(range(len(packed)), row_bytes)) * PAGE_BYTES
        assert plan.pages[b] == len(pages)
        assert plan.runs[b] == sum(page - 1 not in pages for page in pages)
        assert plan.pages_by_id[b] == len(pages_of([by_id[node] for node in cached], row_bytes))
        assert plan.packed_bytes[b] == section
        assert plan.moved_bytes[b] == section + len(pages) * PAGE_BYTES
        assert plan.asked_bytes[b] == len(wanted) * row_bytes
        disk_bytes += section
    assert plan.disk_bytes == disk_bytes


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.integers(0, 9), st.integers(1, 2000), ORDERS)
def test_threads_do_not_matter(seed, num_batches, num_nodes, order):
    ptr, ids, slot = draw_batches(seed, num_batches, num_nodes, 900)
    plans = [
        dataclasses.asdict(plan_segment(ptr, ids, disk_state(slot), 400, order=order, compare=True, threads=threads))
        for threads in (1, 2, 8)
    ]
    for name, value in plans[0].items():
        for other in plans[1:]:
            np.testing.assert_array_equal(value, other[name], name)
            assert getattr(value, "dtype", int) == getattr(other[name], "dtype", int)


def test_rows_without_columns_move_nothing():
    plan = plan_segment([0, 2, 4], [1, 2, 2, 1], disk_state(np.full(5, ELSEWHERE, np.int32)), 0)
    assert plan.moved_bytes.tolist() == [0, 0] and plan.disk_bytes == 0 and plan.cache_ids.tolist() == [1, 2]


def test_two_batches_read_their_shared_rows_without_a_gap():
    # Both want all of the cache: whole pages in one run, however many rows.
    ids = np.arange(1000)
    plan = plan_segment([0, 1000, 2000], np.concatenate([ids, ids[::-1]]), disk_state(np.full(1000, ELSEWHERE)), 512)
    assert plan.runs.tolist() == [1, 1] and plan.moved_bytes.tolist() == [512_000, 512_000]


def test_an_unknown_order_is_refused():
    with pytest.raises(InputError, match="gray, minhash, id"):
        plan_segment([0, 0], [], disk_state(np.zeros(1, np.int32)), 4, order="random")  # pyright: ignore[reportArgumentType]
