"""How far the answers of a model are from those of its training; trainers/inference/scoring/__init__.py says what is compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphmill.assets.building.stage import Check
from graphmill.assets.graph.read import Graph
from graphmill.assets.score import ScoreTable
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.types import Array
from graphmill.trainers.inference.scoring.page import ANSWERS_ALIKE
from graphmill.trainers.record.class_scores import read_scores
from graphmill.trainers.record.column_scores import read_columns
from graphmill.trainers.record.scores import answer_sums

MOST_SHOWN = 100
"""Classes, labels or targets that are stored with their shares; those that differ most."""


class AnswerDrift:
    """Counts the answers of a model as they are computed.

    Args:
        model: the model, whose artifact has the counts of its training.
    """

    def __init__(self, model: Artifact, graph: Graph):
        self.kind, self.names = graph.task, [*graph.class_names] or [*map(str, range(graph.num_classes))]
        self.trained = _training_shares(model, self.kind, len(self.names))
        self.sums, self.count = np.zeros(len(self.names)), 0

    def add(self, outputs: Array) -> None:
        """Adds the answers of some nodes, given the model's outputs float[n, C]."""
        if self.trained is None:
            return
        self.count += len(outputs)
        self.sums += answer_sums(self.kind, outputs)

    def check(self, table: ScoreTable) -> tuple[dict[str, Any], Check]:
        """Returns the numbers of the drift of answers, and the check of it."""
        if self.trained is None or not self.count:
            detail = (
                "nothing is known of the answers in the training" if self.trained is None else "no node is predicted"
            )
            return {}, Check(name=ANSWERS_ALIKE, passed=True, detail=f"not compared: {detail}", blocking=False)
        shares = self.sums / self.count
        apart = np.abs(shares - self.trained)
        shift = float(apart.sum() / 2 if self.kind == "classes" else apart.max())
        order = np.argsort(-apart, kind="stable")[:MOST_SHOWN]
        rows = [
            {"answer": self.names[each], "now": float(shares[each]), "training": float(self.trained[each])}
            for each in order
        ]
        of_numbers = self.kind == "regression"
        name, bound = ("answer_shift", table.most_mean_shift) if of_numbers else ("moved_share", table.most_class_shift)
        first = "; ".join("{answer}: {now:.3g}, in the training {training:.3g}".format(**each) for each in rows[:3])
        numbers = {"distance": shift, "bound": bound}
        check = Check(name=ANSWERS_ALIKE, passed=shift <= bound, detail=first, numbers=numbers, blocking=False)
        return {name: shift, "answers": rows}, check


def _training_shares(model: Artifact, kind: str, width: int) -> Array | None:
    """Returns f64[C], what answers are compared with; None if the model has recorded nothing.

    Of classes the shares of its answers, of several labels the shares of nodes that have them, both for the split that tells most of unseen
    nodes. The outputs of a model of numbers are standardised: 0.
    """
    if kind == "regression":
        return np.zeros(width)
    if kind == "classes" and (scores := read_scores(model)) is not None:
        predicted = scores.splits[scores.shown_split].predicted
        return predicted / max(1, predicted.sum())
    if kind == "multilabel" and (labels := read_columns(model)) is not None:
        counts = labels.splits[labels.shown_split]
        return counts.nodes / np.maximum(1, counts.known)
    return None
