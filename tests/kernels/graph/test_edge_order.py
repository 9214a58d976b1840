"""The order of edges with attributes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.errors import InputError
from graphmill.kernels.graph.edge_order import edge_order, edge_order_reference


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 400), st.integers(1, 30), st.booleans(), st.booleans(), st.sampled_from([np.int32, np.int64]),
    st.sampled_from([1, 2, 8]), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_equals_the_reference(count, num_rows, typed, tied, dtype, threads, seed):
    rng = np.random.default_rng(seed)
    rows, src = (
        rng.integers(0, num_rows, count),
        rng.integers(0, 2**40 if dtype == np.int64 else 9, count).astype(dtype),
    )
    types = rng.integers(0, 256, count).astype(np.uint8) if typed else None
    ties = rng.permutation(count) - count // 2 if tied else None
    found = edge_order(rows, src, num_rows, types, ties, threads=threads)
    assert found.dtype == np.int32
    assert np.array_equal(found, edge_order_reference(rows, src, types, ties))


@pytest.mark.parametrize(
    ("rows", "src", "types"), [([0, 3], [1, 1], None), ([0], [1, 1], None), ([0, 1], [-1, 0], None), ([0], [0], [1, 2])]
)
def test_refuses_what_does_not_fit(rows, src, types):
    with pytest.raises(InputError):
        edge_order(np.array(rows), np.array(src), 2, None if types is None else np.array(types, np.uint8))


@pytest.mark.parametrize(
    ("name", "values"),
    [("types", np.array([300, 45])), ("types", np.array([1.0, 2.0])), ("ties", np.array([0.5, 0.4])),
     ("ties", np.array([2**63, 0], np.uint64))],
)  # fmt: skip
def test_keys_that_a_cast_could_change_are_refused(name, values):
    with pytest.raises(InputError, match=f"{name} are {values.dtype}"):
        edge_order(np.zeros(2, np.int32), np.zeros(2, np.int32), 1, **{name: values})
