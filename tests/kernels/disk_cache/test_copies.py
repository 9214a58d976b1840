"""The cache with copies: equal to its rule, every use served by its row, pages as dense as asked, the same at any thread count."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.disk_cache.copies import NOT_CACHED, place_copies, place_copies_reference
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.pages import PAGE_BYTES, touched_pages

WIDTHS = st.sampled_from([4, 100, 400, 512, 688, 1200, 1536, 2048, 4096, 5000, 8192])


def draw_members(seed, num_batches, num_rows, share):
    """Batches that want each row with the same chance, in no order."""
    rng = np.random.default_rng(seed)
    batches = [rng.permutation(np.flatnonzero(rng.random(num_rows) < share)) for _ in range(num_batches)]
    return np.cumsum([0, *map(len, batches)]), np.concatenate([np.zeros(0), *batches]).astype(np.int32)


@settings(deadline=None)
@given(
    st.integers(0, 2**32), st.integers(1, 150), st.integers(1, 150), st.sampled_from([0.0, 0.05, 0.3, 0.9]), WIDTHS,
    st.sampled_from([0, 700, 1024, 1300, 2048, 3900, 4096]), st.sampled_from([1, 2, 3, 4, 9]),
    st.sampled_from([1, 8, 64]),
)  # fmt: skip
def test_it_equals_its_rule(seed, num_batches, num_rows, share, row_bytes, least, run, window):
    ptr, members = draw_members(seed, num_batches, num_rows, share)
    expected = place_copies_reference(ptr, members, num_rows, row_bytes, least, run, window)
    options = {"row_bytes": row_bytes, "least_bytes": least, "least_range": run, "window": window}
    for threads in (1, 3):
        found = place_copies(ptr, members, num_rows, **options, threads=threads)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("window", [1, 32])
@pytest.mark.parametrize("row_bytes", [512, 1200])
def test_every_use_reads_its_row_and_threads_do_not_matter(window, row_bytes):
    # Several pieces of pages and of filling, more batches than one look ahead.
    ptr, members = draw_members(3, 150, 20_000, 0.04)
    options = {"row_bytes": row_bytes, "least_bytes": 1300, "window": window}
    rows, places = place_copies(ptr, members, 20_000, **options)
    cached = places != NOT_CACHED
    assert 0.5 < cached.mean() < 1
    np.testing.assert_array_equal(rows[places[cached]], members[cached])
    for threads in (2, 8):
        for a, b in zip(place_copies(ptr, members, 20_000, **options, threads=threads), (rows, places), strict=True):
            np.testing.assert_array_equal(a, b)


def costs(ptr, members, num_rows, row_bytes, least):
    """Rows stored, and bytes moved for each byte wanted."""
    rows, places = place_copies(ptr, members, num_rows, row_bytes=row_bytes, least_bytes=least)
    batch = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    cached = places != NOT_CACHED
    packed = np.bincount(batch[~cached], minlength=len(ptr) - 1)
    cached_ptr = np.concatenate([[0], np.cumsum(np.bincount(batch[cached], minlength=len(ptr) - 1))])
    pages, _ = touched_pages(cached_ptr, places[cached], len(rows), row_bytes)
    moved = int(pages.sum()) * PAGE_BYTES + int(packed.sum()) * row_bytes
    return len(rows) + int(packed.sum()), moved / (len(members) * row_bytes)


def test_a_full_page_wastes_nothing_and_less_of_a_page_takes_less_space():
    ptr, members = draw_members(4, 120, 30_000, 0.05)
    found = [costs(ptr, members, 30_000, 512, least) for least in (4096, 3072, 2300, 1536, 1200, 1024)]
    assert found[0][1] == 1.0 and found[0][0] < 0.65 * len(members)
    assert sorted(found, key=lambda each: -each[0]) == found
    assert sorted(found, key=lambda each: each[1]) == found


def test_longer_runs_take_more_space_and_fewer_reads():
    ptr, members = draw_members(7, 100, 40_000, 0.05)
    found = []
    for run in (1, 2, 5, 12):
        rows, places = place_copies(ptr, members, 40_000, row_bytes=512, least_range=run)
        batch, cached = np.repeat(np.arange(100), np.diff(ptr)), places != NOT_CACHED
        cached_ptr = np.concatenate([[0], np.cumsum(np.bincount(batch[cached], minlength=100))])
        pages, runs = touched_pages(cached_ptr, places[cached], len(rows), 512)
        assert pages.sum() >= run * runs.sum()
        found.append((len(rows) + int(np.count_nonzero(~cached)), -int(runs.sum())))
    assert found == sorted(found) and found[3][0] > found[0][0]


def test_with_one_row_of_a_page_every_row_is_stored_once():
    ptr, members = draw_members(5, 40, 1024, 0.5)
    rows, places = place_copies(ptr, members, 1024, row_bytes=512, least_bytes=0)
    stored = np.concatenate([rows, members[places == NOT_CACHED]])
    assert len(np.unique(stored)) == len(np.unique(members))
    assert len(stored) <= 1024 + 40 * 8  # but for the rows of a batch that do not fill a page


def test_rows_of_whole_pages_are_stored_once_and_wanted_whole():
    ptr, members = draw_members(6, 30, 200, 0.3)
    assert costs(ptr, members, 200, 8192, 4096)[1] == 1.0
    rows, places = place_copies(ptr, members, 200, row_bytes=8192)
    assert len(rows) == len(np.unique(rows)) and np.count_nonzero(places == NOT_CACHED) < 40


def test_bad_arguments_are_refused():
    members = np.array([0, 1], np.int32)
    with pytest.raises(InputError, match="run from 0 to 1"):
        place_copies([0, 2], members, 1, row_bytes=4)
    with pytest.raises(InputError, match="least_bytes = 5000"):
        place_copies([0, 2], members, 2, row_bytes=4, least_bytes=5000)
    with pytest.raises(InputError, match="int64"):
        place_copies([0, 2], members.astype(np.int64), 2, row_bytes=4)
    with pytest.raises(InputError, match="window = 0"):
        place_copies([0, 2], members, 2, row_bytes=4, window=0)
