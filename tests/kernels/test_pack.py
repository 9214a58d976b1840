"""Packing by ranges: equal to packing list by list, at any cut and any number of threads, and nothing outside its region."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.errors import InputError
from kernels.pack import PackLists, pack_range, pack_reference


def drawn_lists(
    rng: np.random.Generator, num_rows: int, row_bytes: int, dtype: str, placed: bool
) -> tuple[PackLists, int]:
    """Lists of random lengths, some empty, in regions with gaps between them; and the bytes of the file."""
    lengths = rng.integers(0, num_rows + 1, rng.integers(0, 6))
    lists = [np.sort(rng.permutation(num_rows)[:length]) for length in lengths]
    ptr = np.cumsum([0, *lengths])
    gaps = rng.integers(0, 9, len(lengths) + 1)
    offsets = np.cumsum(gaps[:-1] + np.concatenate([[0], lengths[:-1] * row_bytes]) if len(lengths) else [])
    places = np.concatenate([np.zeros(0), *(rng.permutation(length) for length in lengths)]).astype(np.int32)
    ids = np.concatenate([np.zeros(0), *lists]).astype(dtype)
    end = int(offsets[-1] + lengths[-1] * row_bytes) if len(lengths) else 0
    packed = PackLists(ptr=ptr, ids=ids, offsets=offsets.astype(np.int64), places=places if placed else None)
    return packed, end + int(gaps[-1])


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    num_rows=st.integers(1, 60),
    row_bytes=st.sampled_from([1, 3, 4, 64, 400, 1200, 5000]),
    dtype=st.sampled_from(["int32", "int64"]),
    placed=st.booleans(),
    threads=st.sampled_from([1, 2, 8]),
)
def test_any_cut_gives_the_bytes_of_the_reference(
    seed: int, num_rows: int, row_bytes: int, dtype: str, placed: bool, threads: int
) -> None:
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 256, (num_rows, row_bytes), np.uint8)
    lists, num_bytes = drawn_lists(rng, num_rows, row_bytes, dtype, placed)
    expected, out = np.full((2, num_bytes), 77, np.uint8)  # gaps stay as they were
    pack_reference(table, lists, expected)
    written, cuts = 0, np.unique([0, num_rows, *rng.integers(0, num_rows + 1, 4)])
    for low, high in pairwise(cuts):
        written += pack_range(table[low:high], int(low), lists, out, threads)
    np.testing.assert_array_equal(out, expected)
    assert written == len(lists.ids) and lists.done


def small(**changes) -> PackLists:
    given = {"ptr": np.array([0, 3]), "ids": np.array([1, 4, 6], np.int32), "offsets": np.array([0])} | changes
    return PackLists(**given)


@pytest.mark.parametrize(
    ("lists", "problem"),
    [
        (small(ids=np.array([1, 6, 4], np.int32)), "ascending"),
        (small(ids=np.array([1, 1, 4], np.int32)), "ascending"),
        (small(ids=np.array([-1, 1, 4], np.int32)), "ascending"),
        (small(offsets=np.array([-2])), "outside"),
        (small(offsets=np.array([23])), "outside"),
        (small(places=np.array([0, 3, 1], np.int32)), "outside"),
        (small(places=np.array([0, -1, 1], np.int32)), "outside"),
    ],
)
def test_bad_lists_are_refused_and_nothing_outside_is_written(lists: PackLists, problem: str) -> None:
    guarded = np.full(40, 77, np.uint8)
    with pytest.raises(InputError, match=problem):
        pack_range(np.zeros((8, 8), np.uint8), 0, lists, guarded[8:32])
    assert (guarded[:8] == 77).all() and (guarded[32:] == 77).all()


def test_a_missing_range_is_noticed() -> None:
    lists, out = small(), np.zeros(24, np.uint8)
    pack_range(np.zeros((2, 8), np.uint8), 0, lists, out)
    with pytest.raises(InputError, match="range is missing"):
        pack_range(np.zeros((3, 8), np.uint8), 5, lists, out)


def test_arrays_that_do_not_fit_are_refused() -> None:
    for changes in (
        {"ptr": np.array([0, 2])},
        {"offsets": np.array([0, 8])},
        {"places": np.array([0], np.int32)},
    ):
        with pytest.raises(InputError):
            small(**changes)
    with pytest.raises(InputError, match="rows are"):
        pack_range(np.zeros((2, 8), np.float32), 0, small(), np.zeros(24, np.uint8))
    with pytest.raises(InputError, match="out is"):
        pack_range(np.zeros((2, 8), np.uint8), 0, small(), np.zeros((24, 1), np.uint8))
