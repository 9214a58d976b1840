"""The pictures of rows on their way to a batch: their tiers, their pages and bytes on disk, and the disk space."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.assets.figures import style
from graphmill.assets.sizes import format_bytes
from graphmill.kernels.types import Array

MOST_POINTS = 200
"""Most points; more batches are drawn as means of neighbouring ones."""


def tier_shares(path: Path, tier_rows: Array) -> None:
    """Draws the share of each batch's rows by tier; the legend has the shares of all rows.

    Args:
        tier_rows: i64[B, 4], number of rows of each batch on the device, on the host, in the disk cache and in its packed chunk.
    """
    rows, places = _thinned(tier_rows)
    shares = 100 * rows / np.maximum(1, rows.sum(axis=1, keepdims=True))
    names = ("device", "host", "disk cache", "packed")
    total = tier_rows.sum(axis=0)
    labels = [f"{name}: {_percent(count, total.sum())}" for name, count in zip(names, total.tolist(), strict=True)]
    figure = style.new_figure(3.6)
    axes = figure.subplots()
    axes.stackplot(places, shares.T, labels=labels, colors=[style.LEVELS[name] for name in names])
    axes.set(
        xlabel="stored batch", ylabel="input rows of the batch, %", xlim=(0, max(1, len(tier_rows))), ylim=(0, 100)
    )
    axes.set_title(f"{int(total.sum()):,} rows of {len(tier_rows):,} batches, by where they come from", fontsize=10)
    style.count_axis(axes.xaxis)
    # Beside the picture, in the order of the bands: a thin one is easily covered.
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=9, reverse=True)
    style.save(figure, path)


def page_curves(path: Path, curves: Mapping[str, Array]) -> None:
    """Draws the pages i64[B] that each batch reads of the disk cache, one curve per order; the totals stand in the legend."""
    figure = style.new_figure(3.6)
    axes = figure.subplots()
    for (name, pages), colour, dashes in zip(
        curves.items(), (style.RED, style.BLUE, style.GREEN, style.YELLOW), ("--", "-", "-.", ":"), strict=False
    ):
        means, places = _thinned(pages[:, None])
        label = f"{name}: {int(pages.sum()):,} pages"
        axes.plot(places, means[:, 0], label=label, color=colour, linestyle=dashes, linewidth=1.8)
    axes.set(xlabel="stored batch", ylabel="pages of 4 KiB read per batch")
    axes.set_xlim(0, max(1, *(len(pages) for pages in curves.values())))
    axes.set_ylim(0, 1.3 * max(1, *(int(pages.max(initial=0)) for pages in curves.values())))
    axes.set_title("pages of the disk cache that batches read, by the order of its rows", fontsize=10)
    style.count_axis(axes.xaxis)
    style.count_axis(axes.yaxis)
    style.grid(axes)
    axes.legend(loc="upper center", ncols=min(2, len(curves)), frameon=False, fontsize=9)
    style.save(figure, path)


def packing_figure(path: Path, space: Mapping[str, int], read_bytes: Mapping[str, Array]) -> None:
    """Draws the space of packed chunks against other ways to store the same rows, and the bytes that each batch reads.

    Args:
        space: bytes of `packed rows`, of rows in `disk caches`, of `addresses and padding`, of `full packing`, of the `features`, and the
            `budget`, which bounds the rows alone.
        read_bytes: the same first three names -> i64[B], bytes that each batch reads of them.
    """
    figure = style.new_figure(4.8)
    upper, lower = figure.subplots(2, 1, height_ratios=(1, 1.3))
    _draw_space(upper, space)
    _draw_reads(lower, read_bytes)
    handles = lower.get_legend_handles_labels()[0]
    names = [
        f"{name}:\n{format_bytes(space[name])} stored, {format_bytes(int(read_bytes[name].sum()))} read"
        for name in PACKED_PARTS
    ]
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    style.save(figure, path)


PACKED_PARTS = {"packed rows": style.YELLOW, "disk caches": style.GREEN, "addresses and padding": style.GREY}
"""Colours of the parts that a batch reads from disk for its input rows, nearest to the axis first."""


def _draw_space(axes: Any, space: Mapping[str, int]) -> None:
    whole = sum(space[name] for name in PACKED_PARTS)
    bars = {"as packed": whole, "all rows with\nevery batch": space["full packing"], "feature table": space["features"]}
    size, unit = style.byte_unit(max(bars.values()))
    style.stacked_bar(axes, [(name, space[name] / size, colour) for name, colour in PACKED_PARTS.items()])
    axes.barh([1, 2], [bars[name] / size for name in list(bars)[1:]], color=style.LIGHT, edgecolor=style.GREY)
    longest, budget = max(bars.values()) / size, space["budget"] / size
    drawn = budget <= 1.15 * longest
    for place, num_bytes in enumerate(bars.values()):
        end = max(num_bytes / size, budget) if place == 0 and drawn else num_bytes / size
        axes.text(end, place, f" {format_bytes(num_bytes)}", va="center", fontsize=9)
    if drawn:
        axes.plot([budget, budget], [-0.5, 0.5], color=style.BLACK, linestyle="--", linewidth=1.5)
    axes.set_yticks(range(3), list(bars))
    axes.set(xlim=(0, 1.2 * max(1e-9, longest)), ylim=(2.5, -0.6), xlabel=f"space on disk, {unit}")
    rows, others = format_bytes(whole - space["addresses and padding"]), format_bytes(space["addresses and padding"])
    dashed = ", dashed" if drawn else ""
    title = f"packed: {rows} of rows (budget {format_bytes(space['budget'])}{dashed}) and {others} of addresses"
    axes.set_title(title, fontsize=10)
    style.grid(axes, "x")


def _draw_reads(axes: Any, read_bytes: Mapping[str, Array]) -> None:
    columns = np.stack([read_bytes[name] for name in PACKED_PARTS], axis=1)
    means, places = _thinned(columns)
    most = float(means.sum(axis=1).max(initial=0))
    size, unit = style.byte_unit(most)
    axes.stackplot(places, means.T / size, colors=list(PACKED_PARTS.values()), labels=list(PACKED_PARTS))
    axes.set(xlim=(0, max(1, len(columns))), ylim=(0, 1.1 * max(1e-9, most / size)))
    axes.set(xlabel="stored batch", ylabel=f"read from disk\nper batch, {unit}")
    style.count_axis(axes.xaxis)
    style.grid(axes, "y")


def _thinned(columns: Array) -> tuple[Array, Array]:
    """Returns (f64[p, C] means of neighbouring rows of [B, C], f64[p] their places from 0 to B)."""
    parts = np.array_split(columns, max(1, min(MOST_POINTS, len(columns))))
    means = np.array([part.mean(axis=0) if len(part) else np.zeros(columns.shape[1]) for part in parts])
    if len(means) == 1:  # a band needs two ends
        means = np.repeat(means, 2, axis=0)
    return means, np.linspace(0, max(1, len(columns)), len(means))


def _percent(count: int, total: int) -> str:
    share = 100 * count / max(1, total)
    return "below 0.1 %" if 0 < share < 0.1 else f"{share:.1f} %"
