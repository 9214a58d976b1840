"""The commands that build and train."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graphmill.jobs.commands.options import (
    Asked,
    complete_tables,
    on_option,
    pipeline_argument,
    threads_option,
    training_options,
    with_table,
    yes_option,
)

if TYPE_CHECKING:
    from graphmill.assets.pipeline.file import Pipeline
    from graphmill.jobs.launch import Selection


@click.command(short_help="Builds the artifacts of a pipeline without training.")
@pipeline_argument
@threads_option
@on_option
@yes_option
@click.pass_obj
def build(home: Path | None, pipeline: Asked, threads: int | None, on: str, yes: bool) -> None:
    """Builds the artifacts of a pipeline without training.

    Example: graphmill build python-environment
    """
    from graphmill.jobs.launch import Launch, launch
    from graphmill.jobs.operations.size import ask_about

    loaded = pipeline.load()
    ask_about(loaded, trains=False, yes=yes)
    launch(Launch(pipeline=loaded, selection="preprocess", home=home, threads=threads, on=on))


@click.command(short_help="Trains on artifacts that are built already.")
@pipeline_argument
@click.argument("names", nargs=-1, shell_complete=complete_tables)
@training_options
@on_option
@yes_option
@click.pass_obj
def train(
    home: Path | None, pipeline: Asked, names: tuple[str, ...], training: dict[str, Any], on: str, yes: bool
) -> None:
    """Trains the [[train]] tables NAMES of a pipeline, or all, on artifacts that are built already.

    One table may be written as PIPELINE/NAME.

    Example: graphmill train python-environment sage --resume
    """
    pipeline, name = with_table(pipeline)
    loaded, names = pipeline.load(), names if name is None else (name, *names)
    names = tuple(each for given in names for each in _grown(pipeline, loaded, given))
    _launch(loaded, "train", yes=yes, home=home, names=names, on=on, **training)


@click.command(short_help="Builds what is missing, trains, prints the leaderboard.")
@pipeline_argument
@threads_option
@training_options
@on_option
@yes_option
@click.pass_obj
def run(home: Path | None, pipeline: Asked, threads: int | None, training: dict[str, Any], on: str, yes: bool) -> None:
    """Builds whatever is missing, trains, and prints the leaderboard.

    With --on, parts of large stages and trainings run on the nodes of a Ray cluster (docs/scaling.md); the results are the same bytes.

    Example: graphmill run sbm --set train.epochs=5
    """
    _launch(pipeline.load(), "all", yes=yes, home=home, threads=threads, on=on, **training)


@click.command(short_help="Runs the shipped python-environment pipeline.")
@threads_option
@training_options
@click.pass_obj
def demo(home: Path | None, threads: int | None, training: dict[str, Any]) -> None:
    """Runs the shipped python-environment pipeline: which package does a module belong to?

    Its graph is this machine's installed Python modules and their imports.

    Example: graphmill demo
    """
    _launch(Asked("python-environment").load(), "all", yes=True, home=home, threads=threads, **training)
    click.echo("\nmake ui (or graphmill ui) opens these runs, their figures and checks in the browser.")
    click.echo("graphmill ls lists the artifacts; graphmill run sbm trains on another graph.")


RUNNING = (run, build, train, demo)


def _grown(asked: Asked, loaded: Pipeline, name: str) -> list[str]:
    """Returns the name of a train table; of one that --set replaced by a table for each of several values, the names of those."""
    known = [table.name for table in loaded.train]
    if not asked.settings or name in known:
        return [name]
    own = {table.name for table in Asked(asked.name).load().train}
    return [each for each in known if each not in own and name in own and each.startswith(f"{name}-")] or [name]


def _launch(pipeline: Pipeline, selection: Selection, *, yes: bool, order: str = "models", **options: Any) -> None:
    """Launches a run and prints the leaderboard; with `order` "splits" a run for each split first, whose models the last one finds."""
    from graphmill.jobs.commands.results.leaderboard import entry_of, print_leaderboard
    from graphmill.jobs.launch import Launch, launch
    from graphmill.jobs.operations.size import ask_about

    names = options.get("names") or [table.name for table in pipeline.train]
    ask_about(
        replace(pipeline, train=tuple(table for table in pipeline.train if table.name in names)), trains=True, yes=yes
    )
    if order == "splits" and len(pipeline.by_split) > 1:
        for one in pipeline.by_split:
            launch(Launch(pipeline=one, selection=selection, **options))
        options["retrain"] = False
    outcome = launch(Launch(pipeline=pipeline, selection=selection, **options))
    entries = [
        entry_of(pipeline, table, outcome.artifacts[table.name])
        for table in pipeline.train
        if table.name in outcome.artifacts
    ]
    if entries or pipeline.score is None:
        print_leaderboard(pipeline.name, entries)
