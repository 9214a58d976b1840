"""Laws 2 and 5 for every technique beside what may go with it: types of numbers, schedules, ways of drawing, an early stop.

The table is recipe x technique, and no cell is left out: what a cell proves is said in `CELLS` (tests/laws/trainings.py), and a recipe that
a technique refuses is refused by `graphmill validate`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assets.sampling.config import FanoutStep, SamplingConfig
from assets.storage.user_code import Reference
from tests import accelerator
from tests.laws.trainings import Case, Recipe, assert_promised
from tests.trainers.runs import WALKS, WEIGHTED
from trainers.recipe.techniques import TECHNIQUES

accelerator.load()  # before any backward pass of this process, see tests/accelerator/conftest.py

STEPS = (FanoutStep(epoch=2, fanouts=(2, 1)), FanoutStep(epoch=3, fanouts=(6, -1)))
CHOSEN = Reference("chosen_by_hand:rare_ones", Path(__file__).parent)
LEARNING: dict[str, Any] = {"optimizer": "adamw", "weight_decay": 0.1, "clip_norm": 0.5, "label_smoothing": 0.1}

RECIPES = {
    "bfloat16": Recipe(table={"model": "gat", "heads": 2, "dtype": "bf16", "norm": "layer", "input": "linear"}),
    "rates": Recipe(table={"lr_schedule": "cosine", "warmup": 1, "class_weights": "balanced", **LEARNING}),
    "fan-outs by epoch": Recipe(
        table={"residual": True},
        sampling=SamplingConfig(fanouts=(4, 3), batch_size=32, schedule=STEPS),
        refused={"disk": "has a schedule"},
    ),
    "drawn by hand": Recipe(
        table={"model": "gin"}, sampling=SamplingConfig(fanouts=(4, 3), batch_size=32, method=CHOSEN)
    ),
    "weighted": Recipe(table={"model": "sage"}, sampling=WEIGHTED),
    "walks": Recipe(table={"model": "pinsage"}, sampling=WALKS),
    "early stop": Recipe(table={"patience": 2, "epochs": 30, "eval_every": 1, "lr": 0.1}),
}


@pytest.fixture(scope="module", params=RECIPES.values(), ids=list(RECIPES))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("case"), request.param)


@pytest.mark.parametrize("trainer", TECHNIQUES)
def test_each_technique_keeps_its_promises(case: Case, trainer: str) -> None:
    assert_promised(case, trainer)
