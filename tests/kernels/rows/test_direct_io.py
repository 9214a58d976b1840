"""Rows and chunks that come past the page cache are the file's bytes, or there is an error; counts are the arithmetic."""

import os
import subprocess
import sys
import threading
import time
import warnings
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.assets.storage.system.machine import anonymous_bytes
from graphmill.kernels import warn_once
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows import direct_io
from graphmill.kernels.rows.aligned import BufferPool, aligned_empty
from graphmill.kernels.rows.direct_io import Faults, PageReader, ReadExecution, chunk_capacity
from graphmill.kernels.rows.pages import PAGE_BYTES, chunk_digest, page_digests, page_digests_reference
from tests.kernels.rows.direct_io_reference import count_requests_reference, read_rows_reference

ROOT = Path(__file__).resolve().parents[3]
METHODS = ("io_uring", "pread", "buffered")


def available(method):
    if method == "io_uring" and direct_io._native.ring_errno():
        pytest.skip("this kernel or container forbids io_uring")
    return method


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A file that ends inside a page, and its bytes."""
    path = tmp_path_factory.mktemp("direct") / "table"
    data = np.random.default_rng(0).integers(0, 256, 1_000_003, np.uint8)
    data.tofile(path)
    return path, data


def reader(method="io_uring", faults=None, **more):
    return PageReader(ReadExecution(method=available(method), fallback="error", **more), faults=faults)


@settings(max_examples=150, deadline=None)
@given(st.data())
@pytest.mark.parametrize("method", METHODS)
def test_rows_and_counts_equal_the_reference(table, method, data):
    path, whole = table
    row_bytes = data.draw(st.one_of(st.integers(1, 10_000), st.sampled_from([1, 400, 512, 4095, 4096, 4097, 8192])))
    offset = data.draw(st.sampled_from([0, 1, 512, 4096, 5000]))
    num_rows = (len(whole) - offset) // row_bytes
    row = st.one_of(st.integers(0, num_rows - 1), st.sampled_from([0, num_rows - 1]))
    ids = np.array(data.draw(st.lists(row, max_size=60)), data.draw(st.sampled_from([np.int32, np.int64])))
    if data.draw(st.booleans()):
        ids = np.sort(ids)
    options = {
        "depth": data.draw(st.sampled_from([1, 2, 7, 64])),
        "range_pages": data.draw(st.sampled_from([1, 2, 3, 64])),
        "window_bytes": data.draw(st.sampled_from([1, 10_000, 1 << 30])),
    }
    merge = data.draw(st.booleans())
    short = Faults(shorten_every=data.draw(st.integers(0, 3)), shorten_to=data.draw(st.sampled_from([512, 4096, 4608])))
    pages = reader(method, short, **options)
    padded = np.zeros((len(ids), row_bytes + data.draw(st.integers(0, 9))), np.uint8)
    with pages.open(path) as file:
        out, moved = pages.read_rows(
            file, ids, row_bytes=row_bytes, offset=offset, out=padded[:, :row_bytes], merge=merge
        )
    np.testing.assert_array_equal(out, read_rows_reference(path, ids, row_bytes, offset))
    assert not padded[:, row_bytes:].any()
    assert moved == count_requests_reference(ids, row_bytes, offset, options["range_pages"], merge)


@settings(max_examples=150, deadline=None)
@given(st.data())
@pytest.mark.parametrize("method", METHODS)
def test_rows_that_lie_in_the_output_as_in_the_file_are_read_there(table, method, data):
    """Ranges of rows, now and then with a gap, a repetition or a turn between them, to an output that starts on a page."""
    path, whole = table
    row_bytes = data.draw(st.sampled_from([64, 512, 1536, 4096, 8192, 400]))
    num_rows = (len(whole) - PAGE_BYTES) // row_bytes
    starts = data.draw(st.lists(st.integers(0, num_rows - 1), min_size=1, max_size=6))
    lengths = [data.draw(st.integers(1, 100)) for _ in starts]
    ids = np.concatenate([np.arange(a, min(num_rows, a + n)) for a, n in zip(starts, lengths, strict=True)])
    ids = np.sort(ids) if data.draw(st.booleans()) else ids
    short = Faults(shorten_every=data.draw(st.integers(0, 2)), shorten_to=data.draw(st.sampled_from([512, 4096])))
    pages = reader(method, short, range_pages=data.draw(st.sampled_from([1, 3, 16])), depth=3)
    at = data.draw(st.sampled_from([0, 16, 512]))
    memory = aligned_empty(at + len(ids) * row_bytes + 16)
    memory[:] = 7
    out = memory[at : at + len(ids) * row_bytes].reshape(-1, row_bytes)
    with pages.open(path) as file:
        _, moved = pages.read_rows(file, ids, row_bytes=row_bytes, offset=PAGE_BYTES, out=out)
    np.testing.assert_array_equal(out, read_rows_reference(path, ids, row_bytes, PAGE_BYTES))
    assert (memory[:at] == 7).all() and (memory[at + out.nbytes :] == 7).all()
    assert moved == count_requests_reference(ids, row_bytes, PAGE_BYTES, pages.execution.range_pages)
    assert 0 <= pages.landed_bytes <= moved.moved_bytes


@pytest.mark.parametrize(
    ("ids", "row_bytes", "landed"),
    [
        (np.arange(64), 512, 8 * 4096),  # all pages
        (np.arange(60), 512, 4 * 4096),  # runs of 4 pages: the second is not all wanted
        (np.delete(np.arange(64), 40), 512, 4 * 4096),  # a gap in the second run
        (np.arange(64)[::-1], 512, 0),  # lies in the file the other way round
        (np.arange(5), 8192, 10 * 4096),  # rows longer than a page
    ],
)
def test_what_is_read_to_its_place(table, ids, row_bytes, landed):
    path, _ = table
    pages, out = reader(range_pages=4), aligned_empty(len(ids) * row_bytes).reshape(-1, row_bytes)
    with pages.open(path) as file:
        pages.read_rows(file, ids, row_bytes=row_bytes, out=out)
        assert pages.landed_bytes == landed
        strided = np.zeros((len(ids), row_bytes + 512), np.uint8)
        pages.read_rows(file, ids, row_bytes=row_bytes, out=strided[:, :row_bytes])
    assert pages.landed_bytes == landed
    np.testing.assert_array_equal(out, read_rows_reference(path, ids, row_bytes))
    np.testing.assert_array_equal(strided[:, :row_bytes], out)


@settings(max_examples=80, deadline=None)
@given(st.data())
@pytest.mark.parametrize("method", METHODS)
def test_every_page_with_a_wrong_bit_stops_the_reader(tmp_path_factory, method, data):
    """A table that starts on a page and ends anywhere: rows of intact pages come, and none of a page that is not as it was."""
    path, num_pages, missing = (
        tmp_path_factory.mktemp("pages") / "table",
        40,
        data.draw(st.sampled_from([0, 1, 700, 4095])),
    )
    content = np.random.default_rng(1).integers(0, 256, (num_pages + 1) * PAGE_BYTES, np.uint8)
    content[len(content) - missing :] = 0
    digests = page_digests(content[PAGE_BYTES:])
    np.testing.assert_array_equal(digests, page_digests_reference(content[PAGE_BYTES:]))
    damaged = content[: len(content) - missing].copy()
    byte, bit = data.draw(st.integers(PAGE_BYTES, len(damaged) - 1)), data.draw(st.integers(0, 7))
    damaged[byte] ^= 1 << bit
    damaged.tofile(path)
    row_bytes = data.draw(st.sampled_from([1, 400, 512, 3000, 4096, 9000]))
    num_rows = (len(damaged) - PAGE_BYTES) // row_bytes
    ids = np.array(data.draw(st.lists(st.integers(0, num_rows - 1), max_size=50)), np.int64)
    short = Faults(shorten_every=data.draw(st.integers(0, 2)), shorten_to=data.draw(st.sampled_from([512, 4096])))
    pages = reader(method, short, range_pages=data.draw(st.sampled_from([1, 3, 16])), depth=3)
    first, last = (PAGE_BYTES + edge for edge in (ids * row_bytes, (ids + 1) * row_bytes - 1))
    touched = ((first // PAGE_BYTES <= byte // PAGE_BYTES) & (byte // PAGE_BYTES <= last // PAGE_BYTES)).any()
    start = byte // PAGE_BYTES * PAGE_BYTES
    with pages.open(path) as file:
        with pytest.raises(InputError, match=f"the page at byte {start} does not match") if touched else nullcontext():
            out, moved = pages.read_rows(file, ids, row_bytes=row_bytes, offset=PAGE_BYTES, digests=digests)
            np.testing.assert_array_equal(out, read_rows_reference(path, ids, row_bytes, PAGE_BYTES))
            assert moved == count_requests_reference(ids, row_bytes, PAGE_BYTES, pages.execution.range_pages)
        damaged[byte] ^= 1 << bit
        damaged.tofile(path)
        whole, _ = pages.read_rows(file, ids, row_bytes=row_bytes, offset=PAGE_BYTES, digests=digests)
    np.testing.assert_array_equal(whole, read_rows_reference(path, ids, row_bytes, PAGE_BYTES))


def test_digests_that_do_not_belong_are_refused(tmp_path):
    path, content = tmp_path / "table", np.ones(3 * PAGE_BYTES, np.uint8)
    content.tofile(path)
    pages, digests = reader("pread"), page_digests(content)
    with pages.open(path) as file:
        with pytest.raises(InputError, match="the page at byte 8192 has no digest"):
            pages.read_rows(file, [2], row_bytes=4096, digests=digests[:2])
        with pytest.raises(InputError, match="offset = 100 is inside a page"):
            pages.read_rows(file, [0], row_bytes=512, offset=100, digests=digests)
        os.truncate(path, 2 * PAGE_BYTES + 600)  # row 16 is still there, its page is not
        with pytest.raises(InputError, match="the page at byte 8192 does not match"):
            pages.read_rows(file, [16], row_bytes=512, digests=digests)
    with pytest.raises(InputError, match="in C order"):
        page_digests(content[:100])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1_000_003), st.integers(0, 300_000), st.sampled_from([4096, 12288, 1 << 20]), st.integers(0, 2))
@pytest.mark.parametrize("method", METHODS)
def test_a_chunk_is_the_range(table, method, offset, length, piece_bytes, shorten_every):
    path, whole = table
    length = min(length, len(whole) - offset)
    pages = reader(method, Faults(shorten_every=shorten_every), piece_bytes=piece_bytes, depth=4)
    with pages.open(path) as file, BufferPool().take(chunk_capacity(offset, length)) as buffer:
        chunk, moved = pages.read_chunk(file, offset, length, buffer.data)
        np.testing.assert_array_equal(chunk, whole[offset : offset + length])
        np.testing.assert_array_equal(pages.read_chunk(file, offset, length)[0], chunk)
    capacity = chunk_capacity(offset, length)
    assert moved == (-(-capacity // piece_bytes), length, capacity) and capacity >= length


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 200), st.integers(0, 44), st.sampled_from([4096, 12288, 1 << 20]), st.integers(0, 3))
@pytest.mark.parametrize("method", METHODS)
def test_pages_of_a_chunk_are_digested_as_they_arrive(table, method, first, count, piece_bytes, shorten_every):
    path, whole = table
    short = Faults(shorten_every=shorten_every, shorten_to=4608)
    pages = reader(method, short, piece_bytes=piece_bytes, window_bytes=2 * piece_bytes)
    offset, length = first * PAGE_BYTES, count * PAGE_BYTES
    digests, expected = np.zeros(count, np.uint64), whole[offset : offset + length]
    with pages.open(path) as file:
        chunk, _ = pages.read_chunk(file, offset, length, digests=digests)
        np.testing.assert_array_equal(chunk, expected)
        np.testing.assert_array_equal(digests, page_digests_reference(expected))
        concatenated = b"".join(xxhash.xxh64_digest(each.tobytes())[::-1] for each in expected.reshape(-1, PAGE_BYTES))
        assert chunk_digest(digests) == xxhash.xxh64_intdigest(concatenated)
        with pytest.raises(InputError, match="give whole pages"):
            pages.read_chunk(file, offset, length + 1, digests=digests)
        with pytest.raises(InputError, match="give whole pages"):
            pages.read_chunk(file, offset, length, digests=np.zeros(count + 1, np.uint64))


@pytest.mark.parametrize(
    ("window_bytes", "most"), [(1, 8192), (8192, 8192), (8193, 16384), (40_000, 40_960), (1 << 30, 7 * 8192)]
)
def test_no_more_is_in_flight_than_the_window_has_room_for(table, window_bytes, most):
    path, whole = table
    options = {"depth": 7, "piece_bytes": 8192, "range_pages": 2, "window_bytes": window_bytes}
    with reader(**options).open(path) as file:
        pages = reader(**options)
        chunk, _ = pages.read_chunk(file, 0, 500_000)
        np.testing.assert_array_equal(chunk, whole[:500_000])
        assert pages.most_in_flight == most
        pages = reader(**options)
        pages.read_rows(file, np.arange(100), row_bytes=4096)
        assert pages.most_in_flight == most


@pytest.mark.parametrize("method", METHODS)
def test_a_reader_of_whole_pieces_takes_no_memory_of_its_own(table, method):
    """Loaders of packed chunks have a reader each, and no bound counts memory that they never use."""
    path, _ = table
    before = anonymous_bytes()
    readers = [reader(method, depth=32, range_pages=64) for _ in range(8)]
    with readers[0].open(path) as file, BufferPool().take(chunk_capacity(0, 8192)) as buffer:
        for each in readers:
            each.read_chunk(file, 0, 8192, buffer.data)
    after = anonymous_bytes()
    assert before is not None and after is not None and after - before < 8 << 20, "eight readers have 64 MiB"


@pytest.mark.parametrize("method", METHODS)
def test_short_reads_are_asked_for_again(table, method):
    path, _ = table
    pages = reader(method, Faults(shorten_every=2, shorten_to=4096), range_pages=8)
    ids = np.arange(1500)
    with pages.open(path) as file:
        out, moved = pages.read_rows(file, ids, row_bytes=512)
    np.testing.assert_array_equal(out, read_rows_reference(path, ids, 512))
    assert pages.num_resubmitted == -(-moved.requests // 2)


@pytest.mark.parametrize("method", METHODS)
def test_a_failed_read_names_the_bytes_and_the_next_call_works(table, method):
    path, whole = table
    pages = reader(method, Faults(break_at=5), range_pages=2, depth=4)
    with pages.open(path) as file:
        with pytest.raises(InputError, match=rf"{path}: bytes 40960 to 49152 could not be read: Bad file descriptor"):
            pages.read_rows(file, np.arange(0, 200), row_bytes=4096)
        out, _ = pages.read_rows(file, np.arange(0, 200), row_bytes=4096)
    np.testing.assert_array_equal(out.ravel(), whole[: 200 * 4096])


@pytest.mark.parametrize("method", METHODS)
def test_a_file_that_ends_too_early_is_never_a_wrong_row(tmp_path, method):
    path = tmp_path / "cut"
    np.arange(100_000, dtype=np.uint8).tofile(path)
    pages = reader(method)
    with pages.open(path) as file:
        with pytest.raises(
            InputError, match=r"row 250 at position 1 is not in .*cut: 100000 bytes hold 250 rows of 400"
        ):
            pages.read_rows(file, [0, 250], row_bytes=400)
        with pytest.raises(InputError, match="row -1 at position 0"):
            pages.read_rows(file, [-1], row_bytes=400)
        with pytest.raises(InputError, match="row 5 at position 0"):
            pages.read_rows(file, [5], row_bytes=400, offset=98_000)
        os.truncate(path, 90_000)  # while it is open
        with pytest.raises(InputError, match="90000 bytes hold 225 rows"):
            pages.read_rows(file, [249], row_bytes=400)
        for end in (100_000, 90_001):
            with pytest.raises(InputError, match=r"cut: bytes \d+ to \d+ could not be read: .* byte 90000"):
                pages.read_chunk(file, 4096, end - 4096)
        os.truncate(path, 86_016)  # a whole number of pages: the next read returns nothing at all
        with pytest.raises(InputError, match="the file ends at byte 86016"):
            pages.read_chunk(file, 80_000, 8_000)


def test_a_file_that_is_cut_during_the_reads(tmp_path):
    """Every call gives the right rows or an error, whichever the moment of the cut allows."""
    path, size, outcomes = tmp_path / "cut", 1 << 22, set()
    whole = np.random.default_rng(1).integers(1, 256, size, np.uint8)  # no zeros: what was cut off cannot look right
    for delay in range(40):
        whole.tofile(path)
        pages = reader(range_pages=1, depth=2)
        with pages.open(path) as file:
            cutter = threading.Timer(delay / 2000, os.truncate, (path, 5000))
            cutter.start()
            try:
                out, _ = pages.read_rows(file, np.arange(size // 512), row_bytes=512)
                np.testing.assert_array_equal(out.ravel(), whole)
                outcomes.add("whole")
            except InputError as error:
                assert str(path) in error.problem
                outcomes.add("error")
            cutter.join()
    assert outcomes


def test_what_does_not_fit_is_refused(table):
    path, _ = table
    pages = reader("pread")
    file = pages.open(path)
    frozen = np.zeros((1, 8), np.uint8)
    frozen.setflags(write=False)
    for more in (
        {"row_bytes": 0},
        {"row_bytes": 8, "offset": -1},
        {"row_bytes": 8, "out": np.zeros((2, 8), np.uint8)},
        {"row_bytes": 8, "out": np.zeros((1, 8), np.int8)},
        {"row_bytes": 8, "out": np.zeros((1, 16), np.uint8)[:, ::2]},
        {"row_bytes": 8, "out": frozen},
    ):
        with pytest.raises(InputError):
            pages.read_rows(file, [1], **more)
    with pytest.raises(InputError, match="rows overlap"):
        pages.read_rows(
            file, [1, 2], row_bytes=8, out=np.lib.stride_tricks.as_strided(np.zeros(99, np.uint8), (2, 8), (4, 1))
        )
    for offset, length, out in (
        (-1, 5, None),
        (0, -5, None),
        (0, 5000, aligned_empty(4096)),
        (0, 9, aligned_empty(8192)[1:]),
    ):
        with pytest.raises(InputError):
            pages.read_chunk(file, offset, length, out)
    file.close()
    with pytest.raises(InputError, match="was closed"):
        pages.read_rows(file, [1], row_bytes=8)
    with pytest.raises(InputError, match=r"method = 'mmap'.*depth = 0.*window_bytes = 0.*piece_bytes = 5000"):
        ReadExecution(method="mmap", depth=0, piece_bytes=5000, window_bytes=0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="depth \\* range_pages"):
        ReadExecution(depth=4096, range_pages=4096)


def test_without_io_uring_the_second_choice_is_taken_and_said_once(table, monkeypatch):
    path, whole = table
    monkeypatch.setattr(direct_io._native, "ring_errno", lambda: 1)
    warn_once.forget()
    with pytest.raises(InputError, match="io_uring is not available here"):
        PageReader(ReadExecution(fallback="error"))
    with pytest.warns(RuntimeWarning, match="using pread") as caught:
        readers = [PageReader() for _ in range(3)]
    assert len(caught) == 1
    assert [(each.method, each.reason is not None) for each in readers] == [("pread", True)] * 3
    with readers[0].open(path) as file:
        assert file.direct
        np.testing.assert_array_equal(readers[0].read_rows(file, [3], row_bytes=7)[0][0], whole[21:28])
    warn_once.forget()


def test_threads_that_find_no_io_uring_together_say_it_once(monkeypatch):
    said = []

    def warn(message, *_, **__):
        time.sleep(0.05)  # the others come meanwhile
        said.append(message)

    monkeypatch.setattr(direct_io._native, "ring_errno", lambda: 1)
    monkeypatch.setattr(warnings, "warn", warn)
    warn_once.forget()
    threads = [threading.Thread(target=PageReader) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    warn_once.forget()
    assert len(said) == 1


def test_without_o_direct_only_the_page_cache_is_left(table, monkeypatch):
    path, whole = table
    opened = os.open

    def refuse(path, flags):
        if flags & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return opened(path, flags)

    monkeypatch.setattr(direct_io.os, "open", refuse)
    warn_once.forget()
    for fallback in ("pread", "error"):
        with pytest.raises(InputError, match="has no O_DIRECT"):
            PageReader(ReadExecution(method="pread", fallback=fallback)).open(path)
    pages = PageReader(ReadExecution(method="pread", fallback="buffered"))
    with pytest.warns(RuntimeWarning, match="page cache"):
        file = pages.open(path)
    assert not file.direct and pages.reason
    np.testing.assert_array_equal(pages.read_rows(file, [1], row_bytes=9999)[0][0], whole[9999:19998])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pages.open(path).close()
    file.close()
    warn_once.forget()


FILTER = """
import ctypes, errno, struct, sys, warnings
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.direct_io import PageReader, ReadExecution
libc = ctypes.CDLL(None, use_errno=True)
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]
def forbid(call, error, above=None):
    # A system call fails with an error, where its first argument is above a number; all others are allowed.
    at_least = [] if above is None else [(0x20, 0, 0, 16), (0x25, 0, 1, above)]
    refused = [*at_least, (0x06, 0, 0, 0x00050000 | error)]
    steps = [(0x20, 0, 0, 0), (0x15, 0, len(refused), call), *refused, (0x06, 0, 0, 0x7FFF0000)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.byref(Filter(len(steps), ctypes.addressof(program))), 0, 0) == 0, ctypes.get_errno()
SETUP, ENTER = 425, 426  # of io_uring, on every architecture
"""
FORBID = """
forbid(SETUP, errno.EPERM)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print(PageReader().method, len(caught), "Operation not permitted" in str(caught[0].message))
"""
FORBID_DEPTH = """
forbid(SETUP, errno.ENOMEM, above=1)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print(PageReader().method, PageReader().method, len(caught), "no io_uring of depth 32" in str(caught[0].message))
    print(PageReader(ReadExecution(depth=1)).method)
try:
    PageReader(ReadExecution(fallback="error"))
except InputError as error:
    print("of depth 32" in error.problem, "ulimit -l" in error.remedy)
"""
FORBID_ENTER = """
reader = PageReader(ReadExecution(fallback="error"))
with reader.open(sys.argv[1]) as file:
    forbid(ENTER, errno.EPERM)
    for _ in range(2):
        try:
            reader.read_rows(file, [3, 5], row_bytes=512)
        except InputError as error:
            print("io_uring_enter failed: Operation not permitted" in error.problem, "was lost" in error.problem)
    try:
        reader.read_chunk(file, 0, 4096)
    except InputError as error:
        print("was lost" in error.problem)
"""


def filtered(script, *arguments):
    """What a script prints that forbids itself system calls."""
    command = [sys.executable, "-c", FILTER + script, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if "AssertionError" in done.stderr:
        pytest.skip("this process may not install a seccomp filter")
    assert not done.returncode, done.stderr
    return done.stdout.split()


def test_a_seccomp_filter_as_containers_have_it():
    assert filtered(FORBID) == ["pread", "1", "True"]


def test_a_ring_that_is_refused_at_its_depth_is_a_missing_one():
    available("io_uring")
    assert filtered(FORBID_DEPTH) == ["pread", "pread", "1", "True", "io_uring", "True", "True"]


def test_a_ring_that_is_lost_while_it_reads_is_an_error_then_and_later(table):
    available("io_uring")
    assert filtered(FORBID_ENTER, table[0]) == ["True", "False", "False", "True", "True"]


def test_readers_on_threads_and_nothing_leaks(table):
    path, _ = table
    ids = np.random.default_rng(2).integers(0, 2400, 300)
    expected = read_rows_reference(path, ids, 400)
    failures = []

    def work():
        for _ in range(25):
            pages = reader(depth=8)
            with pages.open(path) as file:
                if not np.array_equal(pages.read_rows(file, ids, row_bytes=400)[0], expected):
                    failures.append("wrong")

    def spread():
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def held():
        maps = Path("/proc/self/maps").read_text()
        return len(os.listdir("/proc/self/fd")), maps.count("io_uring")

    available("io_uring")
    before = held()
    spread()
    assert not failures and held() == before


def test_one_reader_is_for_one_thread_and_one_process(table):
    path, _ = table
    pages = reader(range_pages=1, depth=1)
    refused, both, limit = [], threading.Barrier(2, timeout=60), time.monotonic() + 60
    with pages.open(path) as file:

        def work():
            both.wait()
            try:
                while not refused and time.monotonic() < limit:
                    pages.read_rows(file, np.arange(1900), row_bytes=512)
            except InputError as error:
                refused.append(error.problem)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(refused) == {"two threads use one PageReader at once"}
        child = os.fork()
        if child == 0:
            try:
                pages.read_rows(file, [0], row_bytes=512)
            except InputError as error:
                os._exit(7 if "fork" in error.problem else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
