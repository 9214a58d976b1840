"""A long evaluation tells what it read and waited for, and once per run the key that would help; a sampled one also its time."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from graphmill.assets.building.stage import Silent
from graphmill.trainers.inference import pace
from graphmill.trainers.inference.pace import ExactPace, Pace
from graphmill.trainers.record.ledger import Ledger, Line


class Lines(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def tell(self, line: str) -> None:
        self.lines.append(line)


def told(monkeypatch: pytest.MonkeyPatch, wait: float, work: float, hinted: set[str], read: int = 0) -> list[str]:
    """Returns the lines of an evaluation of 100 batches of 1,000 rows, by a clock of its own."""
    now, progress, ledger = [0.0], Lines(), Ledger()
    monkeypatch.setattr(pace.time, "monotonic", lambda: now[0])

    def batches() -> Iterator[int]:
        for number in range(100):
            now[0] += wait
            if read:
                ledger.crossed(Line("disk", "feature"), read)
            yield number

    measured = Pace(progress, 100, ledger, 5000, hinted)
    for _ in measured.waits(batches()):
        now[0] += work
        measured.done(1000)
    measured.end()
    return progress.lines


def test_it_tells_its_time_at_the_start_and_its_hint_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hinted: set[str] = set()
    first = told(monkeypatch, 0.75, 0.25, hinted, read=1 << 20)
    again = told(monkeypatch, 0.75, 0.25, hinted, read=1 << 20)
    assert first == [
        "sampled evaluation: 100 batches, about 100 s; 5,000 rows that its batches share are in memory",
        "sampled evaluation: 100 s, 1,000 rows/s, 100.0 MiB read past the page cache, 75 % of the time the model waited for rows",
        next(iter(hinted)),
    ]
    assert 'eval = "exact"' in first[2] and again == first[:2]
    assert "samplers" in told(monkeypatch, 0.75, 0.25, hinted)[2] and "hidden" in told(monkeypatch, 0.1, 0.9, hinted)[2]


@pytest.mark.parametrize(
    ("worked", "written", "word"), [(95.0, 0, "threads"), (20.0, 1, "eval_workspace"), (20.0, 0, "eval_every")]
)
def test_an_exact_one_tells_what_the_system_counts_and_its_hint_once(
    monkeypatch: pytest.MonkeyPatch, worked: float, written: int, word: str
) -> None:
    now, used = [0.0], {"ru_utime": 1.0, "ru_stime": 2.0, "ru_inblock": 7, "ru_oublock": 9}
    monkeypatch.setattr(pace.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(pace.resource, "getrusage", lambda who: SimpleNamespace(**used))
    progress, hinted = Lines(), set[str]()
    for seconds, count in ((5, 0), (100, 2), (100, 3)):
        measured = ExactPace(progress, 1000, hinted)
        now[0] += seconds
        used["ru_utime"] += worked / 2
        used["ru_stime"] += worked / 2
        used["ru_inblock"] += 4096
        used["ru_oublock"] += 2048 * written
        measured.end()
        assert len(progress.lines) == count
    assert (
        progress.lines[0]
        == progress.lines[2]
        == (
            f"exact evaluation: 100 s, 10 rows/s, 2.0 MiB read and {'1.0 MiB' if written else '0 B'} written, "
            f"{100 - worked:.0f} % of the time no core computed"
        )
    )
    assert word in progress.lines[1]


def test_a_short_one_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not told(monkeypatch, 0.01, 0.02, set(), read=1)
