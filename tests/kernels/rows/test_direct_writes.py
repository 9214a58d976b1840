"""Rows that are written past the page cache are in the file, its other bytes stay, and a failure is an error."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.rows import direct_io
from graphmill.kernels.rows.direct_io import Faults, PageReader, ReadExecution
from tests.kernels.rows.direct_io_reference import count_requests_reference

METHODS = ("io_uring", "pread", "buffered")
PAGES = 200


def writer(method: str, faults: Faults | None = None, **more: int) -> PageReader:
    if method == "io_uring" and direct_io._native.ring_errno():
        pytest.skip("this kernel or container forbids io_uring")
    return PageReader(ReadExecution(method=method, fallback="error", **more), faults=faults)  # pyright: ignore


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("writes") / "table"


@settings(max_examples=100, deadline=None)
@given(st.data())
@pytest.mark.parametrize("method", METHODS)
def test_written_rows_are_there_and_other_bytes_stay(path: Path, method: str, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    whole = rng.integers(0, 256, PAGES * 4096, np.uint8)
    whole.tofile(path)
    row_bytes = data.draw(st.one_of(st.integers(1, 10_000), st.sampled_from([1, 512, 768, 4095, 4096, 4097])))
    offset = data.draw(st.sampled_from([0, 1, 4096, 5000]))
    num_rows = (len(whole) - offset) // row_bytes
    ids = rng.permutation(num_rows)[: data.draw(st.integers(0, 300))].astype(
        data.draw(st.sampled_from([np.int32, np.int64]))
    )
    if data.draw(st.booleans()):
        ids = np.sort(ids)
    options = {
        "depth": data.draw(st.sampled_from([1, 2, 7, 64])),
        "range_pages": data.draw(st.sampled_from([1, 2, 3, 64])),
    }
    short = Faults(shorten_every=data.draw(st.integers(0, 3)), shorten_to=data.draw(st.sampled_from([512, 4096, 4608])))
    rows = rng.integers(0, 256, (len(ids), row_bytes), np.uint8)
    pages = writer(method, short, **options)
    with pages.open(path, writes=True) as file:
        moved = pages.write_rows(file, ids, rows, offset=offset)
        back, _ = pages.read_rows(file, ids, row_bytes=row_bytes, offset=offset)
    expected = whole.copy()
    table = expected[offset : offset + num_rows * row_bytes].reshape(num_rows, row_bytes)
    table[ids] = rows
    np.testing.assert_array_equal(np.fromfile(path, np.uint8), expected)
    np.testing.assert_array_equal(back, rows)
    requests, asked, read = count_requests_reference(ids, row_bytes, offset, options["range_pages"], True)
    assert moved == (requests, asked, 2 * read)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("number", [0, 1, 7, 30])
def test_a_request_that_fails_is_an_error_and_other_rows_stay(tmp_path: Path, method: str, number: int) -> None:
    before = np.random.default_rng(0).integers(0, 256, (PAGES * 8, 512), np.uint8)
    before.tofile(tmp_path / "table")
    ids = np.random.default_rng(1).permutation(len(before))[:20]
    pages = writer(method, Faults(break_at=number), depth=4, range_pages=1)
    with pages.open(tmp_path / "table", writes=True) as file:
        with pytest.raises(
            InputError, match=r"table: bytes \d+ to \d+ could not be (read|written): Bad file descriptor"
        ):
            pages.write_rows(file, ids, np.zeros((20, 512), np.uint8))
        after = np.fromfile(tmp_path / "table", np.uint8).reshape(before.shape)
        others = np.setdiff1d(np.arange(len(before)), ids)
        np.testing.assert_array_equal(after[others], before[others])
        pages.write_rows(file, ids, np.zeros((20, 512), np.uint8))  # the writer goes on
    assert not np.fromfile(tmp_path / "table", np.uint8).reshape(before.shape)[ids].any()


def test_what_does_not_fit_is_said(tmp_path: Path) -> None:
    path, pages = tmp_path / "table", writer("pread")
    np.zeros(2 * 4096 + 5, np.uint8).tofile(path)
    with pages.open(path, writes=True) as file:
        with pytest.raises(InputError, match="8197 bytes, which are not whole pages"):
            pages.write_rows(file, [0], np.ones((1, 8), np.uint8))
        with pytest.raises(InputError, match="row 1024 at position 0 is not in"):
            pages.write_rows(file, [1024], np.ones((1, 8), np.uint8))
        for rows in (np.ones((2, 8), np.uint8), np.ones((1, 8), np.int8), np.ones((1, 0), np.uint8)):
            with pytest.raises(InputError, match="for 1 rows from byte 0"):
                pages.write_rows(file, [0], rows)
    with pages.open(path) as file, pytest.raises(InputError, match="could not be written: Bad file descriptor"):
        np.zeros(2 * 4096, np.uint8).tofile(path)
        pages.write_rows(file, [0], np.ones((1, 8), np.uint8))
