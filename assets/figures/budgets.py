"""The picture of budgets: the bytes of each level of the memory, and their users."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from graphmill.assets.figures.style import BLUE, CYAN, GREY, LIGHT, PURPLE, RED, YELLOW, grid, new_figure, save
from graphmill.assets.sizes import format_bytes

COLOURS = {
    "rows on the device": BLUE,
    "rows on the host": CYAN,
    "rows in the feature file alone": RED,
    "budget that no row needs": "white",
    "work of the training": PURPLE,
    "packed rows": YELLOW,
    "the logical device": GREY,
    "not given to graphmill": LIGHT,
}
"""Colours of the users of a level's bytes."""

SHARE_WITH_TEXT = 0.11
"""A part that is larger than this share of its level has its bytes written into it."""


class Level(NamedTuple):
    """One bar: (user of the bytes, a name of `COLOURS`; number of bytes) of each part, from the left."""

    name: str
    parts: Sequence[tuple[str, int]]

    @property
    def num_bytes(self) -> int:
        """Number of bytes of the whole level."""
        return sum(size for _, size in self.parts)


def budget_bars(path: Path, levels: Sequence[Level], title: str) -> None:
    """Draws a bar per level, all of the same length, since a disk has many times the bytes of a device."""
    figure = new_figure(1.5 + 0.7 * len(levels))
    axes = figure.subplots()
    for place, level in enumerate(levels):
        _draw_level(axes, place, level)
    axes.set(xlim=(0, 100), ylim=(len(levels) - 0.35, -0.6), xlabel="share of the level, %")
    axes.set_yticks(range(len(levels)), [f"{level.name}\n{format_bytes(level.num_bytes)}" for level in levels])
    axes.set_title(title, fontsize=10)
    grid(axes, "x")
    handles, names = axes.get_legend_handles_labels()
    found = dict(zip(names, handles, strict=True))
    figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    save(figure, path)


def _draw_level(axes: Any, place: int, level: Level) -> None:
    """Draws one bar; the bytes of parts that are too narrow for text stand below it."""
    start, total, narrow = 0.0, max(1, level.num_bytes), []
    for what, num_bytes in level.parts:
        if num_bytes == 0:
            continue
        share, colour = num_bytes / total, COLOURS[what]
        hatch = {"hatch": "///", "edgecolor": GREY} if colour == "white" else {"edgecolor": "white"}
        axes.barh(place, 100 * share, 0.55, left=start, color=colour, label=what, linewidth=0.6, **hatch)
        if share > SHARE_WITH_TEXT:
            plain = {"facecolor": "white", "edgecolor": "none", "pad": 1} if colour == "white" else None
            ink = "white" if colour in (BLUE, RED, PURPLE) else "black"
            middle = start + 50 * share
            axes.text(
                middle, place, format_bytes(num_bytes), ha="center", va="center", fontsize=9, color=ink, bbox=plain
            )
        else:
            narrow.append(f"{what}: {format_bytes(num_bytes)}")
        start += 100 * share
    axes.text(0.5, place + 0.42, ", ".join(narrow), va="center", fontsize=8)
