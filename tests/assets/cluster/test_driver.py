"""What the process that talks to a cluster makes of answers and reports, without a cluster."""

from types import SimpleNamespace
from typing import Any

from graphmill.assets.cluster.driver import _Parts


def test_a_report_that_comes_behind_the_answer_of_its_part_is_not_counted_again() -> None:
    """Reports come over an actor and answers from Ray, so either may be first."""
    reports: list[list[tuple[str, int]]] = [[("p0", 1)], [("p0", 2), ("p1", 1)], []]
    ended = [["first"], ["second"], []]
    sent: list[tuple[Any, ...]] = []
    parts: Any = object.__new__(_Parts)
    parts.ray = SimpleNamespace(
        wait=lambda running, **how: (ended.pop(0), running),
        get=lambda asked: asked if asked == ("done",) else (asked, []),
    )
    parts._post = SimpleNamespace(take=SimpleNamespace(remote=lambda: reports.pop(0)))
    parts._running, parts._reported = {"first": "p0", "second": "p1"}, {}
    parts._answer = lambda task, part: ("done",)
    parts.stage = SimpleNamespace(work=lambda inputs, semantic, part: 3)
    parts.build = SimpleNamespace(inputs={}, semantic=None)
    parts.pipe = SimpleNamespace(send=sent.append)
    for _ in range(2):
        parts._collect()
    assert [values for kind, *values in sent if kind == "part"] == [["p0", ("done",)], ["p1", ("done",)]]
    assert sum(values[0] for kind, *values in sent if kind == "advance") == 6
