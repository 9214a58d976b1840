"""The common style of all pictures: their size, their colours, the words on their axes, and how they are saved.

Only matplotlib's object interface is used, without global state or a display. The same numbers give the same bytes (no date, no
version in the file) with one version of matplotlib. The web UI shows a picture in its own size, so each is 700 pixels wide.

The colours are those of Paul Tol's "bright" scheme, which stay apart for readers who do not see red and green apart. One thing has one
colour in every picture: things near the computation are blue or cyan, things far away are yellow or red.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, DPI = 7.0, 100
"""Inches, and pixels per inch."""
COLOURS = 128
"""Number of colours of a picture's palette: a few, and their shades at the edges of letters and lines."""

BLUE, CYAN, GREEN, YELLOW, RED, PURPLE, GREY = (
    "#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#bbbbbb",
)  # fmt: skip
BLACK, LIGHT = "#222222", "#e4e4e4"
SERIES = (BLUE, RED, GREEN, PURPLE, YELLOW, CYAN, BLACK)
"""Colours of curves of one kind, such as one per seed."""
MARKERS = "os^Dv*X"
"""Markers of the same curves: colour is never the only difference."""
MANY = 10_000_000
"""An axis that reaches this count is labelled in millions."""

LEVELS = {
    "device": BLUE,
    "devices of other ranks": "#223a6b",
    "arena": PURPLE,
    "own shards": GREY,
    "host": CYAN,
    "other ranks": BLACK,
    "disk cache": GREEN,
    "packed": YELLOW,
    "feature file": RED,
}
"""Colours of the levels that feature rows come from."""


def new_figure(height: float) -> Figure:
    """Returns an empty figure of the common width and a height in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")


def png(figure: Figure) -> bytes:
    """Returns a figure as PNG with a palette of its own, which takes a third of the bytes."""
    from PIL import Image

    drawn, saved = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, dpi=DPI, format="png", metadata={"Software": None})
    image = Image.open(drawn).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    image.save(saved, format="png", optimize=True)
    return saved.getvalue()


def save(figure: Figure, path: Path) -> None:
    """Writes a figure as PNG."""
    path.write_bytes(png(figure))


def grid(axes: Any, axis: str = "both") -> None:
    """Draws thin lines behind the data, and removes the frame."""
    axes.grid(axis=axis, color=LIGHT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def count_axis(axis: Any) -> None:
    """Labels an axis of counts, after they are drawn: whole numbers with commas, millions (M) where they are many, powers of ten where the
    axis is logarithmic and long.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    if axis.get_scale() == "log":
        low, high = axis.get_view_interval()
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,), numticks=9))
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    million = axis.get_view_interval()[1] >= MANY
    axis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value / 1e6:,g} M" if million and value >= 1e6 else f"{value:,.0f}")
    )


def byte_unit(largest: float) -> tuple[int, str]:
    """Returns the unit of an axis whose largest value is `largest` bytes: its bytes and its name."""
    names = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    power = next((power for power in range(len(names)) if largest < 1024 ** (power + 1)), len(names) - 1)
    return 1024**power, names[power]


def stacked_bar(axes: Any, parts: list[tuple[str, float, str]]) -> None:
    """Draws a bar of several lengths side by side, (label, length, colour) from the left."""
    start = 0.0
    for label, length, colour in parts:
        axes.barh(0, length, left=start, color=colour, label=label, edgecolor="white", linewidth=0.6)
        start += length


def clip(name: str, most: int = 28) -> str:
    """Shortens a name, and keeps `$` from starting a formula."""
    return (name if len(name) <= most else name[: most - 1] + "…").replace("$", r"\$")
