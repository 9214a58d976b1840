"""Scores of several labels per node, as scikit-learn has them for label matrices; NumPy alone.

Known values alone count. F1 is over all labels together ("micro") or the mean over labels ("macro", 0 for a label that no node has and none
was given); a label is given if its logit is above 0. Average precision and the area under the ROC curve are means over the labels of which
some node has one, and for the area some node has none.
"""

from __future__ import annotations

import numpy as np

from graphmill.kernels.types import Array
from graphmill.trainers.record.column_scores import ColumnCounts
from graphmill.trainers.record.scores import ClassTotals, area


def label_score(metric: str, logits: Array, labels: Array) -> float | None:
    """Returns a metric of logits, float[n, C], and labels, i8[n, C] with -1 for unknown; None if no label defines it."""
    if metric in ("f1_micro", "f1_macro"):
        return float(_counts(logits, labels, axis=None if metric == "f1_micro" else 0).f1.mean())
    values = of_labels(metric, logits, labels)
    values = values[~np.isnan(values)]
    return float(np.mean(values)) if len(values) else None


def of_labels(metric: str, logits: Array, labels: Array) -> Array:
    """Returns f64[C], a score of each label: "roc_auc" or "average_precision", NaN if the nodes do not define it."""
    of_label = area if metric == "roc_auc" else average_precision
    found = np.full(labels.shape[1], np.nan)
    for column in range(labels.shape[1]):
        known = labels[:, column] >= 0
        value = of_label(logits[known, column], labels[known, column] > 0)
        found[column] = np.nan if value is None else value
    return found


def scores_by_label(logits: Array, labels: Array) -> ColumnCounts:
    """Returns the scores of each label, as `label_score` takes them; precision, recall and F1 are 0 where scikit-learn has them so."""
    counts = _counts(logits, labels)
    scores = {"precision": counts.precision, "recall": counts.recall, "f1": counts.f1}
    scores |= {metric: of_labels(metric, logits, labels) for metric in ("average_precision", "roc_auc")}
    return ColumnCounts(
        nodes=counts.support,
        known=(labels >= 0).sum(axis=0),
        scores={name: values[None] for name, values in scores.items()},
    )


def _counts(logits: Array, labels: Array, axis: int | None = 0) -> ClassTotals:
    """Returns the counts of the nodes with a label and of those that were given it, of each label, or of all with `axis` None."""
    given, known = logits > 0, labels >= 0
    found = {"right": given & (labels > 0), "support": labels > 0, "predicted": given}
    return ClassTotals(**{name: np.atleast_1d((each & known).sum(axis=axis)) for name, each in found.items()})


def average_precision(scores: Array, positive: Array) -> float | None:
    """Returns the sum over thresholds of float[n] of the precision times the recall that each adds; None if none of bool[n] is positive."""
    if not positive.any():
        return None
    order = np.argsort(-scores, kind="stable")
    right = np.cumsum(positive[order])
    # Equal scores are given together.
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    recall = right[last] / right[-1]
    return float((np.diff(recall, prepend=0.0) * right[last] / (last + 1)).sum())
