"""The page of a report: one HTML file that needs nothing else, made of the templates page.html and parts.html.

Its style, its script and its figures stand in it, and its content policy keeps a browser from fetching anything. Every text that comes
from a file is escaped. Without the script, tables and figures are there, and only the buttons are not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from graphmill.assets.tasks.labels import COLUMN_WORDS
from graphmill.jobs.commands.results.leaderboard import leaderboard_table, remarks
from graphmill.jobs.figures.cost import LINKS
from graphmill.jobs.figures.plain_table import PlainTable
from graphmill.jobs.report.changes import ReportChanges
from graphmill.jobs.report.charts import PHASES, drawings
from graphmill.jobs.report.class_charts import class_tables
from graphmill.jobs.report.drawing import ReportFigure
from graphmill.jobs.report.facts import ReportFacts, data_table, lineage_table, prediction_table
from graphmill.jobs.report.page_parts import page_parts, templates
from graphmill.jobs.report.profile_page import pipeline_profile
from graphmill.jobs.report.series import costs, names_of
from graphmill.trainers.record.checks import TIERS

MOST_BYTES = 5_000_000
"""Most bytes of a page; time-lines are left out of a larger one, the last first."""

PLACES = {
    "quality": "leaderboard",
    "score": "learning",
    "loss": "learning",
    "hit": "caches",
    "tiers": "caches",
    "confusion": "classes",
    "reliability": "classes",
    "timeline": "timelines",
}
"""First word of a figure's name -> its section; others are costs."""


def report_page(facts: ReportFacts, changes: ReportChanges) -> str:
    """Returns the page as HTML of at most `MOST_BYTES` bytes, unless its tables alone take more."""
    figures: dict[str, list[tuple[ReportFigure, Markup]]] = defaultdict(list)
    for each in drawings(facts):
        figures[PLACES.get(each.name.partition("-")[0], "costs")].append((each, Markup(each.svg())))
    values, left_out = _values(facts, changes), 0
    while True:
        page = templates().get_template("page.html").render(values, figures=figures, left_out=left_out)
        if not figures["timelines"] or len(page.encode()) <= MOST_BYTES:
            return page
        figures["timelines"].pop()
        left_out += 1


def _values(facts: ReportFacts, changes: ReportChanges) -> dict[str, Any]:
    """Returns the values of the template, but for the figures."""
    phases, rows, moved = (costs(facts.entries, part) for part in ("seconds", "rows", "bytes"))
    return page_parts() | {
        "facts": facts,
        "changes": changes,
        "pipeline": facts.pipeline,
        "num_trained": sum(len(entry.models) for entry in facts.entries),
        "board": leaderboard_table(facts.pipeline.name, facts.entries),
        "remarks": list(remarks(facts.entries)),
        "data": data_table(facts),
        "class_tables": class_tables(facts.entries),
        "column_word": COLUMN_WORDS[facts.pipeline.graph.task][0],
        "cost_tables": [
            _cost_table("seconds of an epoch by phase, mean", phases, PHASES, "{:,.3f}"),
            _cost_table("bytes of an epoch by link, mean", moved, LINKS.values(), "{:,.0f}"),
        ],
        "tiers": _cost_table("input rows of an epoch by tier, mean", rows, TIERS.values(), "{:,.0f}"),
        "predicted": prediction_table(facts.predictions),
        "lineage": lineage_table(facts.states),
        "profile": pipeline_profile(facts.pipeline),
    }


def _cost_table(title: str, values: Mapping[str, Mapping[str, float]], order: Iterable[str], write: str) -> PlainTable:
    names = names_of(values, order)
    rows: Sequence[Sequence[str]] = [
        [table, *(write.format(each[name]) if each.get(name) else "-" for name in names)]
        for table, each in values.items()
    ]
    return PlainTable(title=title, columns=["name", *names], rows=rows if names else [], left=frozenset({"name"}))
