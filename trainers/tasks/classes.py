"""A class per node: cross entropy, and the metrics of trainers/record/scores.py."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array
from graphmill.trainers.models.loss import CrossEntropy, class_weights
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.record.class_scores import ClassScores, count_classes
from graphmill.trainers.record.scores import same_answer, score
from graphmill.trainers.tasks.task import Scored, TrainingTask


class Classes(TrainingTask):
    """The class of a node, by the largest logit."""

    kind = "classes"

    def loss(self, train: TrainConfig) -> CrossEntropy:
        """Returns the cross entropy with the table's class weights."""
        return CrossEntropy(class_weights(train, self.graph), train.label_smoothing)

    def score(self, metric: str, logits: Array, labels: Array) -> float | None:
        """Returns a metric; None for the area under the ROC curve of one class."""
        return score(metric, logits, labels)

    def chance(self, metric: str, labels: Array) -> tuple[float, str]:
        """Returns the score of the largest class; of the area under the ROC curve that of a score drawn at random, one half."""
        return class_chance(metric, labels, self.names, self.seeds)

    def require(self, train: TrainConfig) -> None:
        """Refuses metrics of other kinds, and the area under the ROC curve if the validation nodes are of one class."""
        super().require(train)
        labels = self.graph.split_labels("valid")
        if train.metric == "roc_auc" and len(labels) and len(np.unique(labels)) < 2:
            problem = f"metric = 'roc_auc', but the validation {self.seeds} are all of one class"
            raise InputError(problem, "give a split with both, or metric = 'accuracy'")

    def document(self, scored: Scored) -> str:
        """Returns the scores by class (trainers/record/class_scores.py)."""
        counts = {split: count_classes(*each) for split, each in scored.items()}
        return ClassScores(classes=self.names, splits=counts).text()


def class_chance(metric: str, labels: Array, names: Sequence[str], seeds: str = "nodes") -> tuple[float, str]:
    """Returns the score of the largest class of int[n > 0] as the answer for all `seeds`, which have the labels, and the words for it."""
    if metric == "roc_auc":
        return 0.5, "what a score drawn at random reaches"
    largest, totals = same_answer(labels, len(names))
    name = f"class {names[largest]}" if names[largest].isdigit() else names[largest]
    return totals.score(metric), f"what the answer {name} for each of {len(labels):,} {seeds} reaches"
