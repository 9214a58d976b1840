"""The pictures of chunks: rows that cross from the host by schedule and by step, and how often nodes are in chunks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.assets.figures import style
from graphmill.kernels.chunks.counts import StepCounts
from graphmill.kernels.chunks.sets import Volumes


def traffic_figure(
    path: Path, found: Mapping[str, Volumes], chosen: str, num_distinct: int, counts: StepCounts
) -> None:
    """Draws the rows of one layer that cross from the host, by schedule (`found`), and those that each step of the chosen one moves."""
    figure = style.new_figure(3.4)
    bars, steps = figure.subplots(1, 2)
    names = dict.fromkeys(("identity", "hongtu", chosen))
    places = np.arange(len(names))
    for shift, label, colour, volume in (
        (-1, "V_ori", style.RED, "v_ori"),
        (0, "V_+p2p", style.YELLOW, "v_p2p"),
        (1, "V_+ru", style.BLUE, "v_ru"),
    ):
        bars.bar(
            places + 0.27 * shift, [getattr(found[name], volume) for name in names], 0.25, label=label, color=colour
        )
    bars.axhline(num_distinct, color=style.BLACK, linewidth=1, linestyle="--", label="distinct rows")
    bars.set_xticks(places, [{"identity": "identity", "hongtu": "Algorithm 4"}.get(name, "best") for name in names])
    bars.set_title("rows from the host per layer, by schedule", fontsize=9)
    _legend_above(bars, 2)
    loaded, fetched, total = (array.sum(axis=1) for array in (counts.loaded, counts.fetched, counts.neighbours))
    numbers = np.arange(len(loaded))
    steps.plot(numbers, total, color=style.GREY, label="neighbours")
    steps.plot(numbers, loaded, color=style.BLUE, marker="o", markersize=3, label="from the host")
    steps.plot(numbers, fetched, color=style.GREEN, marker="s", markersize=3, label="from peers")
    steps.set_ylim(bottom=0)
    steps.set_xlabel("step")
    steps.set_title("rows by step", fontsize=9)
    _legend_above(steps, 3)
    style.grid(steps)
    style.save(figure, path)


def _legend_above(axes: Any, columns: int) -> None:
    """Puts the legend above the axes, where it hides nothing, and labels the axis of counts."""
    axes.set_ylim(top=1.2 * axes.get_ylim()[1])
    style.count_axis(axes.yaxis)
    axes.legend(fontsize=7, frameon=False, loc="upper center", ncols=columns, columnspacing=1.2)


def replication_figure(path: Path, curve: Mapping[int, float], num_parts: int) -> None:
    """Draws the mean number of chunks that a node is in, by the number of chunks in all (HongTu, Table 3)."""
    figure = style.new_figure(2.6)
    axes = figure.subplots()
    axes.plot(list(curve), list(curve.values()), color=style.CYAN, marker="o")
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(curve), [str(count) for count in curve])
    axes.set_ylim(bottom=0)
    axes.set(xlabel=f"chunks in all, of {num_parts} parts", ylabel="copies per node")
    axes.set_title("what cutting finer costs: nodes and in-neighbours of all chunks, per node", fontsize=9)
    style.grid(axes)
    style.save(figure, path)
