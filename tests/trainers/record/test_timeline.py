"""The time-line: spans of the last finished epoch, sums over all batches, and how much was hidden."""

import threading
from pathlib import Path

import pytest

from graphmill.trainers.record.ledger import MOST_BATCHES, STEP, WAIT, Timeline, hidden_share, lanes
from tests.trainers.runs import train_small


class Clock:
    """Seconds that pass only when they are told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def spend(timeline: Timeline, clock: Clock, lane: str, phase: str, position: int, seconds: float) -> None:
    with timeline.span(lane, phase, position):
        clock.now += seconds


def test_spans_are_counted_from_the_start_of_their_epoch() -> None:
    clock = Clock()
    timeline = Timeline(clock)
    spend(timeline, clock, STEP, "train", 0, 1.0)  # before any epoch
    assert timeline.record == {}
    timeline.start(3)
    spend(timeline, clock, "sampler 0", "sample", 0, 0.25)
    spend(timeline, clock, STEP, "train", 0, 0.5)
    timeline.finish()
    assert timeline.record == {
        "epoch": 3,
        "seconds": 0.75,
        "busy_seconds": {"sampler 0": {"sample": 0.25}, STEP: {"train": 0.5}},
        "spans": [("sampler 0", "sample", 0, 0.0, 0.25), (STEP, "train", 0, 0.25, 0.75)],
    }
    timeline.start(4)
    spend(timeline, clock, STEP, "train", 0, 9.0)
    assert timeline.record["epoch"] == 3  # an unfinished epoch does not replace it
    assert lanes(timeline.record["spans"]) == [STEP, "sampler 0"]


def test_sums_cover_all_batches_and_spans_the_first_ones() -> None:
    clock = Clock()
    timeline = Timeline(clock)
    timeline.start(0)
    for position in range(MOST_BATCHES + 5):
        spend(timeline, clock, STEP, "train", position, 1.0)
    timeline.finish()
    assert len(timeline.record["spans"]) == MOST_BATCHES
    assert timeline.record["busy_seconds"][STEP]["train"] == MOST_BATCHES + 5


@pytest.mark.parametrize(("waited", "share"), [(0.0, 1.0), (1.0, 0.75), (4.0, 0.0), (9.0, 0.0)])
def test_what_the_step_waited_for_was_not_hidden(waited: float, share: float) -> None:
    clock = Clock()
    timeline = Timeline(clock)
    timeline.start(0)
    spend(timeline, clock, "sampler 0", "sample", 0, 3.0)
    spend(timeline, clock, "sampler 1", "gather", 0, 1.0)
    spend(timeline, clock, "sampler 1", WAIT, 0, 7.0)  # waiting is no preparation
    spend(timeline, clock, STEP, WAIT, 0, waited)
    timeline.finish()
    assert hidden_share(timeline.record) == share
    assert hidden_share({}) is None


def test_threads_share_a_timeline() -> None:
    timeline = Timeline()
    timeline.start(0)

    def work(lane: str) -> None:
        for position in range(200):
            with timeline.span(lane, "sample", position):
                pass

    threads = [threading.Thread(target=work, args=(f"sampler {i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    timeline.finish()
    assert len(timeline.record["spans"]) == 4 * MOST_BATCHES
    begins = [span[3] for span in timeline.record["spans"]]
    assert begins == sorted(begins)


def test_a_run_records_the_last_epoch_of_every_thread(tmp_path: Path) -> None:
    model = train_small(tmp_path, epochs=3, samplers=2)
    record = model.run_record()["timeline"]
    assert record["epoch"] == 3 and lanes(record["spans"]) == [STEP, "sampler 0", "sampler 1"]
    phases = {(lane, phase): {span[2] for span in record["spans"] if span[:2] == [lane, phase]}
              for lane, phase, *_ in record["spans"]}  # fmt: skip
    assert phases[STEP, "train"] == phases[STEP, WAIT] == set(range(7))
    assert phases["sampler 0", "sample"] | phases["sampler 1", "sample"] == set(range(7))
    assert phases["sampler 0", "gather"] == {0, 2, 4, 6}
    assert "timeline" not in model.manifest["summary"]


def test_what_trainers_wait_for_is_what_was_not_hidden() -> None:
    busy = {
        "step": {"update": 1.0},
        "sampler 0": {"sample": 6.0, "wait": 9.0},
        "trainer 0 extract": {"extract": 2.0, "wait": 5.0},
        "trainer 0": {"train": 20.0, "wait": 2.0, "synchronise": 3.0},
    }
    assert hidden_share({"busy_seconds": busy}) == 0.75
    alternating = {"step": {"update": 1.0}, "sampler 0": {"sample": 6.0, "extract": 2.0, "train": 20.0}}
    assert hidden_share({"busy_seconds": alternating}) == 0.0
    switched = busy | {"sampler 0": {"sample": 6.0, "train": 4.0}}
    assert hidden_share({"busy_seconds": switched}) == 0.75
