"""Scores of predicted numbers, and the standardised scale in which models compute them; NumPy alone.

Metrics are scikit-learn's means over targets (`uniform_average`), of the known numbers of each.
"""

from __future__ import annotations

import numpy as np

from graphmill.assets.graph.read import Graph
from graphmill.kernels.types import Array
from graphmill.trainers.record.column_scores import SCORES, ColumnCounts


def standard(graph: Graph) -> tuple[Array, Array]:
    """Returns float64[T] each, mean and deviation of the training seeds' known numbers; the deviation of a constant is 1."""
    labels = graph.split_labels("train").astype(np.float64)
    mean, deviation = np.nanmean(labels, axis=0), np.nanstd(labels, axis=0)
    return mean, np.where(deviation > 0, deviation, 1.0)


def in_units(logits: Array, mean: Array, deviation: Array) -> Array:
    """Returns float64[n, T], the outputs of a model in the unit of the targets."""
    return logits.astype(np.float64) * deviation + mean


def error_score(metric: str, answers: Array, labels: Array) -> float | None:
    """Returns the mean over targets of a metric of their known numbers; None if there is none.

    R2 of a constant target is 1 if the answers are right and 0 otherwise, as scikit-learn has it.

    Args:
        answers: float64[n, T]; labels: f32[n, T], NaN unknown.
    """
    found = of_targets(metric, answers, labels)
    found = found[~np.isnan(found)]
    return float(np.mean(found)) if len(found) else None


def of_targets(metric: str, answers: Array, labels: Array) -> Array:
    """Returns f64[T], a metric of each target; NaN if none of its numbers is known. Arguments as in `error_score`."""
    found = np.full(labels.shape[1], np.nan)
    for column in range(labels.shape[1]):
        known = ~np.isnan(labels[:, column])
        if known.any():
            found[column] = _of_target(metric, answers[known, column], labels[known, column].astype(np.float64))
    return found


def scores_by_target(answers: Array, labels: Array) -> ColumnCounts:
    """Returns the scores of each target, errors above 0 and in its unit. Arguments as in `error_score`."""
    known = (~np.isnan(labels)).sum(axis=0)
    scores = {"r2": of_targets("r2", answers, labels)[None]}
    scores |= {name: -of_targets(f"neg_{name}", answers, labels)[None] for name in SCORES["regression"][1:]}
    return ColumnCounts(nodes=known, known=known, scores=scores)


def _of_target(metric: str, answers: Array, numbers: Array) -> float:
    error = answers - numbers
    if metric == "neg_mean_absolute_error":
        return -float(np.abs(error).mean())
    if metric == "neg_root_mean_squared_error":
        return -float(np.sqrt(np.square(error).mean()))
    left, whole = float(np.square(error).sum()), float(np.square(numbers - numbers.mean()).sum())
    return 1 - left / whole if whole else float(left == 0)
