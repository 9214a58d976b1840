"""Short epochs share a checkpoint: writing them takes a small share of a training, and a resumed one ends with the same bits."""

from pathlib import Path
from typing import Any

import pytest

from graphmill.trainers.loop import loop
from graphmill.trainers.loop.checkpoint import Checkpoint, write_checkpoint
from tests.trainers.runs import content, train_small

EPOCHS = 6


class Stopped(Exception):
    """Ends a training."""


class Saves:
    """Counts the checkpoints of a training, by the epochs that were over, on a clock of its own.

    Args:
        monkeypatch: puts it into the loop.
        epoch_seconds, saving_seconds: how long an epoch and a checkpoint take on the clock.
        stop_after: number of epochs after which the training is stopped; 0 = never.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        epoch_seconds: float = 0,
        saving_seconds: float = 0,
        stop_after: int = 0,
    ):
        self.now, self.epochs, self.saving_seconds = 0.0, [], saving_seconds
        finish = loop.Loop._finish_epoch

        def finished(this: loop.Loop) -> None:
            self.now += epoch_seconds
            finish(this)
            if this.state.epoch == stop_after:
                raise Stopped

        monkeypatch.setattr(loop.Loop, "_finish_epoch", finished)
        monkeypatch.setattr(loop, "write_checkpoint", self.write)
        monkeypatch.setattr(loop.time, "monotonic", lambda: self.now)

    def write(self, path: Path, checkpoint: Checkpoint) -> None:
        """Writes a checkpoint, which takes its time."""
        self.epochs.append(checkpoint.state.epoch)
        self.now += self.saving_seconds
        write_checkpoint(path, checkpoint)


@pytest.mark.parametrize(
    ("epoch_seconds", "saving_seconds", "saved"),
    [
        (100, 1, [1, 2, 3, 4, 5, 6]),
        (20, 1, [1, 2, 3, 4, 5, 6]),
        (10, 1, [1, 3, 5, 6]),
        (0.1, 1, [1, 6]),
    ],
)
def test_the_first_and_the_last_epoch_leave_one_and_others_where_they_take_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epoch_seconds: float, saving_seconds: float, saved: list[int]
) -> None:
    saves = Saves(monkeypatch, epoch_seconds, saving_seconds)
    train_small(tmp_path, epochs=EPOCHS)
    assert saves.epochs == saved


def test_a_training_that_was_stopped_far_from_its_checkpoint_ends_with_the_same_bits(tmp_path: Path) -> None:
    options: dict[str, Any] = {"epochs": EPOCHS, "model": "gcn"}
    straight = train_small(tmp_path / "straight", **options)
    with pytest.MonkeyPatch.context() as patched:
        saves = Saves(patched, 0.1, 1, stop_after=4)
        with pytest.raises(Stopped):
            train_small(tmp_path / "stopped", **options)
        assert saves.epochs == [1]
    assert content(train_small(tmp_path / "stopped", resume=True, **options)) == content(straight)
