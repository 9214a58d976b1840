"""The pictures of a graph: its degrees and its classes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from graphmill.assets.figures.style import BLUE, RED, clip, count_axis, grid, new_figure, save
from graphmill.kernels.ranges import node_ranges
from graphmill.kernels.types import Array

MOST_BARS = 30
"""Most bars; of more classes the largest ones are drawn, and the title counts the others."""


def degree_histogram(path: Path, in_degree: Array, out_degree: Array) -> None:
    """Draws the number of nodes by degree, with logarithmic axes.

    Args:
        in_degree, out_degree: i32[N]. Drawn as one curve if they are equal. Nodes of degree 0 are named in the title.
    """
    figure = new_figure(3.6)
    axes = figure.subplots()
    same = np.array_equal(in_degree, out_degree)
    curves = [("degree", in_degree)] if same else [("in-degree", in_degree), ("out-degree", out_degree)]
    for (label, degree), colour, marker in zip(curves, (BLUE, RED), ("o", "x"), strict=False):
        counts = np.zeros(int(degree.max(initial=0)) + 1, np.int64)
        for low, high in node_ranges(len(degree)):
            found = np.bincount(degree[low:high])
            counts[: len(found)] += found
        present = np.flatnonzero(counts[1:]) + 1
        axes.scatter(
            present, counts[present], s=12, label=label, color=colour, marker=marker, linewidths=0.8, alpha=0.8
        )
    if any(degree.any() for _, degree in curves):
        axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        count_axis(axis)
    grid(axes)
    axes.set(xlabel="neighbours of a node" if same else "edges into or out of a node", ylabel="nodes with so many")
    isolated = sum(
        int(np.count_nonzero((in_degree[low:high] == 0) & (out_degree[low:high] == 0)))
        for low, high in node_ranges(len(in_degree))
    )
    axes.set_title(
        f"{len(in_degree):,} nodes, {int(in_degree.sum(dtype=np.int64)):,} edges; {isolated:,} nodes without an edge",
        fontsize=10,
    )
    if not same:
        axes.legend(frameon=False, markerscale=1.5)
    save(figure, path)


def class_balance(path: Path, class_names: Sequence[str], class_counts: Array, num_unknown: int) -> None:
    """Draws how many nodes each class has, largest first; of very many classes the largest ones.

    Args:
        class_names: C names: the source's, or the numbers of the classes if it has none.
        class_counts: i64[C] number of nodes of each class.
        num_unknown: number of nodes without a label, named in the title.
    """
    order = np.argsort(-class_counts, kind="stable")
    named, others = order[:MOST_BARS], order[MOST_BARS:]
    total = int(class_counts.sum())
    figure = new_figure(1.2 + 0.23 * max(4, len(named)) + 0.2 * bool(len(others)))
    axes = figure.subplots()
    numbered = all(name.isdigit() for name in class_names)
    names = [f"class {class_names[int(c)]}" if numbered else clip(class_names[int(c)]) for c in named]
    places = np.arange(len(named))
    axes.barh(places, class_counts[named], color=BLUE)
    axes.set_yticks(places, names)
    axes.set_ylim(len(named) - 0.4, -0.6)
    for place, count in enumerate(class_counts[named].tolist()):
        axes.text(count, place, f" {count:,} ({100 * count / max(1, total):.1f} %)", va="center", fontsize=8)
    axes.set_xlim(0, 1.22 * max(1, int(class_counts.max(initial=0))))
    axes.set_xlabel("nodes of the class, and their share of the nodes with a label")
    count_axis(axes.xaxis)
    grid(axes, "x")
    title = f"{len(order):,} classes of {total:,} nodes, {num_unknown:,} nodes without a label"
    if len(others):
        left, smallest = int(class_counts[others].sum()), int(class_counts[others].min())
        title += f"\nnot drawn: {len(others):,} smaller classes, {left:,} nodes together, {smallest:,} in the smallest"
    axes.set_title(title, fontsize=10)
    save(figure, path)
