"""Numbers per node: errors of standardised targets, and metrics in the unit of the data.

A model's outputs are standardised: (number - mean) / deviation, both of the training nodes' known numbers. So one learning rate fits
targets of any size, and none of several targets drowns another.
"""

from __future__ import annotations

import numpy as np
import torch

from graphmill.kernels.types import Array
from graphmill.trainers.models.loss import TargetError
from graphmill.trainers.models.products import kept_dtype
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.record.column_scores import ColumnScores, error_score, in_units, scores_by_target, standard
from graphmill.trainers.tasks.task import Scored, TrainingTask


class TargetNumbers(TrainingTask):
    """The numbers of a node."""

    kind = "regression"
    loss_unit = ""

    def loss(self, train: TrainConfig) -> TargetError:
        """Returns the table's error of the standardised targets."""
        dtype = getattr(torch, kept_dtype(train.dtype))
        mean, deviation = (torch.from_numpy(each).to(dtype) for each in standard(self.graph))
        return TargetError(mean, deviation, "squared" if train.error == "auto" else train.error)

    def score(self, metric: str, logits: Array, labels: Array) -> float | None:
        """Returns a metric of the numbers; None if no number of the nodes is known."""
        return error_score(metric, in_units(logits, *standard(self.graph)), labels)

    def chance(self, metric: str, labels: Array) -> tuple[float, str]:
        """Returns the score of the mean of each target over the nodes."""
        mean = np.nanmean(labels.astype(np.float64), axis=0)
        found = error_score(metric, np.broadcast_to(mean, labels.shape), labels)
        return found or 0.0, f"what the mean of {len(labels):,} {self.seeds} reaches"

    def numbers(self, metric: str, scored: Scored) -> dict[str, float]:
        """Returns, beside the table's metric, R2, the mean absolute error and the root of the mean squared error."""
        found = super().numbers(metric, scored)
        for name, negative in (("mae", "neg_mean_absolute_error"), ("rmse", "neg_root_mean_squared_error")):
            values = {f"{split}_{name}": self.score(negative, *each) for split, each in scored.items()}
            found |= {each: -value for each, value in values.items() if value is not None}
        return found

    def document(self, scored: Scored) -> str:
        """Returns the scores by target, in the unit of each."""
        units = standard(self.graph)
        splits = {
            split: scores_by_target(in_units(logits, *units), labels) for split, (logits, labels) in scored.items()
        }
        return ColumnScores(kind=TargetNumbers.kind, names=self.names, splits=splits).text()
