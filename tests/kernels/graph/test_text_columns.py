"""Columns of numbers from plain lines of text."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.graph.text_columns import BLANKS, SEPARATORS, LineForm, text_columns, text_columns_reference

WHOLE = st.one_of(
    st.integers(-(2**63) - 2, 2**63 + 2).map(str),
    st.integers(-9, 99).map(str),
    st.sampled_from(["0", "-0", "007", "+1", " 5 ", "", "1.0", "9223372036854775807", "9223372036854775808", "1e3"]),
)
REAL = st.one_of(
    st.floats(-1e6, 1e6, width=32).map(repr),
    st.integers(-99, 99).map(str),
    st.sampled_from(
        ["0", "-0.0", "0e9", "1e-38", "1e-45", "4e38", "1.", ".5", "-", "1e", "nan", "inf", "0x1", "2,5", "1E+2"]
    ),
)
TEXT = st.sampled_from(["a", "some text", "", "tab\there", 'a"quote', "é", "#c", "x\r"])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_equals_the_reference(data):
    separator = data.draw(st.sampled_from(SEPARATORS))
    form = LineForm(
        separator=separator,
        num_fields=3,
        comment=data.draw(st.sampled_from(["", "#"])),
        carriage=data.draw(st.booleans()),
    )
    odd = data.draw(st.booleans())
    kinds = [WHOLE, TEXT, REAL] if odd else [st.integers(-9, 2**40).map(str), st.just("text"), st.just("2.5")]
    lines = data.draw(st.lists(st.tuples(*kinds), max_size=6))
    between = "\t " if separator == BLANKS else separator
    text = "".join(between.join(line) + ("\r\n" if form.carriage else "\n") for line in lines).encode()
    columns = data.draw(st.permutations([(0, False), (2, True)]))
    found = text_columns(b"??" + text + b"1,2", 2, len(text), form, columns, data.draw(st.sampled_from([1, 2])))
    expected = text_columns_reference(text, form, columns)
    assert (found is None) == (expected is None)
    for one, other in zip(found or [], expected or [], strict=True):
        assert one.dtype == other.dtype and one.tobytes() == other.tobytes()


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_pieces_of_threads_are_joined(threads):
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 10**6, (80_000, 2))
    text = "".join(f"{a},{b}\n" for a, b in ends.tolist()).encode()
    form = LineForm(separator=",", num_fields=2)
    found = text_columns(text, 0, len(text), form, [(0, False), (1, False)], threads)
    assert found is not None and np.array_equal(np.stack(found, 1), ends)
    assert text_columns(text + b"1,x\n", 0, len(text) + 4, form, [(0, False)], threads) is not None
    assert text_columns(text + b"x,1\n", 0, len(text) + 4, form, [(0, False)], threads) is None


def test_no_lines():
    form = LineForm(separator=",", num_fields=2)
    (found,) = text_columns(b"", 0, 0, form, [(1, False)]) or [None]
    assert found is not None and len(found) == 0
