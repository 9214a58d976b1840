"""More epochs than before: the training goes on from the finished one, and ends with the bits of one from the beginning."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainers.runs import content, train_small

KEYS: dict[str, Any] = {"accumulate": 2, "eval_every": 2}


def longer(folder: Path, epochs: int, **keys: Any) -> tuple[str, list[str]]:
    """Trains with a number of epochs in a home; returns the model's content and the lines that were said."""
    lines: list[str] = []
    model = train_small(folder, epochs=epochs, report=lines.append, **(KEYS | keys))
    assert len(model.file("metrics.jsonl").read_text().splitlines()) == epochs
    return content(model), lines


def went_on(lines: list[str]) -> bool:
    return any("goes on from the model with epochs = " in line for line in lines)


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"warmup": 1, "model": "gat", "heads": 2},
        {"trainer": "factored", "optimizer": "adamw", "weight_decay": 0.1},
        {"optimizer": "sgd", "lr": 0.1, "clip_norm": 0.5, "label_smoothing": 0.1},
        {"optimizer": "sgd", "momentum": 0.9, "aggregator": "max"},
    ],
    ids=str,
)
def test_a_longer_training_goes_on_with_equal_bits(tmp_path: Path, keys: dict[str, Any]) -> None:
    (whole, said) = longer(tmp_path / "whole", 6, **keys)
    assert not went_on(said)
    longer(tmp_path / "short", 2, **keys)
    four, lines = longer(tmp_path / "short", 4, **keys)
    assert went_on(lines) and "epochs = 2" in "".join(lines) and four != whole
    six, lines = longer(tmp_path / "short", 6, **keys)
    assert six == whole and any("epochs = 4" in line for line in lines)


@pytest.mark.parametrize(
    "keys",
    [{"lr_schedule": "cosine"}, {"patience": 3}, {"patience_epochs": 3}, {"eval_every": 0}, {"eval_every": 4}],
    ids=str,
)
def test_a_recipe_whose_first_epochs_depend_on_their_number_begins_anew(tmp_path: Path, keys: dict[str, Any]) -> None:
    longer(tmp_path, 2, **keys)
    assert not list((tmp_path / "checkpoints").glob("*.safetensors")) or keys.get("eval_every") == 4
    assert not went_on(longer(tmp_path, 4, **keys)[1])


def test_another_recipe_begins_anew(tmp_path: Path) -> None:
    longer(tmp_path, 2)
    assert not went_on(longer(tmp_path, 4, lr=0.05)[1])
    assert went_on(longer(tmp_path, 4)[1])


def test_a_model_that_is_trained_again_does_not_take_its_own_end(tmp_path: Path) -> None:
    """The finished checkpoint is of the model that --retrain replaces."""
    first, _ = longer(tmp_path, 2)
    model = train_small(tmp_path, epochs=2, retrain=True, resume=True, **KEYS)
    assert content(model) == first and len(model.run_record()["epoch_seconds"]["train"]) == 2
