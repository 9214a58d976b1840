"""Learning rates by step."""

import math

import pytest

from graphmill.trainers.loop.loop import rate_factor


def test_constant_is_one_after_the_warm_up() -> None:
    assert [rate_factor("constant", step, 4, 10) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert rate_factor("constant", 0, 0, 1) == 1.0


@pytest.mark.parametrize(("schedule", "middle"), [("linear", 0.5), ("cosine", 0.5 * (1 + math.cos(math.pi / 2)))])
def test_the_others_fall_from_one_towards_zero(schedule: str, middle: float) -> None:
    factors = [rate_factor(schedule, step, 2, 12) for step in range(12)]
    assert factors[2] == 1.0 and factors[7] == pytest.approx(middle) and 0 < factors[-1] < 0.11
    assert factors[2:] == sorted(factors[2:], reverse=True)
