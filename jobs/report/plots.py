"""Lines and bars of the figures of a report: how each is drawn, named and explained.

Colour is never the only difference: curves have markers and dashes of their own, and parts of bars have patterns.
"""

from __future__ import annotations

import math
import string
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from graphmill.assets.figures.style import MARKERS, SERIES, grid
from graphmill.jobs.figures.curves import DASHES
from graphmill.jobs.report.drawing import INK, PAPER, ReportFigure
from graphmill.jobs.report.series import Series, names_of

HATCHES = ("", "///", "\\\\\\", "xxx", "---", "+++", "|||", "/", "\\")
"""Patterns of the parts of a bar, so that they can be told apart without colour."""

LABEL_WIDTH, HALF_WIDTH = 42, 20
"""Characters of a line of a legend of one column, and of two."""


def stacked(
    name: str, title: str, says: str, values: Mapping[str, Mapping[str, float]], colours: Mapping[str, str], label: str
) -> ReportFigure | None:
    """Draws a bar of several parts for each table; None if there is no part."""
    parts, tables = names_of(values, colours), list(values)
    if not parts:
        return None

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        starts = [0.0] * len(tables)
        for number, part in enumerate(parts):
            lengths = [values[table].get(part, 0.0) for table in tables]
            style = {
                "color": colours.get(part, INK),
                "edgecolor": PAPER,
                "linewidth": 0.6,
                "hatch": HATCHES[number % len(HATCHES)],
            }
            axes.barh(range(len(tables)), lengths, left=starts, label=part, height=0.7, **style)
            starts = [start + length for start, length in zip(starts, lengths, strict=True)]
        name_rows(axes, tables)
        axes.set_xlabel(label)
        grid(axes, "x")
        add_legend(figure, axes)

    height = bars_height(len(tables), math.ceil(len(parts) / 2))
    return ReportFigure(name=name, title=title, says=says, draw=draw, height=height)


def draw_lines(axes: Any, curves: Sequence[Series], *, mark: bool = True) -> None:
    """Draws each curve in a colour, a marker and dashes of its own, and the band of those that are means."""
    for number, curve in enumerate(curves):
        again, place = divmod(number, len(SERIES))
        colour, marker = SERIES[place], MARKERS[(place + again) % len(MARKERS)]
        marked = curve.points or (mark and len(curve.x) <= 60)
        style = {
            "color": colour,
            "linestyle": "none" if curve.points else DASHES[again % len(DASHES)],
            "linewidth": 1.4,
        }
        size = 7 if curve.points else 3.5
        label = textwrap.fill(curve.label, LABEL_WIDTH)
        axes.plot(curve.x, curve.y, label=label, marker=marker if marked else "", markersize=size, **style)
        if curve.low:
            axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)


def name_rows(axes: Any, names: Sequence[str]) -> None:
    """Writes the names of rows of bars, from the top downwards."""
    axes.set_yticks(range(len(names)), [name if len(name) <= 26 else f"{name[:25]}…" for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.spines[["top", "right"]].set_visible(False)


def add_legend(figure: Any, axes: Any, columns: int = 2) -> None:
    """Puts the legend below the axes, in one column if a label is long."""
    handles, labels = axes.get_legend_handles_labels()
    if max((len(line) for label in labels for line in label.split("\n")), default=0) > HALF_WIDTH:
        columns = 1
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=2, columnspacing=1.2)


def legend_height(labels: Sequence[str]) -> float:
    """Returns the inches of a legend, by the lines of its labels."""
    lines = sum(math.ceil(len(label) / LABEL_WIDTH) for label in labels)
    columns = 1 if any(len(label) > HALF_WIDTH for label in labels) else 2
    return 0.19 * math.ceil(lines / columns)


def bars_height(rows: int, legend_rows: int) -> float:
    """Returns the inches of a figure of bars."""
    return 0.8 + 0.24 * rows + 0.2 * legend_rows


def spans_decades(curves: Sequence[Series]) -> bool:
    """Tells whether values are so far apart that their axis is logarithmic; all are above 0 then."""
    values = [y for curve in curves for y in curve.y if math.isfinite(y)]
    return bool(values) and min(values) > 0 and max(values) > 10 * min(values)


def ends(curves: Sequence[Series]) -> str:
    """Returns the last value of each curve in words."""
    return "; ".join(f"{curve.label}: {curve.y[-1]:.4g} at {curve.x[-1]:.4g}" for curve in curves) + "."


LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits
HEIGHT, LEAST_WIDTH = 16, 24


def curve_lines(title: str, curves: Sequence[Series], width: int, *, log: bool = False) -> Iterator[str]:
    """Yields the lines of a picture of curves, and a legend: a letter for each curve, and its last value.

    Args:
        curves: at least one curve; later ones are drawn over earlier ones.
        width: columns of the terminal.
        log: whether the vertical axis is logarithmic; all values are above 0 then.
    """
    points = [(x, y) for curve in curves for x, y in zip(curve.x, curve.y, strict=True) if math.isfinite(y)]
    yield title
    if not points:
        yield "  no finite value"
        return
    scale = math.log if log else float
    lefts, heights = [x for x, _ in points], [scale(y) for _, y in points]
    low, high = min(heights), max(heights)
    labels = [f"{math.exp(each) if log else each:.4g}" for each in (high, (low + high) / 2, low)]
    margin = max(map(len, labels))
    columns = max(LEAST_WIDTH, width - margin - 3)
    across, down = (min(lefts), max(lefts)), (low, high)
    grid = [[" "] * columns for _ in range(HEIGHT)]
    for letter, curve in zip(_letters(len(curves)), curves, strict=True):
        places = [
            (_place(x, across, columns), HEIGHT - 1 - _place(scale(y), down, HEIGHT))
            for x, y in zip(curve.x, curve.y, strict=True)
            if math.isfinite(y)
        ]
        for column, row in _joined(places):
            grid[row][column] = letter
    beside = {0: labels[0], HEIGHT // 2: labels[1], HEIGHT - 1: labels[2]}
    for number, row in enumerate(grid):
        yield f"{beside.get(number, ''):>{margin}} |{''.join(row)}".rstrip()
    yield f"{'':{margin}} +{'-' * columns}"
    left, right = f"{across[0]:.4g}", f"{across[1]:.4g}"
    yield f"{'':{margin}}  {left}{right:>{columns - len(left)}}"
    for letter, curve in zip(_letters(len(curves)), curves, strict=True):
        last = f"{curve.y[-1]:.4g}" if math.isfinite(curve.y[-1]) else "not finite"
        yield f"  {letter}  {curve.label}: {last} at {curve.x[-1]:.4g}"


def _letters(count: int) -> list[str]:
    return [LETTERS[place % len(LETTERS)] for place in range(count)]


def _place(value: float, ends: tuple[float, float], count: int) -> int:
    """Returns the place of a value among `count` ones from the first end to the last."""
    low, high = ends
    return 0 if high <= low else round((value - low) / (high - low) * (count - 1))


def _joined(places: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yields the cells of a line through all places."""
    yield from places[:1]
    for (x, y), (to_x, to_y) in pairwise(places):
        steps = max(abs(to_x - x), abs(to_y - y))
        for step in range(1, steps + 1):
            yield x + round((to_x - x) * step / steps), y + round((to_y - y) * step / steps)
