"""The nodes of each part, whatever the ranges are in which they are found."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels import ranges
from graphmill.kernels.chunks.by_part import count_nodes, nodes_by_part


@settings(max_examples=60, deadline=None)
@given(
    parts=st.lists(st.integers(0, 4), max_size=60),
    at_once=st.sampled_from([1, 7, 1000]),
    dtype=st.sampled_from([np.int32, np.int64]),
)
def test_nodes_stand_by_part_and_then_by_id(parts, at_once, dtype):
    part_of = np.array(parts, np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "NODES_AT_ONCE", at_once)
        (nodes, bounds), counts = nodes_by_part(part_of, 5, dtype), count_nodes(part_of, 5)
    assert nodes.dtype == dtype and bounds.tolist() == [0, *np.cumsum(np.bincount(part_of, minlength=5))]
    np.testing.assert_array_equal(nodes, np.argsort(part_of, kind="stable"))
    np.testing.assert_array_equal(counts, np.diff(bounds))
