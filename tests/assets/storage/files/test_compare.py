import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from graphmill.assets.storage.files import compare
from graphmill.assets.storage.files.compare import compare_arrays

FLOATS = st.sampled_from([0.0, -0.0, 1.0, np.nan, np.inf, -np.inf])


@given(st.data(), hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=6), st.sampled_from(["f4", "i8", "?"]))
def test_it_finds_what_a_loop_finds(data, shape, dtype):
    elements = FLOATS if dtype == "f4" else st.integers(0, 1) if dtype == "i8" else st.booleans()
    one, other = (data.draw(hnp.arrays(dtype, shape, elements=elements)) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "SLICE_BYTES", data.draw(st.integers(1, 64)))
        found = compare_arrays(one, other)
    places = [p for p in np.ndindex(*shape) if one[p] != other[p] and not (one[p] != one[p] and other[p] != other[p])]
    assert found is not None and found.num_rows == shape[0] and found.num_elements == one.size
    assert found.differing_elements == len(places) and found.differing_rows == len({place[0] for place in places})
    assert found.first == (places[0] if places else None)
    sizes = [abs(float(one[place]) - float(other[place])) for place in places]
    assert found.largest == max([size for size in sizes if np.isfinite(size)], default=0.0)


def test_only_rows_that_both_have_are_compared():
    found = compare_arrays(np.arange(6).reshape(3, 2), np.arange(4).reshape(2, 2))
    assert found is not None and (found.num_rows, found.differing_rows) == (2, 0)
    assert compare_arrays(np.zeros((2, 3)), np.zeros((2, 4))) is None
    assert compare_arrays(np.zeros(6), np.zeros((6, 1))) is None


def test_types_may_differ_and_unsigned_values_do_not_wrap():
    found = compare_arrays(np.array([1, 2], np.uint8), np.array([1, 5], np.uint8))
    assert found is not None and found.largest == 3.0 and found.values == (2, 5) and found.first == (1,)
    found = compare_arrays(np.array([1.5], np.float16), np.array([2], np.int64))
    assert found is not None and found.largest == 0.5
    found = compare_arrays(np.array(3), np.array(4))
    assert found is not None and found.differing_elements == 1
