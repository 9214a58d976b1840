"""Records of edges: dealt to ranges, and sorted."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.assets.sources.spool import EdgeColumns, record_dtype
from graphmill.kernels.graph.edge_records import deal_records, deal_records_reference, sort_ends, sort_ends_reference

SEED = st.integers(0, 2**32 - 1)


def drawn(rng, num_nodes: int, count: int, dtype) -> np.ndarray:
    records = np.zeros(count, dtype)
    for name in dtype.names:
        records[name] = rng.integers(0, num_nodes if name in ("dst", "src") else 100, count)
    return records


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 90), st.integers(0, 80), st.booleans(), st.booleans(), st.booleans(), st.booleans(), SEED)
def test_dealing_equals_the_reference(num_nodes, count, wide, reverse, drop_loops, own, seed):
    rng = np.random.default_rng(seed)
    columns = EdgeColumns(weights=bool(rng.integers(2)), num_types=3 if own or rng.integers(2) else 0)
    dtype = record_dtype(2**31 if wide else num_nodes, columns)
    records = drawn(rng, num_nodes, count, dtype)
    bins = ((num_nodes - 1) >> 2) + 1
    range_of = np.sort(rng.integers(0, 3, bins)).astype(np.uint16)
    keys = {"reverse": reverse, "drop_loops": drop_loops, "type_step": 3 if own else 0}
    found, counts, loops = deal_records(records, range_of, 2, 3, **keys)
    expected = deal_records_reference(records, range_of, 2, 3, **keys)
    assert found.dtype == dtype and found.tobytes() == expected[0].tobytes() and (counts, loops) == expected[1:]


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 5000), st.integers(0, 300), st.integers(0, 2**31 - 6000), st.booleans(), st.booleans(),
    st.sampled_from([1, 2, 8]), SEED,
)  # fmt: skip
def test_sorting_equals_the_reference(num_rows, count, low, wide, merge, threads, seed):
    rng = np.random.default_rng(seed)
    dtype = record_dtype(2**31 if wide else 9, EdgeColumns())
    records = drawn(rng, 9, count, dtype)
    records["dst"] = low + rng.integers(0, min(num_rows, 2000), count)
    expected = sort_ends_reference(records, low, num_rows, merge=merge)
    found = sort_ends(records, low, num_rows, merge=merge, threads=threads)
    assert found[0].dtype == dtype["src"] and np.array_equal(found[0], expected[0])
    assert np.array_equal(found[1], expected[1]) and found[2] == expected[2]


def test_many_edges_of_few_nodes():
    rng = np.random.default_rng(0)
    records = drawn(rng, 3000, 300_000, record_dtype(3000, EdgeColumns()))
    expected = sort_ends_reference(records, 0, 3000, merge=True)
    for threads in (1, 2, 4):
        found = sort_ends(records, 0, 3000, merge=True, threads=threads)
        assert (
            np.array_equal(found[0], expected[0]) and np.array_equal(found[1], expected[1]) and found[2] == expected[2]
        )
