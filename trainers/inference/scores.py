"""Scores of logits: accuracy, and area under the ROC curve."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from graphmill.kernels.types import Array


def accuracy(logits: Tensor, labels: Array) -> float:
    """Returns the share of rows whose largest logit is the label; ties go to the lowest class."""
    return float((logits.numpy().argmax(axis=1) == labels).mean())


def roc_auc(logits: Tensor, labels: Array) -> float | None:
    """Returns the area under the ROC curve: how often a row of a class is scored above a row of another one, ties half.

    With two classes the score is the difference of the logits. With more it is the mean over classes of one against the rest, by the
    class's probability; classes that no row has, or that all rows have, are left out.

    Args:
        logits: f32[n, num_classes].
        labels: int[n].

    Returns:
        A value in [0, 1]; None if only one class occurs.
    """
    values = logits.numpy().astype(np.float64)
    if values.shape[1] == 2:
        return _area(values[:, 1] - values[:, 0], labels == 1)
    power = np.exp(values - values.max(axis=1, keepdims=True))
    shares = power / power.sum(axis=1, keepdims=True)
    areas = [_area(shares[:, c], labels == c) for c in range(values.shape[1])]
    known = [area for area in areas if area is not None]
    return float(np.mean(known)) if known else None


def score(metric: str, logits: Tensor, labels: Array) -> float | None:
    """Returns a train table's metric, None if it is not defined (see `roc_auc`)."""
    return accuracy(logits, labels) if metric == "accuracy" else roc_auc(logits, labels)


def _area(scores: Array, positive: Array) -> float | None:
    """The rank-sum statistic of Mann and Whitney over the number of pairs."""
    num_positive = int(positive.sum())
    num_pairs = num_positive * (len(scores) - num_positive)
    if num_pairs == 0:
        return None
    _, group, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    middle_rank = last - (counts - 1) / 2  # equal scores share the mean of their ranks
    rank_sum = float(middle_rank[group][positive].sum())
    return (rank_sum - num_positive * (num_positive + 1) / 2) / num_pairs
