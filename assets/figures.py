"""The pictures of a stage, as small PNG files. matplotlib's object interface only: no global state, no display.

The same numbers give the same bytes (no date, no version in the file) with one version of matplotlib.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kernels.types import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_BARS = 40
"""More classes than this are drawn as one curve of sizes instead of named bars."""

MOST_POINTS = 200
"""More batches than this are drawn as means of neighbouring ones."""


def degree_histogram(path: Path, in_degree: Array, out_degree: Array) -> None:
    """Draws how many nodes have which degree, both axes logarithmic.

    Args:
        path: the PNG to write.
        in_degree, out_degree: i32[N]. Drawn as one curve where they are the same. Nodes of degree 0 are named in the
        title.
    """
    figure = _figure(5.0, 3.2)
    axes = figure.subplots()
    same = np.array_equal(in_degree, out_degree)
    curves = [("degree", in_degree)] if same else [("in-degree", in_degree), ("out-degree", out_degree)]
    for label, degree in curves:
        counts = np.bincount(degree, minlength=1)
        present = np.flatnonzero(counts[1:]) + 1
        axes.scatter(present, counts[present], s=6, label=label, linewidths=0)
    if any(degree.any() for _, degree in curves):
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.set_xlabel("degree")
    axes.set_ylabel("nodes")
    isolated = int(np.count_nonzero((in_degree == 0) & (out_degree == 0)))
    axes.set_title(f"{len(in_degree):,} nodes, {int(in_degree.sum(dtype=np.int64)):,} edges, {isolated:,} isolated")
    if not same:
        axes.legend()
    _save(figure, path)


def class_balance(path: Path, class_names: Sequence[str], class_counts: Array, num_unknown: int) -> None:
    """Draws how many nodes each class has, largest first.

    Args:
        path: the PNG to write.
        class_names: C names.
        class_counts: i64[C] nodes of each class.
        num_unknown: nodes without a label, named in the title.
    """
    order = np.argsort(-class_counts, kind="stable")
    many = len(order) > MOST_BARS
    figure = _figure(5.0, 3.2 if many else 1.2 + 0.2 * max(4, len(order)))
    axes = figure.subplots()
    if many:
        axes.plot(np.arange(1, len(order) + 1), class_counts[order])
        axes.set_xlabel("class, by size")
        axes.set_ylabel("nodes")
        axes.set_yscale("log")
    else:
        names = [_clip(class_names[int(label)]) for label in order]
        axes.barh(names, class_counts[order])
        axes.invert_yaxis()
        axes.set_xlabel("nodes")
    axes.set_title(f"{len(order):,} classes, {num_unknown:,} nodes without a label")
    _save(figure, path)


def hit_ratio_curves(path: Path, ratios: Sequence[float], curves: Mapping[str, Array]) -> None:
    """Draws the share of input rows that a cache holds against the share of nodes in it.

    Args:
        path: the PNG to write.
        ratios: n cache ratios.
        curves: policy -> f64[n] hit ratios.
    """
    figure = _figure(5.0, 3.4)
    axes = figure.subplots()
    for name, hits in curves.items():
        axes.plot([100 * ratio for ratio in ratios], 100 * hits, label=name, linewidth=1.2)
    axes.set_xlabel("nodes in the cache, %")
    axes.set_ylabel("input rows found there, %")
    axes.grid(alpha=0.3)
    axes.legend()
    _save(figure, path)


def access_figure(path: Path, num_nodes: Array, num_accesses: Array) -> None:
    """Draws which share of all accesses goes to the hottest nodes.

    Args:
        path: the PNG to write.
        num_nodes, num_accesses: i64[points], accesses of so many hottest nodes; the last point is all of both.
    """
    figure = _figure(5.0, 3.2)
    axes = figure.subplots()
    nodes, accesses = (values / max(1, values[-1]) * 100 for values in (num_nodes, num_accesses))
    axes.plot(nodes[nodes > 0], accesses[nodes > 0])
    axes.set_xscale("log")
    axes.set_ylim(0, 100)
    axes.set_xlabel("hottest nodes, % of all")
    axes.set_ylabel("accesses, % of all")
    axes.set_title(f"{int(num_accesses[-1]):,} accesses, {int(num_nodes[-1]):,} nodes")
    axes.grid(alpha=0.3)
    _save(figure, path)


def tier_shares(path: Path, tier_rows: Array) -> None:
    """Draws which share of each batch's rows comes from which tier, and of all rows in the legend.

    Args:
        path: the PNG to write.
        tier_rows: i64[B, 4], rows of each batch on the device, on the host, in the disk cache and in its packed chunk.
    """
    rows = np.array([part.sum(axis=0) for part in np.array_split(tier_rows, min(MOST_POINTS, len(tier_rows)))])
    shares = rows / np.maximum(1, rows.sum(axis=1, keepdims=True))
    total = tier_rows.sum(axis=0) / max(1, int(tier_rows.sum()))
    names = [
        f"{name} {share:.1%}"
        for name, share in zip(("device", "host", "disk cache", "packed"), total.tolist(), strict=True)
    ]
    figure = _figure(5.6, 3.2)
    axes = figure.subplots()
    axes.stackplot(np.linspace(0, len(tier_rows), len(shares)), shares.T, labels=names)
    axes.set_xlabel("batch")
    axes.set_ylabel("share of rows")
    axes.set_xlim(0, max(1, len(tier_rows)))
    axes.set_ylim(0, 1)
    # Beside the picture, in the order of the bands: a thin one is easily covered.
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=8, reverse=True)
    _save(figure, path)


def page_curves(path: Path, curves: Mapping[str, Array]) -> None:
    """Draws the pages that each batch reads of the disk cache, a curve an order.

    Args:
        path: the PNG to write.
        curves: order -> i64[B] pages; the totals stand in the legend.
    """
    figure = _figure(5.0, 3.2)
    axes = figure.subplots()
    for name, pages in curves.items():
        parts = [part.mean() for part in np.array_split(pages, min(MOST_POINTS, len(pages)))]
        axes.plot(np.linspace(0, len(pages), len(parts)), parts, label=f"{name}: {int(pages.sum()):,}", linewidth=1.2)
    axes.set_xlabel("batch")
    axes.set_ylabel("pages a batch reads")
    axes.set_xlim(0, max(1, *(len(pages) for pages in curves.values())))
    axes.set_ylim(0, 1.3 * max(1, *(int(pages.max(initial=0)) for pages in curves.values())))
    axes.grid(alpha=0.3)
    axes.legend(loc="upper center", ncols=len(curves), fontsize=8)
    _save(figure, path)


def _figure(width: float, height: float) -> Figure:
    """Returns an empty figure of this size in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=90, format="png", metadata={"Software": None})


def _clip(name: str, most: int = 28) -> str:
    """Shortens a name, and keeps `$` from starting a formula."""
    return (name if len(name) <= most else name[: most - 1] + "…").replace("$", r"\$")
