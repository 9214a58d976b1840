"""Drawn edges that wait on disk: the rows of a batch in the order in which they came, in few pieces of few bytes."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.assets.sampling.spill import Spill, SpillColumn

COUNTS = SpillColumn.of(np.dtype(np.int32), 5)
ENDS = [1, 255, 256, (1 << 24) - 1, 1 << 24, (1 << 31) - 1]


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 5), max_size=4)), max_size=20),
    held=st.sampled_from([0, 1000, 1 << 20]),
    largest=st.sampled_from(ENDS),
    dtype=st.sampled_from([np.int32, np.int64]),
)
def test_rows_come_back_in_their_order(tmp_path_factory, rows, held, largest, dtype):
    """Whatever stays in memory, of batches that take turns, with the ids of small and large graphs."""
    columns = {"sources": SpillColumn.of(np.dtype(dtype), largest), "share": SpillColumn.of(np.dtype(np.float32))}
    spill = Spill(tmp_path_factory.mktemp("spill") / "file", 3, COUNTS, columns, held)
    draw, added = np.random.default_rng(0), [[], [], []]
    for batch, counts in rows:
        sources = draw.integers(0, largest + 1, sum(counts)).astype(dtype)
        sources[:1] = largest
        arrays = np.array(counts, np.int32), sources, draw.random(sum(counts), np.float32)
        spill.append(batch, arrays[0], arrays[1:])
        added[batch].append(arrays)
    spill.finish()
    for batch, arrays in enumerate(added):
        counts, edges = spill.read(batch)
        none = np.zeros(0, np.int32), np.zeros(0, dtype), np.zeros(0, np.float32)
        for found, expected in zip((counts, *edges.values()), zip(none, *arrays, strict=True), strict=True):
            assert found.dtype == expected[0].dtype
            np.testing.assert_array_equal(found, np.concatenate(expected))
    each = [len(arrays[0]) + len(arrays[1]) * (columns["sources"].num_bytes + 4) for batch in added for arrays in batch]
    assert spill.num_bytes <= sum(each)
    assert spill.num_bytes == sum(each) or held
    assert spill.read_bytes == spill.num_bytes
    spill.close()


@pytest.mark.parametrize(("largest", "expected"), list(zip(ENDS, [1, 1, 2, 3, 4, 4], strict=True)))
def test_a_number_takes_the_bytes_of_the_largest_one(largest, expected):
    assert SpillColumn.of(np.dtype(np.int64), largest).num_bytes == expected
    assert SpillColumn.of(np.dtype(np.int64)).num_bytes == 8
    assert SpillColumn.of(np.dtype(np.int32), 1 << 40).num_bytes == 4, "more than there are"


def test_small_pieces_are_joined(tmp_path, monkeypatch):
    """A batch is read by one request per joined piece, not per window; the last rows are in memory."""
    columns = {"sources": SpillColumn.of(np.dtype(np.int32))}
    spill, requests, preadv = Spill(tmp_path / "file", 2, COUNTS, columns, 16_000), [], os.preadv
    for _ in range(100):
        for batch in (0, 1):
            spill.append(batch, np.ones(3, np.int32), (np.zeros(3, np.int32),))
    spill.finish()
    monkeypatch.setattr(os, "preadv", lambda *given: requests.append(1) or preadv(*given))
    assert len(spill.read(1)[0]) == 300
    assert len(requests) == 2 and 0 < spill.num_bytes < 200 * 15
    spill.close()
