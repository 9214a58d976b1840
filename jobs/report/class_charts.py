"""The section of a report on scores by class, label or target: tables, heat maps of confusion matrices, and a reliability diagram."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from graphmill.assets.figures.style import BLUE, GREY, grid
from graphmill.jobs.commands.results.leaderboard import Entry
from graphmill.jobs.figures.class_scores import (
    SPLITS,
    calibration_sentence,
    class_table,
    column_table,
    confused,
    largest,
    together,
)
from graphmill.jobs.figures.plain_table import PlainTable
from graphmill.jobs.report.drawing import INK, ReportFigure
from graphmill.jobs.report.plots import add_legend, draw_lines, legend_height
from graphmill.jobs.report.series import Series
from graphmill.kernels.errors import one_line
from graphmill.trainers.record.class_scores import ClassScores, joined_scores
from graphmill.trainers.record.column_scores import joined_columns

MOST_TABLES = 5
"""Most train tables with a table and a heat map of their own; the best ones are shown."""
MOST_CURVES = 10
"""Most curves of the reliability diagram."""
MOST_CLASSES = 24
"""Most classes of a heat map; of more, those with the most nodes."""
MOST_NUMBERED = 10
"""Most classes of a heat map whose cells have numbers."""
LEAST_SHARE = 0.005
"""Least share of a class's nodes for which a cell is drawn; a smaller one could not be told from paper."""
UNITS = {
    "multilabel": "Scores in percent; a label is given from a probability of one half on",
    "regression": "Errors are in the unit of each target",
}
"""Kind of task -> the sentence about its table."""
LONGEST = 16
"""Letters of the name of a class beside a heat map."""


def _scored(entries: Sequence[Entry], most: int) -> Iterator[tuple[str, ClassScores]]:
    """Yields name and scores of the best train tables that have scores by class, those of all their models together."""
    found = ((entry.table.name, joined_scores(entry.models)) for entry in entries[:most])
    yield from ((name, scores) for name, scores in found if scores is not None)


def class_tables(entries: Sequence[Entry]) -> list[tuple[PlainTable, str]]:
    """Returns the scores by class, label or target of the best train tables, each with sentences: of classes on what is confused most."""
    found = []
    for entry in entries[:MOST_TABLES]:
        if (columns := joined_columns(entry.models)) is not None:
            table = column_table(columns, title=f"{entry.table.name}: scores by {columns.word}")
            found.append((table, UNITS[columns.kind] + together(entry.models) + "."))
    for name, scores in _scored(entries, MOST_TABLES):
        split = scores.shown_split
        wrong = "; ".join(confused(scores, split))
        said = calibration_sentence(scores.splits[split]) + (f" Most often, {wrong}." if wrong else "")
        found.append((class_table(scores, split, f"{name}: scores by class"), said))
    return found


def class_drawings(entries: Sequence[Entry]) -> list[ReportFigure]:
    """Returns the reliability diagram of the train tables, and a heat map for each of the best ones."""
    curves = [(name, scores) for name, scores in _scored(entries, MOST_CURVES)]
    heat_maps = [_confusion(name, scores) for name, scores in curves[:MOST_TABLES]]
    return [_reliability(curves), *heat_maps] if curves else []


def _reliability(scored: Sequence[tuple[str, ClassScores]]) -> ReportFigure:
    """Draws the accuracy of answers over their probability, by bins."""
    curves, errors = [], []
    for name, scores in scored:
        counts = scores.splits[scores.shown_split]
        points = 100 * counts.reliability()
        curves.append(Series(label=name, x=points[:, 0].tolist(), y=points[:, 1].tolist()))
        errors.append(f"{name}: {100 * counts.calibration_error:.2f} %")

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        draw_lines(axes, curves)
        axes.plot([0, 100], [0, 100], color=GREY, linestyle=":", label="calibrated")
        axes.set(xlabel="probability of the answer, mean of a bin, %", ylabel="right answers, %")
        axes.set(xlim=(0, 100), ylim=(0, 100))
        grid(axes)
        add_legend(figure, axes)

    says = f"Share of right answers over their mean probability. Expected calibration errors: {'; '.join(errors)}."
    height = 2.7 + legend_height([*(curve.label for curve in curves), "calibrated"])
    return ReportFigure(name="reliability", title="Reliability", says=says, draw=draw, height=height)


def _confusion(name: str, scores: ClassScores) -> ReportFigure:
    """Draws the shares of each class's nodes that were given each class."""
    split = scores.shown_split
    classes = largest(scores.splits[split], MOST_CLASSES)
    counts = scores.splits[split].matrix(np.array(classes))
    shares = counts / np.maximum(1, scores.splits[split].support[classes])[:, None]
    labels = [_short(one_line(scores.classes[place])) for place in classes]

    def draw(figure: Any) -> None:
        from matplotlib.patches import Rectangle

        axes = figure.subplots()
        for row, column in zip(*np.nonzero(shares >= LEAST_SHARE), strict=True):
            corner, share = (column - 0.5, row - 0.5), float(shares[row, column])
            axes.add_patch(Rectangle(corner, 1, 1, facecolor=BLUE, alpha=share, linewidth=0))
            if len(classes) <= MOST_NUMBERED:
                text = {"ha": "center", "va": "center", "fontsize": 7, "color": INK}
                axes.text(column, row, f"{100 * share:.0f}", **text)
        axes.set_xticks(range(len(labels)), labels, rotation=90, fontsize=7)
        axes.set_yticks(range(len(labels)), labels, fontsize=7)
        axes.set(xlim=(-0.5, len(labels) - 0.5), ylim=(len(labels) - 0.5, -0.5), xlabel="answer", ylabel="class")

    of = f"; the {len(classes)} largest of {len(scores.classes):,}" if len(classes) < len(scores.classes) else ""
    return ReportFigure(
        name=f"confusion-{name}",
        title=f"Confusion of {name}, {SPLITS[split]}{of}",
        says=f"Share of the nodes of each class, in percent, that {name} gave each class.",
        draw=draw,
        height=max(3.2, 1.4 + 0.2 * len(labels)),
    )


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
