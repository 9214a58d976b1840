"""The counting functions that stand for other systems count what those systems would do."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.disk_baselines import belady, global_cache, merged_rows, one_read_a_row
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.kernels.rows.slots import ELSEWHERE
from tests.kernels.disk_cache.test_segments import draw_batches

ROW_BYTES = st.sampled_from([100, 512, 688, 4096, 5000])


def spanned(row, row_bytes):
    return set(range(row * row_bytes // PAGE_BYTES, (row * row_bytes + row_bytes - 1) // PAGE_BYTES + 1))


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 8), st.integers(1, 200), ROW_BYTES)
def test_reads_by_row_and_by_page_equal_a_recount(seed, num_batches, num_nodes, row_bytes):
    ptr, ids, slot = draw_batches(seed, num_batches, num_nodes, 60)
    batches = [[int(node) for node in ids[low:high] if slot[node] == ELSEWHERE] for low, high in pairwise(ptr)]
    missed = sum(map(len, batches))
    moved = sum(len(spanned(node, row_bytes)) for batch in batches for node in batch) * PAGE_BYTES
    assert one_read_a_row(ids, slot, row_bytes) == (missed, moved, missed * row_bytes)
    pages = [set().union(*(spanned(node, row_bytes) for node in batch)) for batch in batches]
    runs = sum(page - 1 not in batch for batch in pages for page in batch)
    moved = sum(map(len, pages)) * PAGE_BYTES
    assert merged_rows(ptr, ids, slot, row_bytes) == (runs, moved, missed * row_bytes)
    whole = global_cache(ptr, ids, slot, row_bytes, 0, "id")
    assert whole.asked_bytes == missed * row_bytes and 0 <= whole.moved_bytes - whole.asked_bytes < num_batches * 4096


def fewest_misses(batches, cache_rows):
    """The optimum by trying every content of the cache after every batch."""
    from functools import cache
    from itertools import combinations

    @cache
    def best(b, held):
        if b == len(batches):
            return 0
        wanted = set(batches[b])
        have = set(held) | wanted
        contents = [each for size in range(min(cache_rows, len(have)) + 1) for each in combinations(sorted(have), size)]
        return len(wanted - set(held)) + min(best(b + 1, each) for each in contents)

    return best(0, ())


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(st.integers(0, 4), unique=True, max_size=4), min_size=1, max_size=5), st.integers(0, 4))
def test_belady_misses_as_little_as_any_cache(batches, cache_rows):
    ptr = np.cumsum([0, *map(len, batches)])
    ids = np.array([node for batch in batches for node in batch], np.int64)
    reads = belady(ptr, ids, 5, cache_rows, 512)
    assert reads.requests == fewest_misses(batches, cache_rows)
    assert reads.asked_bytes == len(ids) * 512 and reads.moved_bytes == reads.requests * PAGE_BYTES
