"""Choosing in vector registers, choosing anywhere and the reference agree to the bit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels import _native
from graphmill.kernels.sampling.sample import choose_reference


@st.composite
def rows(draw):
    """A row's key, degree and number of chosen ones; degrees near it, where draws repeat, and far away."""
    taken = draw(st.integers(1, 70))
    degree = taken + draw(
        st.one_of(st.integers(1, 3), st.integers(1, 3 * taken), st.just(10**6), st.just(2**31 - 1 - taken))
    )
    return draw(st.integers(0, 2**64 - 1)), degree, taken


@settings(max_examples=600)
@given(rows(), st.booleans())
def test_all_ways_choose_the_same(row, replace):
    row_key, degree, taken = row
    expected = choose_reference(row_key, degree, taken, replace)
    for anywhere in (False, True):
        assert _native.choose(row_key, degree, taken, replace, anywhere).tolist() == expected


@pytest.mark.parametrize("taken", range(1, 41))
def test_rows_that_lose_one_neighbour(taken):
    # Nearly every draw repeats an earlier member: all lanes of a register are replaced now and then.
    for row_key in range(60):
        expected = choose_reference(row_key, taken + 1, taken)
        for anywhere in (False, True):
            assert _native.choose(row_key, taken + 1, taken, False, anywhere).tolist() == expected


def test_one_neighbour_with_replacement():
    for taken in (1, 8, 9, 32, 33):
        assert _native.choose(3, 1, taken, True, False).tolist() == [0] * taken
