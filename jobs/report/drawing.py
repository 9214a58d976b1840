"""Turns drawn figures into SVG for a page, and into SVG and PNG files.

Figures are drawn by matplotlib, a third of a wide page across, so that their letters stay readable on a phone. In the SVG of a page each
colour is a variable of the page with the drawn colour as its fallback: the page has another value in the dark, and a file without the page
looks as it was drawn. Letters stay text, in the fonts of the page. Ids are made unique, since all figures of a page share one space of ids.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from graphmill.assets.figures.style import BLACK, BLUE, CYAN, GREEN, GREY, LIGHT, PURPLE, RED, YELLOW

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, DPI = 4.5, 160
"""Inches, and pixels per inch of a PNG."""

INK, PAPER = "#1c2024", "#ffffff"
"""Colours of letters and axes, and of edges between bars, which nothing else has."""

DARK = {
    INK: "#e6e8eb",
    PAPER: "#16191d",
    LIGHT: "#343a42",
    BLACK: "#dcdfe3",
    BLUE: "#6da5de",
    PURPLE: "#d873ac",
    GREEN: "#4db863",
    GREY: "#8a8f96",
    CYAN: "#66ccee",
    YELLOW: "#ccbb44",
    RED: "#ee6677",
    "#223a6b": "#8fa8e0",
    "#222266": "#8a8af0",
    "#882233": "#d06a7d",
    "#114444": "#4fa3a3",
    "#553311": "#b5835a",
    "#88882a": "#b8b85a",
    "#cc3311": "#e8694a",
    "#dddddd": "#3a4049",
    "#999999": "#8a8f96",
}
"""Colour on a light page -> colour in its place on a dark one; others are the same on both."""

INHERITED = "stroke-linejoin: round; stroke-linecap: butt"
"""The one rule of matplotlib's style sheet, which would hold for the whole page there."""

FONT = "system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif"
SHEET = re.compile(r"<defs>\s*<style.*?</style>\s*</defs>\s*", re.S)
SIZE = re.compile(r'width="([\d.]+)pt" height="([\d.]+)pt"')
COLOUR = re.compile(r"(fill|stroke): (#[0-9a-f]{6})")
FILL = re.compile(r'fill="(#[0-9a-f]{6})"')
BLANKS = re.compile(r"\s+")
IN_STYLE = re.compile(r'style="([^"]*)"')
NUMBERS = re.compile(r' (?:d|points|transform|x|y)="[^"]*"')
VARIABLE = re.compile(r"var\(--c[0-9a-f]{6}, (#[0-9a-f]{6})\)")
DECIMALS = re.compile(r"(\d\.\d\d)\d+")


@dataclass(frozen=True, kw_only=True)
class ReportFigure:
    """A figure of a report.

    Attributes:
        name: its name in a file name and an id: letters, digits, - and _.
        title: one line.
        says: a sentence on what is drawn, for readers who do not see it.
        draw: function that draws it on an empty matplotlib figure of the common width.
        height: inches.
    """

    name: str
    title: str
    says: str
    draw: Callable[[Any], None] = field(repr=False)
    height: float = 3.2

    def svg(self) -> str:
        """Returns the figure as an SVG element for a page, whose variables may change its colours."""
        drawn = io.StringIO()
        with _style(self.name):
            self._figure().savefig(drawn, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        return _for_page(drawn.getvalue(), self)

    def svg_file(self) -> bytes:
        """Returns the figure as an SVG file, for programs that know no variables."""
        return ('<?xml version="1.0" encoding="utf-8"?>\n' + VARIABLE.sub(r"\1", self.svg())).encode()

    def png(self) -> bytes:
        """Returns the figure as a PNG on white."""
        drawn = io.BytesIO()
        with _style(self.name):
            self._figure().savefig(drawn, format="png", dpi=DPI, facecolor=PAPER, metadata={"Software": None})
        return drawn.getvalue()

    def _figure(self) -> Figure:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(WIDTH, self.height), layout="constrained")
        self.draw(figure)
        return figure


def _style(name: str) -> Any:
    import matplotlib as mpl

    ink = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK)
    # A name in a label is text: no formula begins at a dollar sign.
    text = {"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": name, "font.size": 10}
    sizes = {"axes.labelsize": 10, "xtick.labelsize": 9, "ytick.labelsize": 9, "legend.fontsize": 9}
    settings: Any = ink | text | sizes | {"legend.frameon": False}
    return mpl.rc_context(settings)


def _for_page(text: str, drawing: ReportFigure) -> str:
    svg = text[text.index("<svg") :]
    svg = SHEET.sub("", re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.S))
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{drawing.name}-\1"', svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\1{drawing.name}-", svg)
    svg = NUMBERS.sub(lambda found: " " + BLANKS.sub(" ", DECIMALS.sub(r"\1", found[0])).strip(), svg)
    svg = FILL.sub(r'style="fill: \1"', svg)
    svg = IN_STYLE.sub(lambda found: f'style="{_styled(found[1])}"', svg)
    # A size in points would keep it from filling its place.
    head = f'style="{INHERITED}" role="img" aria-labelledby="{drawing.name}-title {drawing.name}-desc"'
    svg = SIZE.sub(head, svg, count=1)
    title = f'<title id="{drawing.name}-title">{html.escape(drawing.title)}</title>'
    says = f'<desc id="{drawing.name}-desc">{html.escape(drawing.says)}</desc>'
    opened = svg.index(">") + 1
    return f"{svg[:opened]}\n {title}\n {says}{svg[opened:]}".strip() + "\n"


def _styled(style: str) -> str:
    """Returns a style with variables for colours, and the fonts of the page."""
    style = re.sub(r"(font(?:-family)?: ?(?:[\w.]+px )?)[^;]*(?:DejaVu Sans|sans-serif)[^;]*", rf"\1{FONT}", style)
    return COLOUR.sub(lambda found: f"{found[1]}: {variable(found[2])}", style)


def variable(colour: str) -> str:
    """Returns a colour as a variable of the page, with itself as the fallback."""
    return f"var(--c{colour[1:]}, {colour})" if colour in DARK else colour


def dark_colours() -> str:
    """Returns the declarations of the variables for a dark page."""
    return " ".join(f"--c{light[1:]}: {dark};" for light, dark in DARK.items())
