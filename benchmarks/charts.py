"""Charts of benchmarks, in the style of `graphmill report`: curves in one system of axes, and groups of bars."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from graphmill.assets.figures.style import SERIES, grid
from graphmill.jobs.report.drawing import PAPER, ReportFigure
from graphmill.jobs.report.plots import HATCHES, add_legend, bars_height, draw_lines, ends, legend_height, name_rows
from graphmill.jobs.report.series import Series


def line_chart(
    name: str,
    title: str,
    says: str,
    curves: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    log: str = "",
    ticks: Sequence[float] = (),
) -> ReportFigure:
    """Draws curves in one system of axes.

    Args:
        name, title, says: as of `ReportFigure`; the last value of each curve is added to what it says.
        curves: the curves, in the order of the legend.
        x_label, y_label: names of the axes, with units.
        log: axes that are logarithmic: "x", "y", "xy" or "".
        ticks: values of x that are labelled; by default those that matplotlib chooses.
    """

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        draw_lines(axes, curves)
        for axis in log:
            getattr(axes, f"set_{axis}scale")("log")
            getattr(axes, f"{axis}axis").set_major_formatter(lambda at, _: f"{at:g}")
            getattr(axes, f"{axis}axis").set_minor_formatter(lambda at, _: "")
        if ticks:
            axes.set_xticks(ticks, [f"{each:g}" for each in ticks])
        axes.set(xlabel=x_label, ylabel=y_label)
        if "y" not in log:
            axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
        grid(axes)
        add_legend(figure, axes)

    height = 3.0 + legend_height([curve.label for curve in curves])
    return ReportFigure(name=name, title=title, says=f"{says} {ends(curves)}", draw=draw, height=height)


def bar_chart(
    name: str,
    title: str,
    says: str,
    values: Mapping[str, Mapping[str, float]],
    *,
    label: str,
    log: bool = False,
) -> ReportFigure:
    """Draws a group of bars for each row of values, side by side; `stacked` draws parts of one bar.

    Args:
        name, title, says: as of `ReportFigure`.
        values: row -> bar -> value; a bar that a row lacks is left out of it.
        label: name of the axis of values, with its unit.
        log: whether this axis is logarithmic.
    """
    rows = list(values)
    bars = list(dict.fromkeys(bar for row in values.values() for bar in row))
    width = 0.8 / len(bars)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for number, bar in enumerate(bars):
            found = [(place, values[row][bar]) for place, row in enumerate(rows) if bar in values[row]]
            style = {"color": SERIES[number % len(SERIES)], "edgecolor": PAPER, "linewidth": 0.6}
            places = [place - 0.4 + (number + 0.5) * width for place, _ in found]
            lengths = [length for _, length in found]
            axes.barh(places, lengths, height=width, label=bar, hatch=HATCHES[number % len(HATCHES)], **style)
            for place, length in zip(places, lengths, strict=True):
                axes.annotate(f" {length:.3g}", (length, place), va="center", fontsize=8)
        if log:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(lambda at, _: f"{at:g}")
            axes.xaxis.set_minor_formatter(lambda at, _: "")
        axes.margins(x=0.12)
        name_rows(axes, rows)
        axes.set_xlabel(label)
        grid(axes, "x")
        if len(bars) > 1:
            add_legend(figure, axes)

    height = bars_height(max(len(rows), round(0.7 * len(rows) * len(bars))), math.ceil(len(bars) / 2))
    return ReportFigure(name=name, title=title, says=says, draw=draw, height=height)
