"""The score stage, as pipelines and pages know it; without torch, which its build loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphmill.assets.building.stage import Building, Stage, Summary
from graphmill.assets.costs.needs import require_free
from graphmill.assets.score import SCORE, ScoreTable
from graphmill.trainers.inference.scoring.page import ANSWERS_ALIKE, EVERY_NODE, FEATURES_ALIKE, SCORE_PAGE
from graphmill.trainers.recipe.costs.memory import prediction_need


@dataclass(frozen=True, kw_only=True)
class ScoreExecution:
    """Execution config of the stage, without settings."""


class ScoreStage(Stage):
    """Predicts a graph by a model that was trained on another one.

    Args:
        sampled: stages besides graph and features from which neighbours are drawn.
    """

    page = SCORE_PAGE
    name = SCORE
    code_version = 1
    table = SCORE
    Semantic = Table = ScoreTable
    Execution = ScoreExecution
    says: Mapping[str, str] = {
        EVERY_NODE: "The file has a row for each node that is asked for.",
        FEATURES_ALIKE: "The mean of each feature column is at most `most_mean_shift` deviations from that of the training, and its "
        "deviation differs by a factor of at most `most_deviation_factor`.",
        ANSWERS_ALIKE: "At most the share `most_class_shift` of the answers is of other classes than in the training; the mean of a "
        "predicted number is at most `most_mean_shift` deviations away.",
    }
    warnings = (FEATURES_ALIKE, ANSWERS_ALIKE)

    def __init__(self, sampled: Sequence[str] = ()):
        self.roles = {name: name for name in ("graph", "features", "model", *sampled)}

    def inputs(self, semantic: ScoreTable) -> Mapping[str, str]:
        """Returns graph, features and model, and what neighbours are drawn from."""
        return self.roles

    def sentence(self, semantic: ScoreTable) -> str:
        """Returns the model, and how its neighbours are found."""
        how = "all neighbours" if semantic.eval == "exact" else "drawn neighbours"
        return f"Predictions by the model `{semantic.model}`, from {how}."

    def build(self, building: Building[ScoreTable, Any]) -> Summary:
        """Writes the predictions and compares the data with those of the training.

        Raises:
            InputError: the graph does not fit the model, the data of its training are gone, or the disk is full.
        """
        require_free(prediction_need(1))  # before torch is loaded, whose libraries are most of it
        from graphmill.trainers.inference.scoring.build import build_score

        return build_score(building)
