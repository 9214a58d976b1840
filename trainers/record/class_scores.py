"""Scores of a trained model by class: `scores.json` of its artifact, from the final logits of each split.

Only counts are stored, and every score follows from them. Counts are whole numbers, and so are sums of probabilities, in units of 2^-32.
So the counts of parts of the nodes, of several ranks or of several models add up to those of all, to the bit and in any order.

Calibration compares the probability of the answers with how often they are right (Guo et al., "On Calibration of Modern Neural Networks",
2017): answers fall into bins of equal width by their probability, and the expected calibration error is the mean distance of a bin's
accuracy from its mean probability, weighted by its number of nodes.

Memory: 4 bytes per scored node beside its logits, and a block of rows. The confusion matrix is stored as pairs of classes, of which at
most `MOST_PAIRS` are kept; the scores of the classes do not depend on that.

A model of another task than classes has another `kind` of scores (trainers/record/column_scores.py), for which `read_scores` returns None.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, TypeVar

import numpy as np

from graphmill.assets.storage.files.schema import Fields, listed, mapped, one_of, text, whole
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array
from graphmill.trainers.record.scores import ClassTotals, class_totals

Counts = TypeVar("Counts")

FILE, KIND = "scores.json", "classes"
BINS = 15
UNITS = 1 << 32
"""Units of a probability of 1."""
BLOCK_VALUES = 1 << 19
"""Logits whose probabilities are computed at once."""
MOST_PAIRS = 1 << 16
"""Most pairs of a class and another one that its nodes were given; those with the most nodes are kept."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassCounts(ClassTotals):
    """Counts of the classified nodes of a split."""

    # Class, other class that nodes of it were given, and their number, i64[k, 3]; ascending.
    pairs: Array = field(repr=False)
    # i64[3, BINS], per bin of probability: answers, those that are right, and the sum of their probabilities in `UNITS`.
    bins: Array = field(repr=False)

    def __add__(self, other: ClassCounts) -> ClassCounts:
        """Returns the counts of both sets of nodes; their classes are the same."""
        parts = {name: getattr(self, name) + getattr(other, name) for name in ("right", "support", "predicted", "bins")}
        return ClassCounts(**parts, pairs=_added(np.concatenate([self.pairs, other.pairs])))

    @property
    def calibration_error(self) -> float:
        """The expected calibration error, in [0, 1]."""
        nodes, right, confidence = self.bins
        return float(np.abs(right - confidence / UNITS).sum() / nodes.sum())

    @property
    def confidence(self) -> float:
        """Mean probability of the answers."""
        return float(self.bins[2].sum() / UNITS / self.bins[0].sum())

    def reliability(self) -> Array:
        """Returns f64[b, 2], mean probability and accuracy of each bin that has answers, ascending."""
        nodes, right, confidence = self.bins[:, self.bins[0] > 0]
        return np.stack([confidence / UNITS / nodes, right / nodes], axis=1)

    def matrix(self, classes: Array) -> Array:
        """Returns i64[k, k], the rows and columns of k distinct classes of the confusion matrix: row = class, column = answer."""
        place = np.full(len(self.right), -1)
        place[classes] = np.arange(len(classes))
        found = np.diag(self.right[classes])
        rows, columns = place[self.pairs[:, 0]], place[self.pairs[:, 1]]
        shown = (rows >= 0) & (columns >= 0)
        found[rows[shown], columns[shown]] = self.pairs[shown, 2]
        return found

    def document(self) -> dict[str, Any]:
        """Returns the counts as plain values; of the pairs those with the most nodes."""
        most = np.sort(np.argsort(-self.pairs[:, 2], kind="stable")[:MOST_PAIRS])
        found = {name: getattr(self, name).tolist() for name in ("right", "support", "predicted", "bins")}
        return found | {"pairs": self.pairs[most].tolist()}


def count_classes(logits: Array, labels: Array) -> ClassCounts:
    """Counts the answers to int[n] by float[n, num_classes], which are the classes of the largest logits; ties go to the lowest class."""
    num_rows, num_classes = logits.shape
    predicted, bins = np.empty(num_rows, np.int32), np.zeros((3, BINS), np.int64)
    step = max(1, BLOCK_VALUES // num_classes)
    for low in range(0, num_rows, step):
        block = slice(low, min(low + step, num_rows))
        predicted[block] = logits[block].argmax(axis=1)
        bins += _binned(logits[block], predicted[block] == labels[block])
    totals = class_totals(predicted, labels, num_classes)
    wrong = np.flatnonzero(predicted != labels)
    keys, counts = np.unique(labels[wrong] * np.int64(num_classes) + predicted[wrong], return_counts=True)
    pairs = np.stack([keys // num_classes, keys % num_classes, counts], axis=1)
    return ClassCounts(right=totals.right, support=totals.support, predicted=totals.predicted, pairs=pairs, bins=bins)


def _binned(logits: Array, right: Array) -> Array:
    """Returns i64[3, BINS], the bins of some answers; bin b has probabilities above b / BINS, up to (b + 1) / BINS."""
    values = logits.astype(np.float64)
    with np.errstate(invalid="ignore"):  # of logits that are not finite the probability is 0
        values -= values.max(axis=1, keepdims=True)
        confidence = np.nan_to_num(1 / np.exp(values, out=values).sum(axis=1), nan=0.0)
    units = np.rint(confidence * UNITS).astype(np.int64)
    places = np.maximum(0, units * BINS - 1) // UNITS
    found = np.zeros((3, BINS), np.int64)
    for row, each in zip(found, (1, right, units), strict=True):
        np.add.at(row, places, each)
    return found


def _added(pairs: Array) -> Array:
    """Returns i64[k, 3], pairs of classes with the sum of their numbers, each once, ascending."""
    classes, places = np.unique(pairs[:, :2], axis=0, return_inverse=True)
    counts = np.zeros(len(classes), np.int64)
    np.add.at(counts, places.reshape(-1), pairs[:, 2])
    return np.column_stack([classes, counts])


@dataclass(frozen=True, kw_only=True)
class ClassScores:
    """The scores by class of a model, or of several together: names in label order, and the counts of each split's nodes."""

    classes: Sequence[str]
    splits: Mapping[str, ClassCounts] = field(repr=False)

    @property
    def shown_split(self) -> str:
        """The split that tells most of unseen nodes."""
        return shown_split(self.splits)

    def text(self) -> str:
        """Returns the content of `scores.json`."""
        splits = {split: counts.document() for split, counts in self.splits.items()}
        return json.dumps({"kind": KIND, "classes": [*self.classes], "splits": splits}, sort_keys=True) + "\n"


def shown_split(splits: Iterable[str]) -> str:
    """Returns the split that tells most of unseen nodes: test, else validation, else training nodes."""
    known = {*splits}
    return next(split for split in ("test", "valid", "train") if split in known)


_COUNTS = listed(whole())
_SCHEMA = Fields(
    {
        "kind": one_of(KIND),
        "classes": listed(text),
        "splits": mapped(
            Fields(
                {
                    **dict.fromkeys(("right", "support", "predicted"), _COUNTS),
                    "pairs": listed(listed(whole(), length=3)),
                    "bins": listed(listed(whole(), length=BINS), length=3),
                }
            ),
            one_of("train", "valid", "test"),
        ),
    }
)


def read_scores(model: Artifact) -> ClassScores | None:
    """Returns the scores by class of a model, None without, as of an earlier version; raises InputError if the file is damaged."""
    if FILE not in model.files:
        return None
    found = json.loads(model.content_of(FILE))
    if isinstance(found, dict) and found.get("kind") != KIND:
        return None
    splits = sound_splits(model, found, _SCHEMA, lambda each: _counts(each, len(found["classes"])))
    return ClassScores(classes=found["classes"], splits=splits) if splits else None


def sound_splits(model: Artifact, found: Any, schema: Fields, counts: Callable[[Any], Counts]) -> dict[str, Counts]:
    """Returns the counts of each split by the content of a model's file; raises InputError if it is damaged."""
    try:
        schema(found, "")
        return {split: counts(each) for split, each in found["splits"].items()}
    except ValueError as error:
        problem = f"{FILE} of {model.label} says nothing sound: {error}"
        raise InputError(problem, "train it again with --retrain") from error


def _counts(values: Mapping[str, Any], num_classes: int) -> ClassCounts:
    arrays = {name: np.array(each, np.int64) for name, each in values.items() if name != "pairs"}
    pairs = np.array(values["pairs"], np.int64).reshape(-1, 3)
    lengths = {len(arrays[name]) for name in ("right", "support", "predicted")}
    if lengths != {num_classes} or (pairs[:, :2] >= num_classes).any():
        raise ValueError(f"it has {num_classes} classes and counts of others")
    return ClassCounts(**arrays, pairs=pairs)


def joined_scores(models: Sequence[Artifact]) -> ClassScores | None:
    """Returns the sum of the counts of models, None if one has none or other classes; raises InputError for a damaged file."""
    found = [read_scores(model) for model in models]
    return joined(found, lambda each: each.classes, lambda counts: reduce(lambda a, b: a + b, counts))


def joined(found: Sequence[Any], names: Callable[[Any], Any], together: Callable[[list[Any]], Any]) -> Any:
    """Returns the scores of several models as those of one, for the splits that all have; None if one has no scores, or of other names."""
    if not found or any(each is None or names(each) != names(found[0]) for each in found):
        return None
    shared = [split for split in found[0].splits if all(split in each.splits for each in found)]
    splits = {split: together([each.splits[split] for each in found]) for split in shared}
    return replace(found[0], splits=splits) if splits else None
