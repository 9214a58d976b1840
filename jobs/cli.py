"""The `graphmill` command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernels.errors import InputError

if TYPE_CHECKING:
    from assets.pipeline import Pipeline
    from assets.store import Store

EXIT_INPUT, EXIT_INTERRUPTED = 1, 130

pipeline_argument = click.argument("pipeline")
threads_option = click.option(
    "--threads", default=os.cpu_count() or 1, show_default=True, help="Threads that build the graph."
)
resume_option = click.option("--resume", is_flag=True, help="Go on from the last checkpoint where there is one.")


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
    """Checks a pipeline file and reports all its mistakes at once.

    Example: graphmill validate cora
    """
    loaded = _load(pipeline)
    names = ", ".join(table.name for table in loaded.train) or "nothing"
    click.echo(f"{loaded.path} is valid: graph from {loaded.graph.source}, trains {names}")


@graphmill.command()
@pipeline_argument
@threads_option
@click.pass_obj
def build(home: Path | None, pipeline: str, threads: int) -> None:
    """Builds the artifacts of a pipeline without training.

    Example: graphmill build python-environment
    """
    from jobs.run import build_graph
    from trainers.progress import open_progress

    build_graph(_store(home), _load(pipeline), threads, open_progress(), click.echo)


@graphmill.command()
@pipeline_argument
@click.argument("names", nargs=-1)
@resume_option
@click.pass_obj
def train(home: Path | None, pipeline: str, names: tuple[str, ...], resume: bool) -> None:
    """Trains the [[train]] tables NAMES of a pipeline, or all, on artifacts that are built already.

    Example: graphmill train python-environment sage --resume
    """
    from jobs.leaderboard import print_leaderboard
    from jobs.run import find_graph
    from jobs.run import train as train_tables
    from trainers.progress import open_progress

    store, loaded = _store(home), _load(pipeline)
    graph = find_graph(store, loaded)
    print_leaderboard(loaded.name, train_tables(store, loaded, graph, names, resume, open_progress(), click.echo))


@graphmill.command()
@pipeline_argument
@threads_option
@resume_option
@click.pass_obj
def run(home: Path | None, pipeline: str, threads: int, resume: bool) -> None:
    """Builds whatever is missing, trains, and prints the leaderboard.

    Example: graphmill run cora
    """
    _run(_store(home), _load(pipeline), threads, resume)


@graphmill.command()
@threads_option
@resume_option
@click.pass_obj
def demo(home: Path | None, threads: int, resume: bool) -> None:
    """Runs the shipped python-environment pipeline: which package does a module belong to?

    Its graph is this machine's installed Python modules and their imports.

    Example: graphmill demo
    """
    store = _store(home)
    _run(store, _load("python-environment"), threads, resume)
    click.echo(f"\nArtifacts are in {store.home}. Next: graphmill ls, graphmill show model, graphmill run cora")


@graphmill.command()
@click.argument("stage", required=False)
@click.pass_obj
def ls(home: Path | None, stage: str | None) -> None:
    """Lists the artifacts in the store, of one STAGE or of all.

    Example: graphmill ls graph
    """
    from jobs.inspect import print_artifacts

    print_artifacts(_store(home), stage)


@graphmill.command()
@click.argument("version")
@click.pass_obj
def show(home: Path | None, version: str) -> None:
    """Shows one artifact: recipe, inputs, checks, numbers, files. VERSION is any unique prefix, also as stage/prefix.

    Example: graphmill show graph/3f2a
    """
    from jobs.inspect import print_artifact

    store = _store(home)
    print_artifact(store.resolve(version))


@graphmill.command()
@click.argument("versions", nargs=-1)
@click.pass_obj
def verify(home: Path | None, versions: tuple[str, ...]) -> None:
    """Reads every byte of the artifacts VERSIONS, or of all, and compares it with the digests.

    Example: graphmill verify
    """
    from jobs.inspect import verify_artifacts

    if not verify_artifacts(_store(home), versions):
        sys.exit(EXIT_INPUT)


def _run(store: Store, loaded: Pipeline, threads: int, resume: bool) -> None:
    from jobs.leaderboard import print_leaderboard
    from jobs.run import build_graph, train
    from trainers.progress import open_progress

    progress = open_progress()
    graph = build_graph(store, loaded, threads, progress, click.echo)
    print_leaderboard(loaded.name, train(store, loaded, graph, (), resume, progress, click.echo))


def _store(home: Path | None) -> Store:
    from assets.store import Store

    store = Store(home)
    for line in store.sweep():
        click.echo(f"removed what an interrupted build had left (.staging/{line})", err=True)
    return store


def _load(pipeline: str) -> Pipeline:
    from assets.pipeline import load_pipeline
    from trainers.config import TrainTable

    return load_pipeline(pipeline, train_schema=TrainTable)
