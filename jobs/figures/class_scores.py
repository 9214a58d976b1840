"""Scores by class as text: a table for a page, a report or a terminal, and sentences on calibration and on what is confused."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from graphmill.assets.storage.local.artifact import Artifact
from graphmill.jobs.figures.plain_table import PlainTable
from graphmill.kernels.errors import one_line
from graphmill.trainers.record.class_scores import BINS, ClassCounts, ClassScores, joined_scores

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
