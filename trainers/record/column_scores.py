"""Scores of a trained model by label or by target: `scores.json` of its artifact, from the final logits of each split.

A model of classes stores counts there (trainers/record/class_scores.py). Areas and errors do not follow from counts that add up. So
each score is stored, a row per model, and several models together have the mean of their rows, as in the leaderboard.

Known values alone count. Scores of several labels are those that scikit-learn has for label matrices: F1 is over all labels together
("micro") or the mean over labels ("macro", 0 for a label that no node has and none was given); a label is given if its logit is above 0.
Average precision and the area under the ROC curve are means over the labels of which some node has one, and for the area some node has
none. Scores of numbers are scikit-learn's means over targets (`uniform_average`), in the unit of the targets; models compute them in a
standardised scale.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import Any

import numpy as np

from graphmill.assets.graph.read import Graph
from graphmill.assets.storage.files.schema import Fields, listed, mapped, maybe, number, one_of, text, whole
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.tasks.labels import COLUMN_WORDS, Kind
from graphmill.kernels.types import Array
from graphmill.trainers.record.class_scores import FILE, joined, shown_split, sound_splits
from graphmill.trainers.record.scores import ClassTotals, area

SCORES: dict[str, tuple[str, ...]] = {
    "multilabel": ("precision", "recall", "f1", "average_precision", "roc_auc"),
    "regression": ("r2", "mean_absolute_error", "root_mean_squared_error"),
}
"""Kind of task -> the scores of a label or target."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ColumnCounts:
    """The scores of the nodes of a split."""

    # Nodes that have the label, or whose number is known, i64[C].
    nodes: Array = field(repr=False)
    # Nodes of which it is known whether they have the label, or whose number is known, i64[C].
    known: Array = field(repr=False)
    # Score -> f64[m, C], a row per model, NaN if it is not defined.
    scores: Mapping[str, Array] = field(repr=False)

    def means(self) -> dict[str, Array]:
        """Returns score -> f64[C], the mean over the models, NaN if it is defined in none."""
        return {name: _mean(values, axis=0) for name, values in self.scores.items()}

    def over_columns(self) -> dict[str, float]:
        """Returns score -> its mean over the labels or targets that define it, and over the models."""
        return {name: float(_mean(values, axis=0)) for name, values in self.means().items()}

    def document(self) -> dict[str, Any]:
        """Returns the values as they are stored; of one model."""
        scores = {
            name: [value if isfinite(value) else None for value in each[0].tolist()]
            for name, each in self.scores.items()
        }
        return {"nodes": self.nodes.tolist(), "known": self.known.tolist(), "scores": scores}


@dataclass(frozen=True, kw_only=True)
class ColumnScores:
    """The scores by label or target of a model, or of several together."""

    # "multilabel" or "regression".
    kind: Kind
    # Names of the labels or targets, in their order.
    names: Sequence[str]
    # "train", "valid" or "test" -> scores of its nodes.
    splits: Mapping[str, ColumnCounts] = field(repr=False)

    @property
    def shown_split(self) -> str:
        """The split that tells most of unseen nodes."""
        return shown_split(self.splits)

    @property
    def word(self) -> str:
        """The word for one of the columns, "label" or "target"."""
        return COLUMN_WORDS[self.kind][0]

    def text(self) -> str:
        """Returns the content of `scores.json`."""
        splits = {split: counts.document() for split, counts in self.splits.items()}
        return json.dumps({"kind": self.kind, "names": [*self.names], "splits": splits}, sort_keys=True) + "\n"


def read_columns(model: Artifact) -> ColumnScores | None:
    """Returns the scores by label or target of a model, None if it has none; raises InputError if its file is damaged."""
    found = json.loads(model.content_of(FILE)) if FILE in model.files else None
    if not isinstance(found, dict) or (kind := found.get("kind")) not in SCORES:
        return None
    splits = sound_splits(model, found, _schema(kind), lambda each: _counts(each, SCORES[kind], len(found["names"])))
    return ColumnScores(kind=kind, names=found["names"], splits=splits) if splits else None


def joined_columns(models: Sequence[Artifact]) -> ColumnScores | None:
    """Returns the scores of several models, None if one has none or other labels or targets; raises InputError for a damaged file."""
    return joined([read_columns(model) for model in models], lambda each: (each.kind, each.names), _together)


def _together(counts: Sequence[ColumnCounts]) -> ColumnCounts:
    scores = {name: np.concatenate([each.scores[name] for each in counts]) for name in counts[0].scores}
    return ColumnCounts(nodes=sum(e.nodes for e in counts), known=sum(e.known for e in counts), scores=scores)  # pyright: ignore[reportArgumentType]


def _mean(values: Array, axis: int) -> Array:
    """Returns the mean of the values that are not NaN; NaN if there is none."""
    known = ~np.isnan(values)
    counts = known.sum(axis=axis)
    return np.where(counts > 0, np.where(known, values, 0).sum(axis=axis) / np.maximum(1, counts), np.nan)


def _schema(kind: str) -> Fields:
    counts = listed(whole())
    scores = Fields(dict.fromkeys(SCORES[kind], listed(maybe(number()))))
    split = Fields({"nodes": counts, "known": counts, "scores": scores})
    return Fields(
        {"kind": one_of(kind), "names": listed(text), "splits": mapped(split, one_of("train", "valid", "test"))}
    )


def _counts(values: Mapping[str, Any], names: Sequence[str], width: int) -> ColumnCounts:
    scores = {name: np.array([values["scores"][name]], np.float64) for name in names}
    if {len(values["nodes"]), len(values["known"]), *(each.shape[1] for each in scores.values())} != {width}:
        raise ValueError(f"it has {width} names and scores of others")
    return ColumnCounts(
        nodes=np.array(values["nodes"], np.int64), known=np.array(values["known"], np.int64), scores=scores
    )


def label_score(metric: str, logits: Array, labels: Array) -> float | None:
    """Returns a metric of logits, float[n, C], and labels, i8[n, C] with -1 for unknown; None if no label defines it."""
    if metric in ("f1_micro", "f1_macro"):
        return float(_totals(logits, labels, axis=None if metric == "f1_micro" else 0).f1.mean())
    return _known_mean(_of_labels(metric, logits, labels))


def scores_by_label(logits: Array, labels: Array) -> ColumnCounts:
    """Returns the scores of each label, as `label_score` takes them; precision, recall and F1 are 0 where scikit-learn has them so."""
    totals = _totals(logits, labels)
    scores = {"precision": totals.precision, "recall": totals.recall, "f1": totals.f1}
    scores |= {metric: _of_labels(metric, logits, labels) for metric in ("average_precision", "roc_auc")}
    scores = {name: values[None] for name, values in scores.items()}
    return ColumnCounts(nodes=totals.support, known=(labels >= 0).sum(axis=0), scores=scores)


def _of_labels(metric: str, logits: Array, labels: Array) -> Array:
    """Returns f64[C], "roc_auc" or "average_precision" of each label, NaN if the nodes do not define it."""
    of_label = area if metric == "roc_auc" else average_precision
    return _by_column(lambda given, has: of_label(given, has > 0), logits, labels, labels >= 0)


def _by_column(score: Callable[[Array, Array], float | None], answers: Array, labels: Array, known: Array) -> Array:
    """Returns f64[C], a score of the known answers and labels, [n, C] each, of each column; NaN if it is not defined."""
    each = [(known[:, column], column) for column in range(labels.shape[1])]
    found = [score(answers[rows, column], labels[rows, column]) for rows, column in each]
    return np.array([np.nan if value is None else value for value in found], np.float64)


def _known_mean(values: Array) -> float | None:
    """Returns the mean of the values that are not NaN; None if there is none."""
    known = values[~np.isnan(values)]
    return float(np.mean(known)) if len(known) else None


def _totals(logits: Array, labels: Array, axis: int | None = 0) -> ClassTotals:
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
    return _known_mean(_of_targets(metric, answers, labels))


def scores_by_target(answers: Array, labels: Array) -> ColumnCounts:
    """Returns the scores of each target, errors above 0 and in its unit. Arguments as in `error_score`."""
    known = (~np.isnan(labels)).sum(axis=0)
    scores = {"r2": _of_targets("r2", answers, labels)[None]}
    scores |= {name: -_of_targets(f"neg_{name}", answers, labels)[None] for name in SCORES["regression"][1:]}
    return ColumnCounts(nodes=known, known=known, scores=scores)


def _of_targets(metric: str, answers: Array, labels: Array) -> Array:
    """Returns f64[T], a metric of each target; NaN if none of its numbers is known. Arguments as in `error_score`."""
    return _by_column(partial(_of_target, metric), answers, labels, ~np.isnan(labels))


def _of_target(metric: str, answers: Array, labels: Array) -> float | None:
    if not len(labels):
        return None
    numbers = labels.astype(np.float64)
    error = answers - numbers
    if metric == "neg_mean_absolute_error":
        return -float(np.abs(error).mean())
    if metric == "neg_root_mean_squared_error":
        return -float(np.sqrt(np.square(error).mean()))
    left, spread = float(np.square(error).sum()), float(np.square(numbers - numbers.mean()).sum())
    return 1 - left / spread if spread else float(left == 0)
