"""Scores by class, label or target as text: a table for a page, a report or a terminal; of classes, calibration and what is confused."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from graphmill.assets.storage.local.artifact import Artifact
from graphmill.jobs.figures.plain_table import PlainTable
from graphmill.kernels.errors import one_line
from graphmill.trainers.record.class_scores import BINS, ClassCounts, ClassScores, joined_scores
from graphmill.trainers.record.column_scores import ColumnCounts, ColumnScores, joined_columns

SPLITS = {"train": "training", "valid": "validation", "test": "test"}
MOST_ROWS = 50
"""Most classes of a table; of more, those with the most nodes."""
MOST_CONFUSED = 5
"""Pairs of classes that a sentence names."""
AVERAGES = {"macro": "macro mean", "micro": "micro mean", "weighted": "weighted mean"}


def class_table(scores: ClassScores, split: str = "", title: str = "scores by class") -> PlainTable:
    """Returns precision, recall, F1 and nodes of each class in percent, and their means over classes.

    Args:
        split: split of the nodes; "" for the one that tells most of unseen nodes.
    """
    split = split or scores.shown_split
    counts = scores.splits[split]
    values = (counts.precision, counts.recall, counts.f1)
    shown = largest(counts, MOST_ROWS)
    rows = [
        [
            one_line(scores.classes[place]),
            *(f"{100 * each[place]:.2f}" for each in values),
            f"{counts.support[place]:,}",
        ]
        for place in shown
    ]
    nodes = f"{counts.support.sum():,}"
    rows += [
        [words, *(f"{100 * counts.mean(each, average):.2f}" for each in values), nodes]
        for average, words in AVERAGES.items()
    ]
    of = f", the {len(shown)} largest of {len(scores.classes):,}" if len(shown) < len(scores.classes) else ""
    columns = ["class", "precision", "recall", "F1", "nodes"]
    return PlainTable(title=f"{title}, {SPLITS[split]}{of}", columns=columns, rows=rows, left=frozenset({"class"}))


def largest(counts: ClassCounts, most: int) -> list[int]:
    """Returns the classes that occur, ascending; of more than `most`, those with the most nodes."""
    order = np.argsort(-counts.support, kind="stable")
    return np.sort(order[counts.occurs[order]][:most]).tolist()


def calibration_sentence(counts: ClassCounts) -> str:
    """Returns the expected calibration error in words."""
    return (
        f"Expected calibration error {100 * counts.calibration_error:.2f} % over {BINS} bins: answers have a mean probability of "
        f"{100 * counts.confidence:.2f} %, and {100 * counts.accuracy:.2f} % of them are right."
    )


def confused(scores: ClassScores, split: str) -> Iterator[str]:
    """Yields the most frequent wrong answers: class, answer and number of nodes."""
    pairs = scores.splits[split].pairs
    most: list[list[int]] = pairs[np.argsort(-pairs[:, 2], kind="stable")[:MOST_CONFUSED]].tolist()
    for label, answer, nodes in most:
        yield f"{one_line(scores.classes[label])} taken for {one_line(scores.classes[answer])}: {nodes:,}"


def class_metadata(models: Sequence[Artifact]) -> dict[str, Any]:
    """Returns the scores by class of a train table's models together, as Markdown for the UI; {} if they have none."""
    import dagster as dg

    scores = joined_scores(models)
    if scores is None:
        return {}
    table, counts = class_table(scores), scores.splits[scores.shown_split]
    together = f", {len(models)} models together" if len(models) > 1 else ""
    text = f"**{table.title}**{together}\n\n{table.markdown()}\n{calibration_sentence(counts)}"
    return {"scores by class": dg.MetadataValue.md(text)}


def class_document(scores: ClassScores) -> dict[str, Any]:
    """Returns the scores by class of each split as plain values: one number per class, in the order of the names."""
    return {
        "classes": [*scores.classes],
        "splits": {
            split: {
                **{name: getattr(counts, name).tolist() for name in ("precision", "recall", "f1", "support")},
                "means": {
                    average: {
                        name: counts.mean(getattr(counts, name), average) for name in ("precision", "recall", "f1")
                    }
                    for average in AVERAGES
                },
                "accuracy": counts.accuracy,
                "calibration_error": counts.calibration_error,
                "confused": counts.pairs.tolist(),
            }
            for split, counts in scores.splits.items()
        },
    }


HEADINGS = {
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
    "average_precision": "average precision",
    "roc_auc": "ROC AUC",
    "r2": "R2, %",
    "mean_absolute_error": "mean absolute error",
    "root_mean_squared_error": "root mean squared error",
}
"""Score -> its heading."""


def column_table(scores: ColumnScores, split: str = "", title: str = "") -> PlainTable:
    """Returns the scores and nodes of each label or target, shares in percent and errors in the unit of the target, and their means.

    Args:
        split: split of the nodes; "" for the one that tells most of unseen nodes.
        title: beginning of the title; "" for that of scores by label or target.
    """
    split = split or scores.shown_split
    counts = scores.splits[split]
    means, shown = counts.means(), most_nodes(counts)
    labels = scores.kind == "multilabel"
    rows = [
        [
            one_line(scores.names[place]),
            *(cell(name, values[place]) for name, values in means.items()),
            f"{counts.nodes[place]:,}",
            *([f"{counts.known[place]:,}"] if labels else []),
        ]
        for place in shown
    ]
    mean = [cell(name, value) for name, value in counts.over_columns().items()]
    rows.append(["mean", *mean, *["-"] * (2 if labels else 1)])
    of = f", the {len(shown)} with the most nodes of {len(scores.names):,}" if len(shown) < len(scores.names) else ""
    return PlainTable(
        title=f"{title or f'scores by {scores.word}'}, {SPLITS[split]}{of}",
        columns=[scores.word, *(HEADINGS[name] for name in means), "nodes", *(["known"] if labels else [])],
        rows=rows,
        left=frozenset({scores.word}),
    )


def most_nodes(counts: ColumnCounts) -> list[int]:
    """Returns the labels or targets, ascending; of many those with the most nodes."""
    return np.sort(np.argsort(-counts.nodes, kind="stable")[:MOST_ROWS]).tolist()


def cell(score: str, value: float) -> str:
    """Returns a score in a table: a share in percent, an error as it is, "-" if it is not defined."""
    if math.isnan(value):
        return "-"
    return f"{value:.4g}" if score.endswith("_error") else f"{100 * value:.2f}"


def column_metadata(models: Sequence[Artifact]) -> dict[str, Any]:
    """Returns the scores by label or target of a train table's models together, as Markdown for the UI; {} if they have none."""
    import dagster as dg

    scores = joined_columns(models)
    if scores is None:
        return {}
    table = column_table(scores)
    return {
        f"scores by {scores.word}": dg.MetadataValue.md(f"**{table.title}**{together(models)}\n\n{table.markdown()}")
    }


def together(models: Sequence[Artifact]) -> str:
    """Returns the words for the mean of several models; "" for one."""
    return f", mean of {len(models)} models" if len(models) > 1 else ""


def column_document(scores: ColumnScores) -> dict[str, Any]:
    """Returns the scores by label or target of each split as plain values, in the order of the names; null if not defined."""

    def known(value: float) -> float | None:
        return None if math.isnan(value) else value

    return {
        f"{scores.word}s": [*scores.names],
        "splits": {
            split: {
                **{name: [known(value) for value in values.tolist()] for name, values in counts.means().items()},
                "nodes": counts.nodes.tolist(),
                "known": counts.known.tolist(),
                "means": {name: known(value) for name, value in counts.over_columns().items()},
            }
            for split, counts in scores.splits.items()
        },
    }
