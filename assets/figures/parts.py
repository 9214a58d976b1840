"""The picture of a partition: the sizes of its parts, and the edges between them."""

from pathlib import Path

import numpy as np

from graphmill.assets.figures.style import BLUE, GREY, count_axis, new_figure, save
from graphmill.kernels.types import Array

MOST_NAMED = 32
"""Number of parts up to which every one has a mark on the axes."""


def part_figure(path: Path, sizes: Array, cut: Array) -> None:
    """Draws nodes by part (i64[P]), and the share of each part's in-edges by the part they come from (i64[P, P], the column)."""
    figure = new_figure(3.4)
    bars, matrix = figure.subplots(1, 2)
    places = np.arange(len(sizes))
    bars.bar(places, sizes, color=BLUE)
    bars.axhline(sizes.mean() if len(sizes) else 0, color=GREY, linewidth=1)
    bars.set(xlabel="part", ylabel="nodes")
    bars.set_title("sizes; line: mean", fontsize=10)
    count_axis(bars.yaxis)
    shares = 100 * cut / np.maximum(1, cut.sum(axis=1, keepdims=True))
    image = matrix.imshow(shares, cmap="Blues", vmin=0, vmax=100, interpolation="nearest")
    matrix.set(xlabel="edges come from part", ylabel="edges lead to part")
    matrix.set_title("in-edges of a part, % by origin", fontsize=10)
    if len(sizes) <= MOST_NAMED:
        for axis in (bars.xaxis, matrix.xaxis, matrix.yaxis):
            axis.set_ticks(places[:: max(1, len(places) // 8)])
    figure.colorbar(image, ax=matrix, fraction=0.046)
    save(figure, path)
