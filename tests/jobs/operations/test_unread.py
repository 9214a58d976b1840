"""What a file builds and no training of it reads is said."""

from pathlib import Path
from typing import Any

import pytest

from graphmill.assets.pipeline.file import parse_pipeline
from graphmill.jobs.operations.sound import unread_lines
from graphmill.trainers.recipe.config import TrainTable
from tests.recipes import recipe, sbm

SAMPLING: dict[str, Any] = {"fanouts": [3, 2], "batch_size": 32, "reuse": 2}


def lines(train: dict[str, Any], **tables: Any) -> list[str]:
    text = recipe({"name": "x", "hidden": 8} | train, graph=sbm(nodes=200), sampling=SAMPLING, **tables)
    return [*unread_lines(parse_pipeline(Path("mine.toml"), text.encode(), TrainTable))]


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"samples": {}}, ["note: [samples]: samples is built, and no training of this file reads it"]),
        (
            {"partitions": {"parts": 2}},
            ["note: [partitions]: partitions is built, and no training of this file reads it"],
        ),
        ({"hotness": {}}, []),
        ({}, []),
    ],
)
def test_steps_that_no_training_reads_are_noted(tables: dict[str, Any], said: list[str]) -> None:
    assert lines({}, **tables) == said


def test_steps_below_those_that_are_read_are_read() -> None:
    packed: dict[str, Any] = {"samples": {}, "memory": {"disk": "9x"}, "cache_plan": {}}
    assert lines({"trainer": "disk"}, **packed) == []
    (said,) = lines(
        {"trainer": "disk"}, **packed, hotness={}
    )  # the cache plan counts visits of the stored batches itself
    assert said.startswith("note: [hotness]: hotness is built, and no training")
    assert lines({"samples": "stored"}, samples={}) == []
