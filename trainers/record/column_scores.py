"""Scores of a trained model by label or by target: `scores.json` of its artifact, from the final logits of each split.

A model of classes stores counts there (trainers/record/class_scores.py). Areas and errors do not follow from counts that add up. So
each score is stored, a row per model, and several models together have the mean of their rows, as in the leaderboard.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np

from graphmill.assets.storage.files.schema import Fields, listed, mapped, maybe, number, one_of, text, whole
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.tasks.labels import COLUMN_WORDS, Kind
from graphmill.kernels.types import Array
from graphmill.trainers.record.class_scores import FILE, shown_split, sound_splits

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
    found = [read_columns(model) for model in models]
    known = [each for each in found if each is not None]
    if not known or len(known) < len(found) or any((e.kind, e.names) != (known[0].kind, known[0].names) for e in known):
        return None
    shared = [split for split in known[0].splits if all(split in each.splits for each in known)]
    splits = {split: _together([each.splits[split] for each in known]) for split in shared}
    return ColumnScores(kind=known[0].kind, names=known[0].names, splits=splits) if splits else None


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
