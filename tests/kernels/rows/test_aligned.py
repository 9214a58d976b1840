"""Page-aligned memory: where it starts, what it takes, large pages, and the pool that lends it again."""

import gc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.aligned import LARGE_BYTES, BufferPool, aligned_empty, space_for
from graphmill.kernels.rows.direct_io import PageReader, ReadExecution

SMAPS, LARGE_PAGES = Path("/proc/self/smaps"), Path("/sys/kernel/mm/transparent_hugepage")
needs_large_pages = pytest.mark.skipif(
    not (SMAPS.exists() and LARGE_PAGES.exists()), reason="this kernel has no large pages, or does not show them"
)


def mappings():
    """Yields start, end and flags of the process's mappings."""
    start = end = 0
    for line in SMAPS.read_text().splitlines():
        name, *values = line.split()
        if name == "VmFlags:":
            yield start, end, values
        elif not name.endswith(":"):
            start, end = (int(each, 16) for each in name.split("-"))


def wished_for():
    """Bytes of the process that ask for large pages."""
    return sum(end - start for start, end, flags in mappings() if "hg" in flags)


@pytest.mark.parametrize(
    "num_bytes", [0, 1, 4096, LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 1, 3 * LARGE_BYTES + 12345]
)
def test_memory_starts_on_a_page_and_outlives_the_names_it_had(num_bytes):
    memory = aligned_empty(num_bytes)
    assert (memory.dtype, memory.shape) == (np.uint8, (num_bytes,)) and memory.flags.writeable
    assert num_bytes == 0 or memory.ctypes.data % (LARGE_BYTES if num_bytes >= LARGE_BYTES else 4096) == 0
    memory[:] = 7
    last = memory[num_bytes // 2 :].view()
    del memory
    gc.collect()
    assert np.all(last == 7)


def test_sizes_that_cannot_be_are_refused():
    with pytest.raises(InputError, match="-1 bytes"):
        aligned_empty(-1)
    with pytest.raises(MemoryError, match=f"{1 << 60} bytes"):
        aligned_empty(1 << 60)


@needs_large_pages
def test_large_buffers_ask_for_large_pages_for_whole_ones_only():
    memory = aligned_empty(3 * LARGE_BYTES + 5000)
    memory[:] = 1
    begin, end = memory.ctypes.data, memory.ctypes.data + memory.nbytes
    parts = [each for each in mappings() if each[0] < end and each[1] > begin]
    assert any(part[0] <= begin and part[1] == begin + 3 * LARGE_BYTES and "hg" in part[2] for part in parts)
    assert not any("hg" in part[2] for part in parts if part[0] >= begin + 3 * LARGE_BYTES)


@needs_large_pages
@pytest.mark.skipif(bool(PageReader().reason), reason="this kernel or container forbids io_uring")
def test_what_runs_of_pages_land_in_asks_for_large_pages():
    before = wished_for()
    reader = PageReader(ReadExecution(depth=16, range_pages=64))
    assert wished_for() - before == 16 * 64 * 4096
    del reader
    assert wished_for() == before


def test_the_pool_lends_aligned_memory_again():
    pool = BufferPool()
    first, second = pool.take(5000), pool.take(1)
    assert first.data.ctypes.data % 4096 == 0 and first.data.nbytes == 8192 and second.data.nbytes == 4096
    assert (pool.lent_bytes, pool.kept_bytes) == (12288, 0)
    address = second.data.ctypes.data
    for buffer in (first, second, second):
        buffer.release()
    assert (pool.lent_bytes, pool.kept_bytes) == (0, 12288)
    assert pool.take(4096).data.ctypes.data == address
    pool.take(100_000).release()  # in the place of those that were kept
    assert pool.kept_bytes == space_for(100_000)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40_000)), max_size=60))
def test_lent_and_kept_buffers_take_no_more_than_were_lent_at_once(calls):
    pool, lent, most = BufferPool(), [], 0
    for gives, number in calls:
        if gives and lent:
            lent.pop(number % len(lent)).release()
        else:
            lent.append(pool.take(number))
        most = max(most, sum(each.data.nbytes for each in lent))
        assert pool.lent_bytes == sum(each.data.nbytes for each in lent)
        assert pool.lent_bytes + pool.kept_bytes <= most


@given(st.integers(0, 1 << 40))
def test_a_buffer_of_the_pool_is_an_eighth_too_large_at_most(num_bytes):
    size = space_for(num_bytes)
    assert size % 4096 == 0 and num_bytes <= size < num_bytes + max(4096, num_bytes / 8)
    assert space_for(size) == size and space_for(num_bytes + 1) >= size


def test_batches_that_differ_a_little_share_a_buffer():
    pool = BufferPool()
    sizes = (33_000_000, 33_100_000, 33_540_000)
    addresses = set()
    for size in sizes:
        with pool.take(size) as buffer:
            addresses.add(buffer.data.ctypes.data)
    assert len(addresses) == 1 and pool.kept_bytes == space_for(max(sizes))


def test_what_was_given_back_meanwhile_is_lent_again():
    pool = BufferPool()
    pool.take(3 * 4096).release_later()
    assert pool.lent_bytes == 3 * 4096
    again = pool.take(1)
    assert again.data.nbytes == 3 * 4096 and (pool.lent_bytes, pool.kept_bytes) == (3 * 4096, 0)
