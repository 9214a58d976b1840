"""Sums without rounding: those of fractions, in any order and any cut."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from graphmill.assets.sources.encoders.numbers import Moments

VALUES = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=60)


def moments(values: list[float], cut: int) -> Moments:
    found = Moments()
    for part in (values[:cut], values[cut:]):
        found.add(np.array(part, np.float64))
    return found


@given(VALUES, st.integers(0, 60), st.randoms())
def test_moments_are_those_of_fractions_in_any_order_and_any_cut(values: list[float], cut: int, random) -> None:
    found, exact = moments(values, len(values)), [*map(Fraction, values)]
    mean = sum(exact, Fraction()) / len(exact)
    variance = sum(((each - mean) ** 2 for each in exact), Fraction()) / len(exact)
    assert found.mean == float(mean)
    assert (found.deviation == 0) == (variance == 0 or variance < Fraction(2) ** -2148)
    if found.deviation > 1e-300:
        assert abs(Fraction(found.deviation) ** 2 / variance - 1) < Fraction(1, 10**15)
    shuffled = random.sample(values, len(values))
    again = moments(shuffled, cut)
    assert (again.mean, again.deviation, again.count) == (found.mean, found.deviation, len(values))


def test_no_values_have_mean_and_deviation_zero() -> None:
    assert (Moments().mean, Moments().deviation) == (0, 0)
