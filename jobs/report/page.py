"""The page of a report: one HTML file that needs nothing else.

Its style, its script and its figures stand in it, and its content policy keeps a browser from fetching anything. Every text that comes
from a file is escaped. Without the script, tables and figures are there, and only the buttons are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from graphmill.jobs.commands.leaderboard import leaderboard_table, remarks
from graphmill.jobs.figures.cost import LINKS
from graphmill.jobs.figures.plain_table import PlainTable
from graphmill.jobs.report.changes import ReportChanges
from graphmill.jobs.report.charts import PHASES, drawings
from graphmill.jobs.report.drawing import ReportFigure, dark_colours
from graphmill.jobs.report.facts import ReportFacts, lineage_table
from graphmill.jobs.report.predictions import prediction_table
from graphmill.jobs.report.series import costs, names_of
from graphmill.trainers.record.checks import TIERS

HERE = Path(__file__).parent
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""What a browser may load for the page: nothing from elsewhere."""

MOST_BYTES = 5_000_000
"""Most bytes of a page; time-lines are left out of a larger one, the last first."""

LONG_CELL = 40
"""A cell with more characters may be folded."""

SECTIONS = {
    "leaderboard": "Leaderboard",
    "changes": "Since the last report",
    "learning": "Learning",
    "costs": "Costs of an epoch",
    "caches": "Caches and tiers",
    "timelines": "Time-lines",
    "predictions": "Predicted and measured",
    "lineage": "Lineage",
    "recipe": "Recipe",
}
PLACES = {
    "quality": "leaderboard",
    "score": "learning",
    "loss": "learning",
    "hit": "caches",
    "tiers": "caches",
    "timeline": "timelines",
}
"""First word of a figure's name -> its section; others are costs."""


def report_page(facts: ReportFacts, changes: ReportChanges) -> str:
    """Returns the page as HTML of at most `MOST_BYTES` bytes, unless its tables alone take more."""
    figures = [(each, _figure(each)) for each in drawings(facts)]
    left_out = 0
    while True:
        page = _page(facts, changes, figures, left_out)
        last = next((pair for pair in reversed(figures) if _section(pair[0]) == "timelines"), None)
        if last is None or len(page.encode()) <= MOST_BYTES:
            return page
        figures.remove(last)
        left_out += 1


def _page(
    facts: ReportFacts, changes: ReportChanges, figures: Sequence[tuple[ReportFigure, str]], left_out: int
) -> str:
    contents = _contents(facts, changes)
    if left_out:
        command = f"graphmill timeline {facts.pipeline.reference}/NAME"
        contents["timelines"] += f"<p>{left_out} more are left out of this page: {escape(command)} draws each.</p>\n"
    for name in SECTIONS:
        drawn = "\n".join(text for each, text in figures if _section(each) == name)
        drawn = f'<div class="figures">\n{drawn}\n</div>\n' if drawn else ""
        contents[name] = contents[name] + drawn if name == "leaderboard" else drawn + contents[name]
    shown = {name: text for name, text in contents.items() if text}
    title = escape(f"{facts.pipeline.name}: report")
    style = (HERE / "page.css").read_text().replace("DARK_COLOURS", dark_colours())
    links = "\n".join(f'<a href="#{name}">{SECTIONS[name]}</a>' for name in shown)
    body = "\n".join(
        f'<section id="{name}" aria-labelledby="{name}-h">\n<h2 id="{name}-h">{SECTIONS[name]}</h2>\n{text}</section>'
        for name, text in shown.items()
    )
    return f"""<!doctype html>
<html lang="en" class="still">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{title}</h1>
{_header(facts)}</header>
<nav aria-label="Sections">
{links}
</nav>
<main>
{body}
</main>
<script>
{(HERE / "page.js").read_text()}</script>
</body>
</html>
"""


def _header(facts: ReportFacts) -> str:
    trained = sum(len(entry.models) for entry in facts.entries)
    lines = [f"<p>{escape(facts.pipeline.notes.description)}</p>"] if facts.pipeline.notes.description else []
    made, command = facts.made.strftime("%Y-%m-%d %H:%M UTC"), f"graphmill report {facts.pipeline.reference}"
    models, tables = _count(trained, "trained model"), _count(len(facts.entries), "train table")
    what = f"{models} of {tables}, from {facts.home}"
    lines.append(f'<p class="soft">{escape(f"{made}. {what}. Written by: {command}")}</p>')
    if facts.missing:
        missing = f"Not there: {len(facts.missing)} of {_count(len(facts.states), 'artifact')}"
        goes_on = f"graphmill run {facts.pipeline.reference} builds what is missing, and the lineage below names it."
        lines.append(f'<p class="warn">{escape(f"{missing}. {goes_on}")}</p>')
    if (run := facts.last_run) is not None and run.status != "SUCCESS":
        seen = f"{run.seen:%Y-%m-%d %H:%M UTC}"
        state = f"Run {run.run_id} is on its way: {run.status} since {seen}."
        if run.over:
            state = f"The last run, {run.run_id}, has the state {run.status} since {seen}."
        lines.append(f'<p class="{"warn" if run.over else "soft"}">{escape(state)}</p>')
        lines += [f"<pre>{escape(text)}</pre>" for text in run.failures]
    return "\n".join(lines) + "\n"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _contents(facts: ReportFacts, changes: ReportChanges) -> dict[str, str]:
    """Returns section -> its HTML without figures."""
    pipeline = facts.pipeline
    board = leaderboard_table(pipeline.name, facts.entries)
    notes = "\n".join(f"<li>{escape(line)}</li>" for line in remarks(facts.entries))
    phases, rows, moved = (costs(facts.entries, part) for part in ("seconds", "rows", "bytes"))
    cost_tables = [
        _cost_table("seconds of an epoch by phase, mean", phases, PHASES, "{:,.3f}"),
        _cost_table("bytes of an epoch by link, mean", moved, LINKS.values(), "{:,.0f}"),
    ]
    tiers = _cost_table("input rows of an epoch by tier, mean", rows, TIERS.values(), "{:,.0f}")
    found = facts.predictions
    settings = f"<p>With the settings <code>{escape(pipeline.settings)}</code>.</p>\n" if pipeline.settings else ""
    recipe = f'<pre tabindex="0" aria-label="pipeline file">{escape(pipeline.text)}</pre>'
    return {
        "leaderboard": html_table(board, "leaderboard-table") + (f"<ul>\n{notes}\n</ul>\n" if notes else ""),
        "changes": _changes(changes),
        "learning": "",
        "costs": "".join(html_table(each, f"cost-{number}") for number, each in enumerate(cost_tables) if each.rows),
        "caches": html_table(tiers, "tiers-table") if tiers.rows else "",
        "timelines": "",
        "predictions": html_table(prediction_table(found), "prediction-table") if found else "",
        "lineage": html_table(lineage_table(facts.states), "lineage-table"),
        "recipe": f'<p class="soft">{escape(str(pipeline.path))}</p>\n{settings}{recipe}\n',
    }


def _cost_table(title: str, values: Mapping[str, Mapping[str, float]], order: Iterable[str], write: str) -> PlainTable:
    names = names_of(values, order)
    rows = [
        [table, *(write.format(each[name]) if each.get(name) else "-" for name in names)]
        for table, each in values.items()
    ]
    return PlainTable(title=title, columns=["name", *names], rows=rows if names else [], left=frozenset({"name"}))


def _changes(changes: ReportChanges) -> str:
    if changes.since is None:
        return "<p>This is the first report of this pipeline in this home. The next one shows what has changed since.</p>\n"
    since = changes.since.strftime("%Y-%m-%d %H:%M UTC")
    if not changes.any:
        return f"<p>Nothing has changed since the last report, of {since}.</p>\n"
    found = [f"<p>The last report is of {since}.</p>\n"]
    found += [
        html_table(each, f"change-{number}")
        for number, each in enumerate((changes.scores, changes.artifacts))
        if each.rows
    ]
    if changes.recipe:
        lines = escape("\n".join(changes.recipe))
        found.append(
            f'<h3>changed lines of the pipeline file</h3>\n<pre tabindex="0" aria-label="changed lines">{lines}</pre>\n'
        )
    return "".join(found)


def html_table(table: PlainTable, name: str) -> str:
    """Returns a table as HTML, with buttons that copy it.

    Args:
        table: the table.
        name: an id that no other element of the page has.
    """
    forms = {"Markdown": table.markdown(), "LaTeX": table.latex()}
    buttons = "".join(_button(form, f'data-copy="{name}-{form}"', f"Copy {table.title} as {form}") for form in forms)
    areas = "\n".join(
        f'<textarea id="{name}-{form}" aria-label="{escape(f"{table.title} as {form}")}" readonly hidden>{escape(text)}</textarea>'
        for form, text in forms.items()
    )
    heads = "".join(f'<th scope="col"{_aligned(table, column)}>{escape(column)}</th>' for column in table.columns)
    rows = "\n".join(f"<tr>{''.join(_cells(table, row))}</tr>" for row in table.rows)
    return f"""<div class="block">
<div class="head"><h3>{escape(table.title)}</h3><span class="buttons">{buttons}</span></div>
<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}">
<table id="{name}">
<thead><tr>{heads}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>
{areas}
</div>
"""


def _cells(table: PlainTable, row: Sequence[str]) -> Iterator[str]:
    for place, (column, cell) in enumerate(zip(table.columns, row, strict=True)):
        wide = len(cell) > LONG_CELL
        if place == 0:
            yield f'<th scope="row" class="left">{escape(cell)}</th>'
        else:
            yield f"<td{_aligned(table, column, wide=wide)}>{escape(cell)}</td>"


def _aligned(table: PlainTable, column: str, *, wide: bool = False) -> str:
    classes = [*(["left"] if column in table.left else []), *(["wide"] if wide else [])]
    return f' class="{" ".join(classes)}"' if classes else ""


def _button(label: str, data: str, says: str) -> str:
    return f'<button type="button" {data} aria-label="{escape(says)}">{label}</button>'


def _figure(drawing: ReportFigure) -> str:
    save = _button("SVG", f'data-save="{drawing.name}.svg"', f"Save {drawing.title} as SVG")
    head = f'<div class="head"><h3>{escape(drawing.title)}</h3><span class="buttons">{save}</span></div>'
    return f"<figure>\n{head}\n{drawing.svg()}</figure>"


def _section(drawing: ReportFigure) -> str:
    return PLACES.get(drawing.name.partition("-")[0], "costs")
