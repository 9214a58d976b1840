"""Configurations that check themselves: choices, ranges, and what subclasses add."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from graphmill.assets.building.keys import Checked, ConfigError, KeyProblem, within


@dataclass(frozen=True, kw_only=True)
class Base(Checked):
    count: int = field(default=1, metadata=within(1, 10))
    share: float | None = field(default=None, metadata=within(above=0, below=1))
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True, kw_only=True)
class More(Base):
    size: str = ""

    def problems(self) -> Iterator[KeyProblem]:
        yield from super().problems()
        if self.size == "wrong":
            yield KeyProblem("size count", "size = 'wrong' is not a size")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"count": 0}, "count = 0 is below 1"),
        ({"count": 11}, "count = 11 is above 10"),
        ({"share": 0.0}, "share = 0.0 is not above 0"),
        ({"share": 1.0}, "share = 1.0 is not below 1"),
        ({"share": float("nan")}, "share = nan is not above 0"),
        ({"kind": "c"}, "kind = 'c' is not one of a, b"),
        ({"size": "wrong"}, "size = 'wrong' is not a size"),
    ],
)
def test_a_problem_names_its_key_first(values: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as error:
        More(**values)
    assert [problem.text for problem in error.value.problems] == [text]
    assert error.value.problems[0].keys.split()[0] in values
    assert str(error.value) == text


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(ConfigError) as error:
        More(count=0, kind="c", size="wrong")  # pyright: ignore[reportArgumentType]
    assert len(error.value.problems) == 3


def test_bounds_and_missing_values_are_in_the_range() -> None:
    assert (More(count=1).count, More(count=10).count, More(share=0.5).share, More(share=None).share) == (
        1,
        10,
        0.5,
        None,
    )
