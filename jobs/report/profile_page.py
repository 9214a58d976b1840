"""The profile of tables on a page: a table for the columns of each, with a chart of their values, and tables of relations and classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.sources.folder.guess import guessed
from graphmill.assets.sources.profile.profile import PARTS, Profile, column_bars, profiled
from graphmill.jobs.commands.options import Asked
from graphmill.jobs.commands.pipelines.inspect_folder import COLUMNS, column_rows, profile_of
from graphmill.jobs.commands.pipelines.inspect_source import is_folder_of_tables, profiled_graph, small_tables
from graphmill.jobs.figures.plain_table import PlainTable
from graphmill.jobs.report.page_parts import page_parts, templates
from graphmill.kernels.errors import InputError, one_line

WIDTH, HEIGHT = 112, 24
"""Size of a chart, in the units of its own space."""
NUMBERS = frozenset(("missing", "different"))
ENDS = (
    "relation", "end", "names", "rows", "rows without id", "rows without a node", "least edges", "median edges", "most edges",
    "nodes without edges",
)  # fmt: skip

COUNTED = ("gaps", "lost", "least", "median", "most", "isolated")
"""Numbers of an end of a relation, in the order of the columns."""


@dataclass(frozen=True)
class ProfileTables:
    """The tables of a profile.

    Attributes:
        columns: for each table its columns, and a chart for each of them.
        others: tables of relations and of classes, those with rows.
        leaks: sentences.
    """

    columns: Sequence[tuple[PlainTable, Sequence[Markup]]]
    others: Sequence[PlainTable]
    leaks: Sequence[str]


def pipeline_profile(pipeline: Pipeline) -> ProfileTables | None:
    """Returns the profile of the tables of a pipeline; None if they are no more there, too large for a page, or not tables."""
    try:
        if not small_tables(pipeline):
            return None
        with profiled(profiled_graph(pipeline)) as profile:
            return None if profile is None else profile_tables(profile)
    except InputError:  # the models are there without their raw data
        return None


def profile_page(asked: Asked) -> tuple[str, str]:
    """Returns the name of a pipeline or of a folder of tables, and the profile of its tables, also of large ones, as a page.

    Raises:
        InputError: there are no tables, or they cannot be read.
    """
    if is_folder_of_tables(folder := Path(asked.name)):
        with guessed(folder.absolute()) as guess:
            return folder.absolute().name, _page(asked, folder.absolute().name, profile_of(guess))
    pipeline = asked.load()
    with profiled(profiled_graph(pipeline)) as profile:
        if profile is None:
            problem = f"source = '{pipeline.graph.source}' reads no tables with columns"
            raise InputError(problem, f"graphmill inspect {pipeline.reference} shows what it holds")
        return pipeline.name, _page(asked, pipeline.name, profile)


def _page(asked: Asked, name: str, profile: Profile) -> str:
    words = {"title": f"{name}: data", "command": f"graphmill report {asked.name} --data"}
    values = page_parts() | {"profile": profile_tables(profile)} | words
    return templates().get_template("profile.html").render(values)


def profile_tables(profile: Profile) -> ProfileTables:
    """Returns the tables of a profile whose files are open."""
    columns = []
    for table in profile.graph.tables:
        rows = column_rows(profile, table)
        shown = PlainTable(
            title=f"{table.name}: {table.rows:,} rows, {one_line(Path(table.path).name)}",
            columns=COLUMNS,
            rows=rows,
            left=frozenset(COLUMNS) - NUMBERS,
        )
        columns.append((shown, [chart(column_bars(table, each), each.name) for each in table.columns]))
    others = [_relation_table(profile), _class_table(profile)]
    return ProfileTables(columns, [each for each in others if each.rows], profile.leaks)


def chart(bars: Sequence[tuple[str, int]], name: str) -> Markup:
    """Returns the bars as an SVG in the colour of the text around it; empty without bars."""
    if not bars:
        return Markup()
    most, step = max(rows for _, rows in bars) or 1, WIDTH / max(8, len(bars))
    drawn = Markup().join(
        Markup('<rect x="{:.4g}" y="{:.4g}" width="{:.4g}" height="{:.4g}"><title>{}: {:,}</title></rect>').format(
            place * step, HEIGHT * (1 - rows / most), 0.85 * step, HEIGHT * rows / most, one_line(value), rows
        )
        for place, (value, rows) in enumerate(bars)
    )
    says = f"{one_line(name)}: {', '.join(f'{one_line(value)} {rows:,}' for value, rows in bars)}"
    head = Markup('<svg class="bars" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(WIDTH, HEIGHT, says)
    return head + drawn + Markup("</svg>")


def _relation_table(profile: Profile) -> PlainTable:
    rows = [
        [each.name, end.column, end.node_type, f"{each.edges:,}", *(f"{getattr(end, key):,}" for key in COUNTED)]
        for each in profile.relations
        for end in each.ends
    ]
    return PlainTable(title="relations", columns=ENDS, rows=rows, left=frozenset(ENDS[:3]))


def _class_table(profile: Profile) -> PlainTable:
    classes = profile.classes
    total = sum(each.rows for each in classes)
    totals = {part: sum(each.parts.get(part, 0) for each in classes) for part in PARTS}
    totals = {part: rows for part, rows in totals.items() if rows}
    rows = [
        [
            each.name,
            f"{each.rows:,}",
            f"{each.rows / total:.1%}",
            *(f"{each.parts[p] / n:.1%}" for p, n in totals.items()),
        ]
        for each in classes
    ]
    columns = ["class", "rows", "share", *(f"share of {part}" for part in totals)]
    title = "" if profile.graph.label is None else f"classes: {one_line(profile.graph.label[1])}"
    return PlainTable(title=title, columns=columns, rows=rows, left=frozenset(("class",)))
