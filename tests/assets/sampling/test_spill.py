"""Drawn edges that wait on disk: the rows of a batch in the order in which they came, in few pieces."""

import os

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.assets.sampling.spill import Spill

COLUMNS = {"sources": np.dtype(np.int32), "share": np.dtype(np.float32)}


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 5), max_size=4)), max_size=20),
    held=st.sampled_from([0, 100, 1 << 20]),
)
def test_rows_come_back_in_their_order(tmp_path_factory, rows, held):
    """Whatever waits in memory, of batches that take turns."""
    spill = Spill(tmp_path_factory.mktemp("spill") / "file", 3, COLUMNS, held)
    draw, added = np.random.default_rng(0), [[], [], []]
    for batch, counts in rows:
        sources = draw.integers(0, 1 << 31, sum(counts), np.int32)
        arrays = np.array(counts, np.int32), sources, draw.random(sum(counts), np.float32)
        spill.append(batch, arrays[0], arrays[1:])
        added[batch].append(arrays)
    spill.finish()
    for batch, arrays in enumerate(added):
        counts, edges = spill.read(batch)
        none = np.zeros(0, np.int32), *(np.zeros(0, each) for each in COLUMNS.values())
        for found, expected in zip((counts, *edges.values()), zip(none, *arrays, strict=True), strict=True):
            assert found.dtype == expected[0].dtype
            np.testing.assert_array_equal(found, np.concatenate(expected))
    assert spill.num_bytes == sum(each.nbytes for batch in added for arrays in batch for each in arrays)
    spill.close()


def test_small_pieces_are_joined(tmp_path, monkeypatch):
    """A batch is read by one request per column of a joined piece, not per window."""
    spill, requests, preadv = Spill(tmp_path / "file", 2, COLUMNS, 1 << 20), [], os.preadv
    for _ in range(100):
        for batch in (0, 1):
            spill.append(batch, np.ones(3, np.int32), (np.zeros(3, np.int32), np.zeros(3, np.float32)))
    spill.finish()
    monkeypatch.setattr(os, "preadv", lambda *given: requests.append(1) or preadv(*given))
    assert len(spill.read(1)[0]) == 300 and len(requests) == 3
    spill.close()
