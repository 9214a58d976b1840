"""Scores of logits: the metrics that a training may maximise, by the names that scikit-learn gives them; NumPy alone.

Those of classes are here, and those of other kinds in files of their own beside this one. All but the area under the ROC curve follow from
three counts per class: nodes of the class, nodes that were given it, and those for which both is true. A class that no node has and that
none was given enters no mean, as in scikit-learn's report; `balanced_accuracy` is the mean over the classes that some node has.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from graphmill.assets.tasks.labels import OF_LABEL, Kind
from graphmill.kernels.types import Array

Metric = Literal[
    "accuracy", "balanced_accuracy", "f1_macro", "f1_micro", "f1_weighted", "precision_macro", "recall_macro", "roc_auc",
    "average_precision", "r2", "neg_mean_absolute_error", "neg_root_mean_squared_error", "mrr", "hits@10", "auc", "ap",
    "recall@10", "recall@20", "ndcg@10", "ndcg@20", "hit@10", "hit@20",
]  # fmt: skip
METRICS: dict[str, str] = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "f1_macro": "macro F1",
    "f1_micro": "micro F1",
    "f1_weighted": "weighted F1",
    "precision_macro": "macro precision",
    "recall_macro": "macro recall",
    "roc_auc": "ROC AUC",
    "average_precision": "average precision",
    "r2": "R2",
    "neg_mean_absolute_error": "negative mean absolute error",
    "neg_root_mean_squared_error": "negative root mean squared error",
    "mrr": "mean reciprocal rank",
    "hits@10": "hits at 10",
    "auc": "AUC of pairs",
    "ap": "average precision of pairs",
    "recall@10": "recall at 10",
    "recall@20": "recall at 20",
    "ndcg@10": "nDCG at 10",
    "ndcg@20": "nDCG at 20",
    "hit@10": "nodes with a hit in 10",
    "hit@20": "nodes with a hit in 20",
}
"""Metric -> its name in a sentence."""
ERRORS: dict[str, str] = {"mae": "mean absolute error", "rmse": "root mean squared error"}
"""Error of numbers that stands beside the metrics -> its name in a sentence."""
METRICS_OF: dict[Kind, tuple[Metric, ...]] = {
    "classes": (
        "accuracy", "balanced_accuracy", "f1_macro", "f1_micro", "f1_weighted", "precision_macro", "recall_macro", "roc_auc",
    ),
    "multilabel": ("f1_micro", "f1_macro", "average_precision", "roc_auc"),
    "regression": ("r2", "neg_mean_absolute_error", "neg_root_mean_squared_error"),
    "links": ("mrr", "hits@10", "auc", "ap", "recall@10", "recall@20", "ndcg@10", "ndcg@20", "hit@10", "hit@20"),
}  # fmt: skip
METRICS_OF |= {kind: METRICS_OF[of] for kind, of in OF_LABEL.items()}
"""Kind of task -> its metrics, the first of which a train table has that names none."""


def percent(metric: str) -> bool:
    """Returns whether a metric is a share, shown in percent; the others have the unit of the numbers that a node has."""
    return not metric.startswith("neg_") and metric not in ERRORS


def scale(metric: str) -> int:
    """Returns the factor with which a metric is shown."""
    return 100 if percent(metric) else 1


def loss_unit(metric: str) -> str:
    """Returns the unit of the loss of a training with a metric, after the word; "" for errors of numbers and for links."""
    return "" if metric in (*METRICS_OF["regression"], *METRICS_OF["links"]) else ", nats"


def named(metrics: Iterable[str]) -> str:
    """Returns the names of metrics for an axis, with the unit if they share it."""
    known = dict.fromkeys(metrics)
    unit = ", %" if all(map(percent, known)) else ""
    return ", ".join(dict.fromkeys(METRICS.get(each, each) for each in known)) + unit


def shown(metric: str, value: float, digits: int = 2) -> str:
    """Returns a score in words: a share in percent, or a number with its four leading digits."""
    return f"{bare(metric, value, digits)} %" if percent(metric) else bare(metric, value)


def bare(metric: str, value: float, digits: int = 2) -> str:
    """Returns a score as `shown` does, without the sign of percent."""
    return f"{100 * value:.{digits}f}" if percent(metric) else f"{value:.4g}"


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassTotals:
    """Counts of classified nodes per class."""

    # Nodes of a class that were given it, i64[C].
    right: Array = field(repr=False)
    # Nodes of a class, i64[C].
    support: Array = field(repr=False)
    # Nodes that were given a class, i64[C].
    predicted: Array = field(repr=False)

    @property
    def precision(self) -> Array:
        """f64[C], share of the nodes given a class that have it; 0 if no node was given it."""
        return _ratio(self.right, self.predicted)

    @property
    def recall(self) -> Array:
        """f64[C], share of the nodes of a class that were given it; 0 if no node has it."""
        return _ratio(self.right, self.support)

    @property
    def f1(self) -> Array:
        """f64[C], harmonic mean of precision and recall; 0 if both are."""
        return _ratio(2 * self.right, self.support + self.predicted)

    @property
    def occurs(self) -> Array:
        """bool[C], whether a node has a class or was given it."""
        return (self.support + self.predicted) > 0

    @property
    def accuracy(self) -> float:
        """Share of the nodes that were given their class."""
        return float(self.right.sum() / self.support.sum())

    def mean(self, values: Array, average: str) -> float:
        """Returns the mean over classes of `precision`, `recall` or `f1`.

        Args:
            average: "macro" = each class that occurs counts once; "weighted" = by its number of nodes; "micro" = the accuracy, which is the
                value of all classes together.
        """
        if average == "micro":
            return self.accuracy
        if average == "weighted":
            return float((values * self.support).sum() / self.support.sum())
        return float(values[self.occurs].mean())

    def score(self, metric: str) -> float:
        """Returns a metric other than the area under the ROC curve."""
        if metric == "accuracy":
            return self.accuracy
        if metric == "balanced_accuracy":
            return float(self.recall[self.support > 0].mean())
        values, _, average = metric.partition("_")
        return self.mean(getattr(self, values), average)


def class_totals(predicted: Array, labels: Array, num_classes: int) -> ClassTotals:
    """Counts nodes per class, by int[n], the class that each node was given, and the one that it has."""
    found = {"support": labels, "predicted": predicted, "right": labels[predicted == labels]}
    return ClassTotals(**{name: np.bincount(each, minlength=num_classes) for name, each in found.items()})


def same_answer(labels: Array, num_classes: int) -> tuple[int, ClassTotals]:
    """Returns the class that most of n > 0 nodes have, by int[n], and the counts if each node were given it."""
    support = np.bincount(labels, minlength=num_classes)
    largest = int(support.argmax())
    chosen = np.arange(len(support)) == largest
    return largest, ClassTotals(right=support * chosen, support=support, predicted=len(labels) * chosen)


def roc_auc(logits: Array, labels: Array) -> float | None:
    """Returns the area under the ROC curve: how often a row of a class is scored above a row of another one, ties half.

    With two classes the score is the difference of the logits. With more it is the mean over classes of one against the rest, by the
    class's probability; classes that no row has, or that all rows have, are left out.

    Args:
        logits: float[n, num_classes].
        labels: int[n].

    Returns:
        A value in [0, 1]; None if only one class occurs.
    """
    values = logits.astype(np.float64)
    if values.shape[1] == 2:
        return area(values[:, 1] - values[:, 0], labels == 1)
    power = np.exp(values - values.max(axis=1, keepdims=True))
    shares = power / power.sum(axis=1, keepdims=True)
    areas = [area(shares[:, c], labels == c) for c in range(values.shape[1])]
    known = [each for each in areas if each is not None]
    return float(np.mean(known)) if known else None


def score(metric: str, logits: Array, labels: Array) -> float | None:
    """Returns a train table's metric, None if it is not defined (see `roc_auc`).

    A node is given the class of its largest logit; ties go to the lowest class.

    Args:
        logits: float[n, num_classes].
        labels: int[n], at least one.
    """
    if metric == "roc_auc":
        return roc_auc(logits, labels)
    predicted = logits.argmax(axis=1)
    if metric == "accuracy":
        return float((predicted == labels).mean())
    return class_totals(predicted, labels, logits.shape[1]).score(metric)


def answer_sums(kind: str, outputs: Array) -> Array:
    """Returns f64[C]: how often outputs float[n, C] answer each class, or each of several labels; of numbers the sums of the outputs."""
    if kind == "classes":
        return np.bincount(outputs.argmax(axis=1), minlength=outputs.shape[1]).astype(np.float64)
    return (outputs >= 0 if kind == "multilabel" else outputs).sum(axis=0, dtype=np.float64)


def _ratio(counts: Array, of: Array) -> Array:
    """Returns float64[C], the shares of counts, int[C] each; 0 of 0."""
    return np.divide(counts, of, out=np.zeros(len(of)), where=of > 0)


def area(scores: Array, positive: Array) -> float | None:
    """Returns the rank-sum statistic of float[n] over the number of pairs of bool[n] (Mann and Whitney); None if only one class occurs."""
    num_positive = int(positive.sum())
    num_pairs = num_positive * (len(scores) - num_positive)
    if num_pairs == 0:
        return None
    _, group, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    middle_rank = last - (counts - 1) / 2  # equal scores share the mean of their ranks
    rank_sum = float(middle_rank[group][positive].sum())
    return (rank_sum - num_positive * (num_positive + 1) / 2) / num_pairs
