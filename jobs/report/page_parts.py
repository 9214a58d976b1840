"""The templates of pages, and what all pages have: their style and their script."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from graphmill.jobs.report.drawing import dark_colours
from graphmill.kernels.errors import UNPRINTABLE

HERE = Path(__file__).parent

LONG_CELL = 40
"""A cell with more characters may be folded."""


def page_parts() -> dict[str, Markup]:
    """Returns the style and the script, by their names in the templates."""
    style = (HERE / "page.css").read_text().replace("DARK_COLOURS", dark_colours())
    return {"style": Markup(style), "script": Markup((HERE / "page.js").read_text())}


@cache
def templates() -> Environment:
    """Returns the templates; every value is escaped unless it is `Markup`, and letters that no eye sees are spelled."""
    found = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_spelled,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.globals["long_cell"] = LONG_CELL
    found.filters |= {"moment": lambda time: time.strftime("%Y-%m-%d %H:%M UTC"), "count": _count}
    return found


def _spelled(value: Any) -> Any:
    """Returns a text with its control characters spelled, which may show the text behind them in another order."""
    return (
        value if isinstance(value, Markup) or not isinstance(value, str | Path) else str(value).translate(UNPRINTABLE)
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
