"""Scores of several labels per node, as scikit-learn has them for label matrices; NumPy alone.

Known values alone count. F1 is over all labels together ("micro") or the mean over labels ("macro", 0 for a label that no node has and none
was given); a label is given if its logit is above 0. Average precision and the area under the ROC curve are means over the labels of which
some node has one, and for the area some node has none.
"""

from __future__ import annotations

import numpy as np

from graphmill.kernels.types import Array
from graphmill.trainers.record.scores import area


def label_score(metric: str, logits: Array, labels: Array) -> float | None:
    """Returns a metric of several labels; None if no label defines it.

    Args:
        logits: float[n, C]; labels: i8[n, C], -1 unknown.
    """
    if metric in ("f1_micro", "f1_macro"):
        given, known = logits > 0, labels >= 0
        right, have, answered = ((each & known).sum(axis=0) for each in (given & (labels > 0), labels > 0, given))
        if metric == "f1_micro":
            right, have, answered = (each.sum(keepdims=True) for each in (right, have, answered))
        total = have + answered
        return float(np.divide(2 * right, total, out=np.zeros(len(total)), where=total > 0).mean())
    of_label = area if metric == "roc_auc" else average_precision
    found = []
    for column in range(labels.shape[1]):
        known = labels[:, column] >= 0
        found.append(of_label(logits[known, column], labels[known, column] > 0))
    values = [each for each in found if each is not None]
    return float(np.mean(values)) if values else None


def average_precision(scores: Array, positive: Array) -> float | None:
    """Returns the sum over thresholds of the precision times the recall that each adds; None if no node is positive.

    Args:
        scores: float[n]; positive: bool[n].
    """
    if not positive.any():
        return None
    order = np.argsort(-scores, kind="stable")
    right = np.cumsum(positive[order])
    # Equal scores are given together.
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    recall = right[last] / right[-1]
    return float((np.diff(recall, prepend=0.0) * right[last] / (last + 1)).sum())
