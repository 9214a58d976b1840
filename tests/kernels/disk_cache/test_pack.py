"""Packing by ranges: equal to packing list by list, at any cut, any buffer and any slices of the lists."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.disk_cache.pack import PackLists, pack_range, pack_reference
from graphmill.kernels.errors import InputError


def drawn_lists(rng: np.random.Generator, num_rows: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Lists of random lengths, some empty."""
    lengths = rng.integers(0, num_rows + 1, rng.integers(0, 6))
    ids = [np.sort(rng.permutation(num_rows)[:length]) for length in lengths]
    return np.cumsum([0, *lengths]), np.concatenate([np.zeros(0), *ids]).astype(dtype)


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    num_rows=st.integers(1, 60),
    row_bytes=st.sampled_from([1, 3, 4, 64, 400, 1200, 5000]),
    dtype=st.sampled_from(["int32", "int64"]),
    most_room=st.sampled_from([1, 7, 100, 4096, 10**5]),
)
def test_any_cut_gives_the_bytes_of_the_reference(
    seed: int, num_rows: int, row_bytes: int, dtype: str, most_room: int
) -> None:
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 256, (num_rows, row_bytes), np.uint8)
    ptr, ids = drawn_lists(rng, num_rows, dtype)
    expected = pack_reference(table, ptr, ids)
    starts = np.cumsum([0, *rng.integers(1, most_room + 1, len(expected))])
    # Bytes behind the last buffer that nobody may touch; `buffers` itself ends where the last buffer does.
    guarded = np.full(int(starts[-1]) + 16, 77, np.uint8)
    lists = PackLists(ptr=ptr, ids=ids, buffers=guarded[: starts[-1]], starts=starts)
    written: list[list[np.ndarray]] = [[] for _ in expected]

    def empty(number: int) -> None:
        written[number].append(lists.buffer(number)[: lists.used[number]].copy())
        lists.used[number] = 0

    cuts = np.unique([0, num_rows, *rng.integers(0, num_rows + 1, 4)])
    slices = np.unique([0, len(expected), *rng.integers(0, len(expected) + 1, 2)])
    for first, last in pairwise(cuts):
        for low, high in pairwise(slices):
            while pack_range(table[first:last], int(first), lists, int(low), int(high)):
                full = [each for each in range(low, high) if lists.used[each] == len(lists.buffer(each))]
                assert full  # it asks for more only when a buffer is full
                for number in full:
                    empty(number)
    assert lists.complete(row_bytes)
    for number, rows in enumerate(expected):
        empty(number)
        np.testing.assert_array_equal(np.concatenate([rows[:0], *written[number]]), rows)
    assert (guarded[starts[-1] :] == 77).all()


def small(**changes) -> PackLists:
    given = {"ptr": np.array([0, 3]), "ids": np.array([1, 4, 6], np.int32), "starts": np.array([0, 24])} | changes
    return PackLists(**({"buffers": np.zeros(24, np.uint8)} | given))


@pytest.mark.parametrize("ids", [[1, 6, 4], [1, 1, 4], [-1, 1, 4]])
def test_lists_that_do_not_ascend_are_refused(ids: list[int]) -> None:
    with pytest.raises(InputError, match="ascending"):
        pack_range(np.zeros((8, 8), np.uint8), 0, small(ids=np.array(ids, np.int32)))


def test_a_missing_range_is_noticed() -> None:
    lists = small()
    assert not pack_range(np.zeros((2, 8), np.uint8), 0, lists)
    assert not lists.complete(8)
    with pytest.raises(InputError, match="range is missing"):
        pack_range(np.zeros((3, 8), np.uint8), 5, lists)


def test_arrays_that_do_not_fit_are_refused() -> None:
    for changes in (
        {"ptr": np.array([0, 2])},
        {"starts": np.array([0, 25])},
        {"starts": np.array([0, 8, 24])},
        {"buffers": np.zeros((24, 1), np.uint8)},
        {"buffers": np.zeros(24, np.int8)},
    ):
        with pytest.raises(InputError):
            small(**changes)
    for rows in (np.zeros((2, 8), np.float32), np.zeros(16, np.uint8), np.zeros((2, 0), np.uint8)):
        with pytest.raises(InputError, match="rows are"):
            pack_range(rows, 0, small())
    for low, high in ((-1, 1), (0, 2), (1, 0)):
        with pytest.raises(InputError, match="lists"):
            pack_range(np.zeros((2, 8), np.uint8), 0, small(), low, high)
