"""The `graphmill` command."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobs.commands.store import STORE_COMMANDS, json_option
from kernels.errors import InputError

if TYPE_CHECKING:
    from assets.pipeline.file import Pipeline
    from jobs.launch import Selection

EXIT_INPUT, EXIT_INTERRUPTED = 1, 130

pipeline_argument = click.argument("pipeline")
threads_option = click.option("--threads", type=int, help="Threads that build the data; default all cores, 8 at most.")
TRAINING_OPTIONS = (
    click.option("--resume", is_flag=True, help="Go on from the last checkpoint where there is one."),
    click.option("--retrain", is_flag=True, help="Train again what is trained already, and replace it."),
    click.option("-q", "--quiet", is_flag=True, help="Print no line about epochs."),
    click.option("-v", "--verbose", is_flag=True, help="Print a line about every epoch; else about 100."),
)


def training_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options of every training; `_training` reads them."""
    for option in reversed(TRAINING_OPTIONS):
        command = option(command)
    return command


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; input errors end with 1 and one message, an interrupt with 130."""
    try:
        graphmill(arguments, prog_name="graphmill", standalone_mode=False)
    except InputError as error:
        click.echo(f"graphmill: {error}", err=True)
        sys.exit(EXIT_INPUT)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("graphmill: interrupted; what was finished is kept, training goes on with --resume", err=True)
        sys.exit(EXIT_INTERRUPTED)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--home", type=click.Path(path_type=Path), help="Where artifacts are; default $GRAPHMILL_HOME or ./.graphmill."
)
@click.version_option(package_name="graphmill", prog_name="graphmill")
@click.pass_context
def graphmill(context: click.Context, home: Path | None) -> None:
    """Prepares graphs and trains graph neural networks on them.

    PIPELINE is a name from $GRAPHMILL_PIPELINES, ./pipelines or the shipped ones, or the path of a TOML file.

    Example: graphmill run python-environment
    """
    context.obj = home


@graphmill.command()
@pipeline_argument
def validate(pipeline: str) -> None:
    """Checks a pipeline file, and that the files which it names are there; reports all mistakes at once.

    Example: graphmill validate cora
    """
    loaded = _load(pipeline, files=True)
    names = ", ".join(table.name for table in loaded.train) or "nothing"
    click.echo(f"{loaded.path} is valid: graph from {loaded.graph.source}, trains {names}")


@graphmill.command()
@pipeline_argument
@json_option
@click.pass_obj
def status(home: Path | None, pipeline: str, as_json: bool) -> None:
    """Shows which artifacts of a pipeline are there, which a run would build, and why. Builds nothing.

    Example: graphmill status cora
    """
    from jobs.commands.status import print_status, status_json

    if as_json:
        click.echo(json.dumps(status_json(_load(pipeline), home), indent=2))
    else:
        print_status(_load(pipeline), home, click.echo)


@graphmill.command()
@pipeline_argument
@json_option
@click.pass_obj
def leaderboard(home: Path | None, pipeline: str, as_json: bool) -> None:
    """Prints the leaderboard of the models that a pipeline has. Trains nothing.

    Example: graphmill leaderboard showcase
    """
    from jobs.commands.leaderboard import leaderboard_json, print_leaderboard, stored_entries

    loaded = _load(pipeline)
    entries = stored_entries(loaded, home)
    if as_json:
        click.echo(leaderboard_json(loaded.name, entries))
    else:
        print_leaderboard(loaded.name, entries)


@graphmill.command()
@click.argument("source")
@json_option
def inspect(source: str, as_json: bool) -> None:
    """Shows what SOURCE holds, what would be built from it, and the memory and disk that it takes. Builds nothing.

    SOURCE is a pipeline, or data: an .npz archive, Parquet or CSV tables (a pattern in quotes), an unzipped ogbn-* folder, a file of
    dgl.save_graphs.

    Example: graphmill inspect "edges-*.parquet"
    """
    from jobs.commands.inspect_source import print_source, survey_of

    if as_json:
        click.echo(json.dumps(survey_of(source).values(), indent=2))
    else:
        print_source(source)


@graphmill.command()
@pipeline_argument
@threads_option
@click.pass_obj
def build(home: Path | None, pipeline: str, threads: int | None) -> None:
    """Builds the artifacts of a pipeline without training.

    Example: graphmill build python-environment
    """
    from jobs.launch import Launch, launch

    launch(Launch(pipeline=_load(pipeline), selection="preprocess", home=home, threads=threads))


@graphmill.command()
@pipeline_argument
@click.argument("names", nargs=-1)
@training_options
@click.pass_obj
def train(home: Path | None, pipeline: str, names: tuple[str, ...], **training: bool) -> None:
    """Trains the [[train]] tables NAMES of a pipeline, or all, on artifacts that are built already.

    Example: graphmill train python-environment sage --resume
    """
    _launch(_load(pipeline), "train", home=home, names=names, **_training(**training))


@graphmill.command()
@pipeline_argument
@threads_option
@training_options
@click.pass_obj
def run(home: Path | None, pipeline: str, threads: int | None, **training: bool) -> None:
    """Builds whatever is missing, trains, and prints the leaderboard.

    Example: graphmill run cora
    """
    _launch(_load(pipeline), "all", home=home, threads=threads, **_training(**training))


@graphmill.command()
@threads_option
@training_options
@click.pass_obj
def demo(home: Path | None, threads: int | None, **training: bool) -> None:
    """Runs the shipped python-environment pipeline: which package does a module belong to?

    Its graph is this machine's installed Python modules and their imports.

    Example: graphmill demo
    """
    _launch(_load("python-environment"), "all", home=home, threads=threads, **_training(**training))
    click.echo("\nmake ui (or graphmill ui) opens these runs, their figures and checks in the browser.")
    click.echo("graphmill ls lists the artifacts; graphmill run sbm trains on another graph.")


@graphmill.command()
@click.argument("pipeline", required=False)
@click.option("--refresh", is_flag=True, help="Measure the machine again.")
@click.pass_obj
def budgets(home: Path | None, pipeline: str | None, refresh: bool) -> None:
    """Shows what each level of the memory may hold of a PIPELINE's features, and how that came about.

    "auto" in [memory] is resolved from memory and disk as they were when they were first needed; only --refresh measures again.

    Example: graphmill budgets cora --refresh
    """
    from jobs.commands.budgets import print_budgets

    print_budgets(home, _load(pipeline) if pipeline else None, again=refresh)


@graphmill.command()
@click.pass_obj
def init(home: Path | None) -> None:
    """Makes the home folder with its settings; every other command does so where it needs to.

    Example: graphmill init
    """
    from jobs.runs.instance import SETTINGS, init_home

    folder, written = init_home(home)
    click.echo(f"{folder / SETTINGS} {'is written' if written else 'was there already'}")


@graphmill.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Port to listen on; default the first free one from 3000.")
@click.pass_obj
def ui(home: Path | None, port: int | None) -> None:
    """Starts the web UI on this machine's loopback address, with the daemon that runs schedules.

    Example: graphmill ui --port 3001
    """
    from jobs.commands.ui import serve

    serve(home, port, click.echo)


@graphmill.command()
@pipeline_argument
@click.argument("name", required=False)
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="The Parquet file; replaced when it exists."
)
@click.option("--seed", type=int, help="Which of the table's models; default its first.")
@click.option("--workspace", default="1GiB", show_default=True, help="Memory for input rows and layers.")
@click.option("--threads", type=int, help="Default: the table's.")
@click.pass_obj
def predict(
    home: Path | None, pipeline: str, name: str | None, out: Path, seed: int | None, workspace: str, threads: int | None
) -> None:
    """Writes original id, class, probability and embedding of every node, by the trained model of [[train]] table NAME.

    The two may be written as one, PIPELINE/NAME.

    Example: graphmill predict cora gcn --out cora.parquet
    """
    from assets.storage.store import Store
    from trainers.predict import predict_table
    from trainers.record.progress import open_progress

    if name is None:
        pipeline, slash, name = pipeline.rpartition("/")
        if not slash:
            raise InputError(f"{name} names no [[train]] table", f"write PIPELINE NAME or PIPELINE/NAME: {name} sage")
    options: dict[str, Any] = {"seed": seed, "workspace": workspace, "threads": threads, "progress": open_progress()}
    model, num_rows = predict_table(Store(home), _load(pipeline), name, out, **options)
    click.echo(f"{out}: {num_rows:,} nodes, by {model.label}")


def _launch(loaded: Pipeline, selection: Selection, **options: Any) -> None:
    from jobs.commands.leaderboard import Entry, print_leaderboard
    from jobs.launch import Launch, launch

    outcome = launch(Launch(pipeline=loaded, selection=selection, **options))
    entries = [
        Entry(table=table, models=outcome.artifacts[table.name])
        for table in loaded.train
        if table.name in outcome.artifacts
    ]
    print_leaderboard(loaded.name, entries)


def _training(resume: bool, retrain: bool, quiet: bool, verbose: bool) -> dict[str, Any]:
    """Returns what `training_options` say, as a `Launch` has it."""
    lines = "none" if quiet else "all" if verbose else "some"
    return {"resume": resume, "retrain": retrain, "epoch_lines": lines}


def _load(pipeline: str, *, files: bool = False) -> Pipeline:
    from assets.pipeline.file import load_pipeline
    from trainers.config import TrainTable

    return load_pipeline(pipeline, train_schema=TrainTable, files=files)


for command in STORE_COMMANDS:
    graphmill.add_command(command)
