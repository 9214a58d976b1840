"""A training whose machine is lost goes on on another one, by the checkpoint in the object store."""

from pathlib import Path
from typing import Any

import pytest

from graphmill.assets.storage.remote.checkpoints import is_stored
from graphmill.trainers.loop.checkpoint import Checkpoint, parse_checkpoint
from graphmill.trainers.record.checkpoint_head import waiting_run
from graphmill.trainers.training import training
from tests.trainers.runs import Stops, content, train_small

OPTIONS: dict[str, Any] = {"epochs": 4, "model": "gcn", "checkpoint_steps": 1}


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for homes, with a folder as their object store."""
    monkeypatch.setenv("GRAPHMILL_STORE", (tmp_path / "shared").as_uri())
    return tmp_path


def test_it_ends_with_the_same_bits(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.delenv("GRAPHMILL_STORE")
        straight = train_small(shared / "straight", **OPTIONS)
    with pytest.raises(ConnectionAbortedError):
        train_small(shared / "lost", progress=Stops(9), **OPTIONS)
    (checkpoint,) = (shared / "lost" / "checkpoints").iterdir()
    place = shared / "other" / "checkpoints" / checkpoint.name
    waits = waiting_run(place, checkpoint.stem)
    assert is_stored(place) and not place.exists() and waits is not None
    begun: list[int] = []

    def parse(data: bytes, path: Path, version: str) -> Checkpoint:
        found = parse_checkpoint(data, path, version)
        begun.append(found.state.epoch)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(training, "parse_checkpoint", parse)
        model = train_small(shared / "other", resume=True, **OPTIONS)
    assert begun == [waits.epoch] and 0 < waits.epoch < OPTIONS["epochs"]
    assert content(model) == content(straight) and model.verify() == []
    again = train_small(shared / "lost", resume=True, **OPTIONS)
    assert again.reused and content(again) == content(straight)


def test_without_resume_it_starts_over_and_names_the_checkpoint_of_the_other(shared: Path) -> None:
    with pytest.raises(ConnectionAbortedError):
        train_small(shared / "lost", progress=Stops(9), **(OPTIONS | {"lr_schedule": "cosine"}))
    lines: list[str] = []
    model = train_small(shared / "other", report=lines.append, **(OPTIONS | {"lr_schedule": "cosine"}))
    assert any(
        "starts over; --resume would go on from" in line and "of the object store, which stays" in line
        for line in lines
    )
    assert not is_stored(shared / "lost" / "checkpoints" / f"{model.version}.safetensors"), "it went with the model"
