"""Several labels per node: binary cross entropy. A label is given if its probability is above one half."""

from __future__ import annotations

import numpy as np
import torch

from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array
from graphmill.trainers.models.loss import BinaryCrossEntropy
from graphmill.trainers.models.products import kept_dtype
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.record.column_scores import ColumnScores, label_score, scores_by_label
from graphmill.trainers.tasks.task import Scored, TrainingTask


class SeveralLabels(TrainingTask):
    """The labels of a node, each by the sign of its logit."""

    kind = "multilabel"

    def loss(self, train: TrainConfig) -> BinaryCrossEntropy:
        """Returns the binary cross entropy with the table's factors of the labels that nodes have."""
        weights, dtype = self._pos_weight(train), getattr(torch, kept_dtype(train.dtype))
        return BinaryCrossEntropy(None if weights is None else torch.from_numpy(weights).to(dtype))

    def _pos_weight(self, train: TrainConfig) -> Array | None:
        """Returns float64[C], or None; raises InputError if the list of the table has another length."""
        given = train.pos_weight
        if given == "none":
            return None
        if given == "balanced":
            labels = self.graph.split_labels("train")
            have, lack = ((labels == value).sum(axis=0) for value in (1, 0))
            return np.where(have > 0, lack / np.maximum(have, 1), 1.0)
        if len(given) != len(self.names):
            problem = f"pos_weight = {list(given)} has {len(given)} entries"
            raise InputError(problem, f"give one for each of the {len(self.names)} labels: {', '.join(self.names)}")
        return np.array(given, np.float64)

    def score(self, metric: str, logits: Array, labels: Array) -> float | None:
        """Returns a metric; None if no label defines it."""
        return label_score(metric, logits, labels)

    def chance(self, metric: str, labels: Array) -> tuple[float, str]:
        """Returns the score of the most frequent label; of metrics over all thresholds that of scores drawn at random."""
        have, known = (labels > 0).sum(axis=0), (labels >= 0).sum(axis=0)
        if metric == "roc_auc":
            return 0.5, "what scores drawn at random reach"
        if metric == "average_precision":
            return float(
                (have[have > 0] / known[have > 0]).mean()
            ) if have.any() else 0.0, "what scores drawn at random reach"
        largest = int(have.argmax())
        answers = np.where(np.arange(len(have)) == largest, 1.0, -1.0)
        found = label_score(metric, np.broadcast_to(answers, labels.shape), labels)
        return found or 0.0, f"what the answer {self.names[largest]} for each of {len(labels):,} nodes reaches"

    def numbers(self, metric: str, scored: Scored) -> dict[str, float]:
        """Returns, beside the table's metric, F1 over all labels and its mean over labels."""
        return super().numbers("f1_macro", scored) | super().numbers(metric, scored)

    def require(self, train: TrainConfig) -> None:
        """Refuses metrics of other kinds, and one that no label of the validation nodes defines."""
        super().require(train)
        labels = self.graph.split_labels("valid")
        if len(labels) and label_score(train.metric, np.zeros(labels.shape), labels) is None:
            problem = f"metric = {train.metric!r}, but each label is that of all validation nodes or of none"
            raise InputError(problem, "give a split with both, or metric = 'f1_micro'")

    def document(self, scored: Scored) -> str:
        """Returns the scores by label."""
        splits = {split: scores_by_label(*each) for split, each in scored.items()}
        return ColumnScores(kind=self.kind, names=self.names, splits=splits).text()
