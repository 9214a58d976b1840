"""What a training says of its epochs, to whom, and how often."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from graphmill.assets.building.stage import Silent
from graphmill.trainers.record import epoch_lines
from graphmill.trainers.record.epoch_lines import EpochLines
from graphmill.trainers.record.ledger import Ledger, Line
from graphmill.trainers.record.progress import BarProgress, LineProgress, open_progress
from tests.trainers.runs import train_small


class Told(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.words: list[str] = []

    def tell(self, line: str) -> None:
        self.lines.append(line)

    def note(self, text: str) -> None:
        self.words.append(text)


def said(epochs: int, lines: str = "some", stop: int | None = None) -> list[str]:
    told = Told()
    listener = EpochLines(told, "", epochs, lines)  # pyright: ignore[reportArgumentType]
    for epoch in range(stop or epochs):
        last = epoch + 1 == (stop or epochs)
        listener.epoch({"epoch": epoch + 1, "loss": 1.0}, 0.5, None, last=last)
    return [line.split(":")[0] for line in told.lines]


@pytest.mark.parametrize("epochs", [1, 2, 99, 100, 101, 250, 3000])
def test_about_a_hundred_lines_with_the_first_and_the_last(epochs: int) -> None:
    lines = said(epochs)
    assert lines[0] == f"epoch 1/{epochs}" and lines[-1] == f"epoch {epochs}/{epochs}"
    assert len(lines) == len(set(lines)) and min(epochs, 50) <= len(lines) <= 102
    assert len(said(epochs, "all")) == epochs and said(epochs, "none") == []


def test_an_early_stop_is_said() -> None:
    assert said(1000, stop=333)[-1] == "epoch 333/1000"


def test_a_line_has_loss_score_and_the_best_so_far() -> None:
    told = Told()
    listener = EpochLines(told, "seed 3, ", 20)
    listener.epoch({"epoch": 5, "loss": 0.125, "valid": 0.8765}, 1.25, (0.9, 2), last=False)
    assert told.lines == ["seed 3, epoch 5/20: loss 0.1250, valid 87.65 (best 90.00 in epoch 2), 1.25 s"]


def ledger_of(rows: int, read: int) -> Ledger:
    ledger = Ledger()
    ledger.count("inputs", 0, rows)
    ledger.count("inputs", 1, 7)
    ledger.crossed(Line("disk", "feature"), read)
    return ledger


def test_the_first_long_epoch_tells_its_pace_and_the_key_that_would_help() -> None:
    def paced(seconds: float, lane: dict[str, float], read: int, lines: Any = "some") -> list[str]:
        told = Told()
        listener = EpochLines(told, "seed 3, ", 20, lines)
        for number in (1, 2):
            record = {"epoch": number, "seconds": seconds, "busy_seconds": {"step": lane, "sampler": {"sample": 9.0}}}
            listener.pace(record, ledger_of(500, 1 << 20), ledger_of(20_500, read + (1 << 20)))
        return told.lines

    (slow,) = paced(20, {"wait": 15.0, "train": 5.0}, 1 << 20)
    assert slow.startswith(
        "seed 3, epoch 1: 1,000 rows/s, 1.0 MiB read past the page cache, 75 % of the time the model waited"
    )
    assert "[memory] host" in slow and "samplers" in paced(20, {"wait": 10.0}, 0)[0]
    (busy,) = paced(20, {"wait": 1.0}, 0)
    assert busy == "seed 3, epoch 1: 1,000 rows/s, 5 % of the time the model waited for batches"
    assert (
        not paced(2, {"wait": 1.0}, 0) and not paced(20, {"train": 15.0}, 0) and not paced(20, {"wait": 9.0}, 0, "none")
    )


def test_lines_come_in_a_pipe_and_beside_a_bar(tmp_path: Path) -> None:
    also: list[str] = []
    stream = io.StringIO()
    assert isinstance(open_progress(stream), LineProgress)
    plain = train_small(tmp_path / "plain")
    for kind in (LineProgress, BarProgress):
        stream = io.StringIO()
        model = train_small(tmp_path / kind.__name__, progress=kind(stream, title="sage: ", also=also.append))
        lines = [line for line in stream.getvalue().splitlines() if "epoch" in line and "loss" in line]
        assert [line.strip().split(":")[1].strip() for line in lines] == [f"seed 5, epoch {n}/3" for n in (1, 2, 3)]
        assert all("valid" in line and line.endswith(" s") for line in lines)
        # Nothing of it is content.
        assert (model.version, model.files) == (plain.version, plain.files)
    epochs = [line for line in also if "epoch" in line and "loss" in line]
    assert len(epochs) == 6 and epochs[0].startswith("sage: seed 5, epoch 1/3: loss ")
    assert [line for line in also if line not in epochs] == 2 * [also[0]] and also[0].startswith("sage: eval =")


def test_a_resumed_run_goes_on_counting(tmp_path: Path) -> None:
    class Stopping(LineProgress):
        count = 0

        def advance(self, n: int) -> None:
            super().advance(n)
            self.count += n
            if self.count > 8:
                raise KeyboardInterrupt

    stream = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        train_small(tmp_path, progress=Stopping(stream))
    train_small(tmp_path, resume=True, progress=LineProgress(stream))
    numbers = [line.split("epoch ")[1].split("/")[0] for line in stream.getvalue().splitlines() if "loss" in line]
    assert numbers == ["1", "2", "3"]


def test_a_bar_on_a_terminal_shows_loss_and_score_of_every_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes the stream for a terminal
    monkeypatch.setenv("COLUMNS", "160")
    stream = io.StringIO()
    model = train_small(tmp_path, epochs=4, progress=BarProgress(stream))
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    first = json.loads(model.file("metrics.jsonl").read_text().splitlines()[0])
    during = [line for line in shown.splitlines() if "epoch 2/4" in line and "batches" in line]
    assert during and all(f"loss {first['loss']:.4f}, valid {100 * first['valid']:.2f}" in line for line in during)


def test_the_words_of_a_bar_come_though_no_line_does() -> None:
    told = Told()
    listener = EpochLines(told, "", 20, "none")
    listener.epoch({"epoch": 5, "loss": 0.125, "valid": 0.8765}, 1.25, (0.9, 2), last=False)
    assert told.lines == [] and told.words == ["loss 0.1250, valid 87.65 (best 90.00 in epoch 2)"]


@pytest.mark.parametrize(("seconds", "expected"), [(0.2, 21), (4.0, 334), (25.0, 1000)])
def test_long_epochs_have_a_line_at_least_every_ten_seconds(
    seconds: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [500.0]
    monkeypatch.setattr(epoch_lines.time, "monotonic", lambda: now[0])
    told = Told()
    listener = EpochLines(told, "", 1000)
    monkeypatch.setattr(listener, "every", 120)
    for epoch in range(1, 1001):
        now[0] += seconds
        listener.epoch({"epoch": epoch, "loss": 1.0}, seconds, None, last=epoch == 1000)
    assert expected <= len(told.lines) <= 1.3 * expected
