"""A training that begins anew, and is stopped before it has come as far as the checkpoint of its recipe, leaves that one."""

from pathlib import Path
from typing import Any

import pytest

from graphmill.trainers.record.checkpoint_head import waiting_here, waiting_run
from tests.trainers.runs import Stops, content, train_small

OPTIONS: dict[str, Any] = {"epochs": 4, "model": "gcn", "checkpoint_steps": 1}


def stopped(home: Path, count: int) -> tuple[int, int]:
    """Begins anew and stops at a count of batches; returns the position of the checkpoint that is there then."""
    with pytest.raises(ConnectionAbortedError):
        train_small(home, progress=Stops(count), **OPTIONS)
    (path,) = (home / "checkpoints").glob("*.safetensors")
    waits = waiting_run(path, path.stem)
    assert waits is not None
    return waits.epoch, waits.position


def test_the_further_checkpoint_stays_whatever_begins_anew(tmp_path: Path) -> None:
    reached = stopped(tmp_path / "home", 5)
    for count in (4, 2, 3):
        assert stopped(tmp_path / f"alone{count}", count) < reached == stopped(tmp_path / "home", count)
    assert stopped(tmp_path / "home", 10) > reached
    resumed = train_small(tmp_path / "home", resume=True, **OPTIONS)
    assert content(resumed) == content(train_small(tmp_path / "straight", **OPTIONS))


def test_the_further_checkpoint_of_the_object_store_stays_likewise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHMILL_STORE", (tmp_path / "shared").as_uri())
    reached = stopped(tmp_path / "first", 5)
    (stored,) = (tmp_path / "shared" / "checkpoints").iterdir()
    sent = stored.read_bytes()
    for count in (4, 2, 3):
        home = tmp_path / f"home{count}"
        assert stopped(home, count) == reached and stored.read_bytes() == sent
        own = waiting_here(home / "checkpoints" / stored.name, stored.stem)
        assert own is not None and (own.epoch, own.position) < reached
    assert stopped(tmp_path / "further", 10) > reached and stored.read_bytes() != sent
    resumed = train_small(tmp_path / "other", resume=True, **OPTIONS)
    monkeypatch.delenv("GRAPHMILL_STORE")
    assert content(resumed) == content(train_small(tmp_path / "straight", **OPTIONS))


def test_a_training_that_ends_leaves_the_checkpoint_of_its_end(tmp_path: Path) -> None:
    stopped(tmp_path / "home", 10)
    model, straight = (train_small(tmp_path / name, **OPTIONS) for name in ("home", "straight"))
    assert content(model) == content(straight)
    left = [sorted(path.name for path in (tmp_path / name / "checkpoints").iterdir()) for name in ("home", "straight")]
    assert left[0] == left[1]
