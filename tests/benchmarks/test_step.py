"""The benchmark of one step lets its contestants take turns in an order that is drawn for each round."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks import step
from benchmarks.step import CONTESTANTS, PHASES


def test_the_order_is_drawn_for_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[str] = []

    class Fake:
        def __init__(self, prepare: Any, paths: Any, name: str, batch_size: int):
            self.name = name

        def __enter__(self) -> "Fake":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def ask(self, what: str) -> Any:
            if what == "steps":
                turns.append(self.name)
            return {"check": 0.0, "steps": dict.fromkeys(PHASES, 1.0), "sizes": (1, 1)}[what]

    monkeypatch.setattr(step, "Worker", Fake)
    row = step.measure((Path(), Path()), 1024, rounds=9)
    rounds = [turns[first : first + len(CONTESTANTS)] for first in range(0, len(turns), len(CONTESTANTS))]
    assert len(rounds) == 10 and all(sorted(each) == sorted(CONTESTANTS) for each in rounds)
    followed = {pair for each in rounds for pair in pairwise(each)}
    assert len(followed) == len(CONTESTANTS) * (len(CONTESTANTS) - 1), "some never come after some other"
    assert row["ratio"] == 1.0
