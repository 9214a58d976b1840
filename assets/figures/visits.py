"""The pictures of visits of nodes by batches: hit ratios of caches by policy, and the concentration of visits on few nodes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from graphmill.assets.figures.style import BLACK, BLUE, CYAN, GREEN, GREY, PURPLE, RED, grid, new_figure, save
from graphmill.kernels.types import Array

POLICIES = {
    "optimal": (BLACK, ":"),
    "bayes": (BLUE, "-"),
    "presample": (RED, "--"),
    "degree": (GREEN, "-."),
    "pagerank": (PURPLE, (0, (5, 1, 1, 1, 1, 1))),
    "random": (GREY, "-"),
}
"""Colour and dashes of each policy; others are cyan."""


def hit_ratio_curves(
    path: Path, ratios: Sequence[float], curves: Mapping[str, Array], *, chosen: str, source: str
) -> None:
    """Draws the share of input rows that a cache holds against the share of nodes in it.

    Args:
        ratios: n cache ratios, in [0, 1].
        curves: policy -> f64[n] hit ratios, in [0, 1].
        chosen: the policy that the stage ranks by; drawn thick, with its ratio of a cache of a tenth of the nodes.
        source: origin of the ratios, for the title.
    """
    figure = new_figure(3.9)
    axes = figure.subplots()
    percent = 100 * np.asarray(ratios)
    tenth = int(np.argmin(np.abs(percent - 10)))
    for name, hits in sorted(curves.items(), key=lambda item: -float(item[1][tenth])):
        colour, dashes = POLICIES.get(name, (CYAN, "-"))
        thick, said = (3.0, " (chosen)") if name == chosen else (1.5, "")
        label = f"{name}{said}: {100 * hits[tenth]:.1f} %"
        dashes = "-" if name == chosen else dashes
        axes.plot(percent, 100 * hits, label=label, color=colour, linestyle=dashes, linewidth=thick)
    if chosen in curves:
        colour = POLICIES.get(chosen, (CYAN,))[0]
        axes.plot(percent[tenth], 100 * curves[chosen][tenth], "o", color=colour, markersize=8)
    axes.set(xlim=(0, 100), ylim=(0, 100))
    axes.set(xlabel="nodes whose rows are cached, % of all nodes", ylabel="input rows found in the cache, %")
    axes.set_title(source, fontsize=10)
    grid(axes)
    axes.legend(frameon=False, loc="lower right", title="policy, with a tenth of the nodes cached", fontsize=9)
    save(figure, path)


def access_figure(path: Path, num_nodes: Array, num_accesses: Array) -> None:
    """Draws the share of all accesses that goes to the hottest nodes.

    Args:
        num_nodes, num_accesses: i64[points], numbers of hottest nodes, and of accesses to them; the last point is all of both.
    """
    figure = new_figure(3.6)
    axes = figure.subplots()
    nodes, accesses = (values / max(1, values[-1]) * 100 for values in (num_nodes, num_accesses))
    axes.plot(nodes[nodes > 0], accesses[nodes > 0], color=BLUE, linewidth=2)
    for percent in (1, 10):
        share = float(np.interp(percent, nodes, accesses))
        axes.plot(percent, share, "o", color=RED)
        said = f"{percent} % of the nodes: {share:.1f} %"
        axes.annotate(said, (percent, share), (-8, 6), textcoords="offset points", ha="right")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set(ylim=(0, 100), xlabel="hottest nodes, % of all nodes", ylabel="rows that batches ask for, % of all")
    batches = f"{int(num_accesses[-1]):,} rows asked for by all stored batches, {int(num_nodes[-1]):,} nodes"
    axes.set_title(batches, fontsize=10)
    grid(axes)
    save(figure, path)
