"""The commands `graphmill report` and `graphmill plot`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graphmill.jobs.commands.options import Asked, pipeline_argument
from graphmill.kernels.errors import InputError

if TYPE_CHECKING:
    from graphmill.assets.pipeline.file import Pipeline
    from graphmill.jobs.report.facts import ReportFacts
    from graphmill.jobs.report.series import Axis, Value

STANDARD_OUTPUT = Path("-")
WARNING = "warning: "
TERMINAL_WIDTH = 80
"""Columns of a picture in a file or a pipe."""

VALUES: tuple[Value, ...] = ("valid", "loss")
AXES: dict[Axis, str] = {"epochs": "epochs", "seconds": "seconds of training"}
"""The curves that are printed, in words."""


@click.command(short_help="Writes all results of a pipeline as one page.")
@pipeline_argument
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The HTML file; default reports/PIPELINE.html in the home. - prints the page, and remembers nothing of it.",
)
@click.option(
    "--data",
    is_flag=True,
    help="Write what the tables hold alone, before a training; PIPELINE may be a folder of tables.",
)
@click.pass_obj
def report(home: Path | None, pipeline: Asked, out: Path | None, data: bool) -> None:
    """Writes one page with the results of a pipeline's models, for any browser, offline: the data, scores, costs, curves, caches,
    time-lines, versions, predictions, the recipe, and what has changed since the last report. Trains nothing; runs may be on their way.

    Example: graphmill report showcase --out showcase.html
    """
    if data:
        _write_data(home, pipeline, out)
        return
    if out == STANDARD_OUTPUT:
        from graphmill.jobs.report.changes import find_changes
        from graphmill.jobs.report.facts import read_facts
        from graphmill.jobs.report.page import report_page

        facts = read_facts(pipeline.load(), home)
        click.echo(report_page(facts, find_changes(facts)), nl=False)
        return
    path, lines = write_report(pipeline.load(), home, out)
    click.echo(f"{path} is written; any browser shows it")
    for line in lines:
        click.echo(line, err=line.startswith(WARNING))


def write_report(pipeline: Pipeline, home: Path | None, out: Path | None) -> tuple[Path, list[str]]:
    """Writes the page of a pipeline's results, and returns its path and what is to be said about it.

    Args:
        out: the HTML file; None for reports/PIPELINE.html in the home.

    Raises:
        InputError: no model is trained, or the file cannot be written.
    """
    from graphmill.jobs.report.changes import find_changes, remember
    from graphmill.jobs.report.facts import read_facts
    from graphmill.jobs.report.page import report_page

    facts = read_facts(pipeline, home)
    path, lines = out or report_path(facts), [*_not_shown(facts)]
    write_file(path, report_page(facts, find_changes(facts)).encode(), "give another file with --out")
    try:
        remember(facts)
    except InputError as error:  # the page is there; only the next one lacks something
        lines.append(f"{WARNING}{error}")
    return path, lines


def _write_data(home: Path | None, pipeline: Asked, out: Path | None) -> None:
    from graphmill.assets.storage.names.home import home_folder
    from graphmill.jobs.report.profile_page import profile_page

    name, page = profile_page(pipeline)
    if out == STANDARD_OUTPUT:
        click.echo(page, nl=False)
        return
    path = out or home_folder(home) / "reports" / f"{name}-data.html"
    write_file(path, page.encode(), "give another file with --out")
    click.echo(f"{path} is written; any browser shows it")


def report_path(facts: ReportFacts) -> Path:
    """Returns the file of a report without --out."""
    from graphmill.jobs.report.changes import record_path

    return record_path(facts.home, facts.pipeline).with_suffix(".html")


def _not_shown(facts: ReportFacts) -> Iterator[str]:
    if facts.missing:
        names = ", ".join(dict.fromkeys(state.name for state in facts.missing))
        yield f"not there yet: {names}; graphmill run {facts.pipeline.reference} builds them"
    if (run := facts.last_run) is not None and run.status == "FAILURE":
        yield f"the last run, {run.run_id}, failed; the page says why"


def write_file(path: Path, data: bytes, remedy: str) -> None:
    """Writes a file of results, and makes its folder; raises InputError if it cannot be written."""
    from graphmill.assets.storage.system.filesystem import replace_atomically

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_atomically(path, data)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}", remedy) from error


@click.command(short_help="Writes the figures of a report as files.")
@pipeline_argument
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder, which is made if it is missing; default PIPELINE-figures in the current folder.",
)
@click.option("--terminal", is_flag=True, help="Print the learning curves here, and write no file.")
@click.pass_obj
def plot(home: Path | None, pipeline: Asked, out: Path | None, terminal: bool) -> None:
    """Writes the figures of `graphmill report` into a folder, each as SVG and as PNG; files of the same names are replaced.

    Example: graphmill plot showcase --terminal
    """
    if terminal and out is not None:
        raise InputError("--terminal writes no file, and --out names a folder for files", "give one of them")
    loaded = pipeline.load()
    if terminal:
        _print_curves(loaded, home)
        return
    from graphmill.jobs.report.charts import drawings
    from graphmill.jobs.report.facts import read_facts

    folder = out or Path(f"{loaded.name}-figures")
    figures = drawings(read_facts(loaded, home))
    for each in figures:
        write_file(folder / f"{each.name}.svg", each.svg_file(), "give another folder with --out")
        write_file(folder / f"{each.name}.png", each.png(), "give another folder with --out")
        click.echo(f"{folder / each.name}.svg and .png: {each.title}")


def _print_curves(pipeline: Pipeline, home: Path | None) -> None:
    from graphmill.jobs.commands.aligned import terminal_columns
    from graphmill.jobs.commands.results.leaderboard import ranked, stored_entries
    from graphmill.jobs.report.plots import curve_lines, spans_decades
    from graphmill.jobs.report.series import by_unit, learning_curves, value_words

    entries = ranked(stored_entries(pipeline, home))
    width = terminal_columns() or TERMINAL_WIDTH
    for value in VALUES:
        for over, unit in AXES.items():
            for group in by_unit(entries, value):
                curves = learning_curves(group, value, over)
                if not curves:
                    continue
                what = value_words(value, [entry.table.metric for entry in group])
                log = value == "loss" and spans_decades(curves)
                title = f"{pipeline.name}: {what}, over {unit}{', logarithmic' if log else ''}"
                click.echo("\n".join([*curve_lines(title, curves, width, log=log), ""]))
