"""Orders of a disk cache: the native versions are the rules in NumPy, and the counts of pages are exact."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.disk_cache import orders
from graphmill.kernels.disk_cache.orders import (
    gray_order,
    gray_order_reference,
    membership_reference,
    minhash_order,
    minhash_order_reference,
)
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.pages import touched_pages, touched_pages_reference

ROW_BYTES = st.sampled_from([0, 480, 512, 688, 1200, 1536, 2048, 4095, 4096, 5000, 9000])
"""No rows, rows that divide a page, that straddle pages, and that are wider."""


@st.composite
def segments(draw, max_batches=140):
    """Batches over few nodes: empty ones, repeated memberships, nodes in all batches, one to three words of bits."""
    num_batches = draw(st.sampled_from([0, 1, 2, 5, 63, 64, 65, 128, max_batches]))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    nodes = np.unique(generator.integers(0, draw(st.sampled_from([3, 200, 10**6])), draw(st.integers(0, 60))))
    wanted = generator.random((num_batches, len(nodes))) < generator.choice([0.02, 0.1, 0.5, 1], (1, len(nodes)))
    rows = [generator.permutation(nodes[row]) for row in wanted]
    ptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return ptr, np.concatenate([nodes[:0], *rows]).astype(draw(st.sampled_from([np.int32, np.int64])))


@settings(max_examples=80, deadline=None)
@given(segments(), st.integers(0, 9), st.integers(1, 3))
def test_minhash_equals_the_reference(segment, seed, num_hashes):
    found = minhash_order(*segment, seed=seed, num_hashes=num_hashes)
    expected = minhash_order_reference(*segment, seed, num_hashes)
    assert found.dtype == segment[1].dtype
    np.testing.assert_array_equal(found, expected)


@settings(max_examples=120, deadline=None)
@given(segments(), ROW_BYTES, st.sampled_from([9, 32, 512]), st.sampled_from([1, 2, 8]))
def test_gray_equals_the_reference(segment, row_bytes, window, threads):
    found = gray_order(*segment, row_bytes=row_bytes, window=window, threads=threads)
    assert found.dtype == segment[1].dtype
    np.testing.assert_array_equal(found, gray_order_reference(*segment, row_bytes, window))


@pytest.mark.parametrize("piece", [1, 7, 16, 1000])
def test_pieces_are_filled_apart(monkeypatch, piece):
    monkeypatch.setattr(orders, "PIECE", max(piece, 16))
    generator = np.random.default_rng(piece)
    rows = [np.unique(generator.integers(0, 90, 30)) for _ in range(20)]
    ptr, ids = np.concatenate([[0], np.cumsum([len(row) for row in rows])]), np.concatenate(rows)
    expected = gray_order_reference(ptr, ids, 1024, 8)
    for threads in (1, 2, 8):
        np.testing.assert_array_equal(gray_order(ptr, ids, row_bytes=1024, window=8, threads=threads), expected)


def test_neighbours_in_gray_order_differ_in_one_batch():
    """All sets of six batches: the order is the reflected Gray code itself."""
    sets = np.arange(1, 64)
    rows = [np.flatnonzero(sets >> (5 - batch) & 1) for batch in range(6)]
    ptr, ids = np.concatenate([[0], np.cumsum([len(row) for row in rows])]), np.concatenate(rows)
    _, members = membership_reference(ptr, ids)
    steps = members[gray_order(ptr, ids)].astype(int)
    np.testing.assert_array_equal(np.abs(np.diff(steps, axis=0)).sum(axis=1), 1)


@settings(max_examples=60, deadline=None)
@given(segments(), st.integers(1, 9000), st.integers(0, 9))
def test_pages_equal_the_arithmetic(segment, row_bytes, seed):
    ptr, ids = segment
    order = np.random.default_rng(seed).permutation(np.unique(ids))
    row_of = {int(node): row for row, node in enumerate(order)}
    rows = np.array([row_of[int(node)] for node in ids], np.int64)
    found = touched_pages(ptr, rows, len(order), row_bytes, 3)
    np.testing.assert_array_equal(found, touched_pages_reference(ptr, rows, row_bytes))


def test_orders_of_sets_that_share_beat_no_order():
    """Ten groups of nodes, each wanted by batches of its own: a good order reads nearly only what is wanted."""
    generator = np.random.default_rng(3)
    group = generator.integers(0, 10, 5000)
    rows = [np.flatnonzero(group == batch % 10) for batch in range(50)]
    ptr, ids = np.concatenate([[0], np.cumsum([len(row) for row in rows])]), np.concatenate(rows)
    nodes, place = np.unique(ids, return_inverse=True)
    pages = {
        name: int(touched_pages(ptr, np.argsort(order)[place], len(nodes), 512)[0].sum())
        for name, order in {
            "none": np.unique(ids),
            "minhash": minhash_order(ptr, ids, seed=0),
            "gray": gray_order(ptr, ids),
            "filled": gray_order(ptr, ids, row_bytes=512),
        }.items()
    }
    least = len(ids) * 512 / 4096
    assert max(pages["minhash"], pages["gray"], pages["filled"]) < 1.05 * least < 2 * least < pages["none"]


def test_what_does_not_fit_is_refused():
    for ptr, ids in (([], []), ([0, 3], [1, 2]), ([1, 2], [1, 2]), ([0, 2, 1, 2], [1, 2]), ([0, 1], [-1])):
        with pytest.raises(InputError):
            gray_order(ptr, ids)
    with pytest.raises(InputError, match="num_hashes"):
        minhash_order([0, 1], [5], seed=0, num_hashes=0)
    for more in ({"row_bytes": -1}, {"row_bytes": 480, "window": 8}, {"window": 0}):
        with pytest.raises(InputError, match="row_bytes"):
            gray_order([0, 1], [5], **more)
