"""Laws 1, 2 and 5 for every technique and kind of task: equal bits wherever classes have them, and one place that knows the kinds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphmill.assets.sampling.config import SamplingConfig
from graphmill.trainers.recipe.techniques import TECHNIQUES
from tests.laws.trainings import Case, Recipe, assert_promised, case_of

RECIPES = {
    "several labels": Recipe(table={"metric": "f1_micro", "pos_weight": "balanced"}, labels="multilabel"),
    "numbers": Recipe(table={"model": "gcn", "metric": "r2", "error": "huber"}, labels="regression"),
    "links": Recipe(
        table={"metric": "auc", "layers": 3, "dropout": 0.2, "link_head": "mlp", "row_penalty": 0.1},
        sampling=SamplingConfig(fanouts=(3, 3, 2), batch_size=320, per_positive=2),
        labels="links",
        refused={"fullgraph": "exclude_targets = true, but .* passes messages over all edges"},
    ),
    "links among their own edges": Recipe(
        table={
            "model": "gcn",
            "maps": False,
            "residual": True,
            "input": "linear",
            "metric": "auc",
            "exclude_targets": False,
            "head": "linear",
            "link_head": "bilinear",
        },
        sampling=SamplingConfig(fanouts=(4, 3), batch_size=320),
        labels="links",
    ),
    "classes of edges": Recipe(
        table={
            "model": "gcn",
            "metric": "accuracy",
            "link_head": "product",
            "row_penalty": 0.01,
            "class_weights": "balanced",
            "exclude_targets": False,
        },
        sampling=SamplingConfig(fanouts=(4, 3), batch_size=320),
        labels="edge_classes",
    ),
    "numbers of edges": Recipe(
        table={"metric": "r2", "link_head": "label", "error": "huber", "layers": 3, "dropout": 0.2},
        sampling=SamplingConfig(fanouts=(3, 3, 2), batch_size=320),
        labels="edge_regression",
        refused={"fullgraph": "exclude_targets = true, but .* passes messages over all edges"},
    ),
}
"""Kind of task -> a recipe of it; of edges each technique trains one, or refuses it by a key."""

case = case_of(RECIPES)

LAYER = Path(__file__).parents[2] / "trainers"
ROOMS = ("batches", "loop", "rows", "techniques", "training", "ranks", "devices", "inference")
OF_CLASSES = re.compile(r"cross_entropy|\bargmax\(|ClassScores|count_classes|class_weights|label_smoothing|same_answer")
MEASURED = "training/speeds.py"
"""Times steps on labels that are made up, whatever the task."""


@pytest.mark.parametrize("trainer", TECHNIQUES)
def test_each_technique_keeps_its_promises_for_each_kind(case: Case, trainer: str) -> None:
    assert_promised(case, trainer)


def test_the_loop_and_the_techniques_name_no_kind_of_task() -> None:
    """Losses, metrics and answers of a kind are in trainers/tasks, trainers/models/loss.py and trainers/record."""
    files = [path for room in ROOMS for path in (LAYER / room).rglob("*.py")]
    assert len(files) > 50
    named = {
        path.relative_to(LAYER).as_posix(): found
        for path in files
        if (found := OF_CLASSES.findall(path.read_text())) and not path.match(MEASURED)
    }
    assert named == {}


def test_the_law_sees_a_class() -> None:
    assert OF_CLASSES.search("functional.cross_entropy(logits, labels)") and OF_CLASSES.search("logits.argmax(axis=1)")
