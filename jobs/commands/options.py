"""Arguments and options that several commands have."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from graphmill.assets.pipeline.file import Pipeline
    from graphmill.assets.storage.store import Store

Command = Callable[..., Any]


@dataclass(frozen=True)
class Asked:
    """A pipeline as the command line names it: its name or path, and the keys that --set sets."""

    name: str
    settings: tuple[str, ...] = ()

    def load(self, *, files: bool = False) -> Pipeline:
        """Returns the checked pipeline; with `files`, a missing file that it names is a mistake.

        Raises:
            InputError: the file does not exist, or all mistakes in it.
        """
        from graphmill.assets.pipeline.file import load_pipeline
        from graphmill.trainers.recipe.config import TrainTable

        return load_pipeline(self.name, TrainTable, files=files, settings=self.settings)


def with_table(pipeline: Asked) -> tuple[Asked, str | None]:
    """Returns the pipeline and the table of PIPELINE/NAME; the pipeline as it stands, and None, if it names no table."""
    from graphmill.assets.pipeline.file import is_pipeline

    file, slash, name = pipeline.name.rpartition("/")
    if not slash or not name or is_pipeline(pipeline.name) or not is_pipeline(file):
        return pipeline, None
    return Asked(file, pipeline.settings), name


def required_table(pipeline: Asked, more: str = "") -> tuple[Asked, str]:
    """Returns pipeline and table of PIPELINE/NAME.

    Args:
        more: what the command line needs behind it, for the remedy.

    Raises:
        InputError: it names no table.
    """
    from graphmill.kernels.errors import InputError

    found, name = with_table(pipeline)
    if name is None:
        how = f"write PIPELINE NAME{more} or PIPELINE/NAME{more}: {pipeline.name}/sage{more}"
        raise InputError(f"{pipeline.name} names no [[train]] table", how)
    return found, name


def opened_store(home: Path | None, *, there: bool = False) -> Store:
    """Returns the store of a home, without what interrupted builds left there; with `there`, it has to be there."""
    from graphmill.assets.storage.store import Store
    from graphmill.kernels.errors import InputError

    store = Store(home)
    if not store.home.is_dir() and (there or store.home.exists()):
        what = "is no folder" if store.home.exists() else "does not exist"
        raise InputError(f"the home {store.home} {what}", "give the home that was meant by --home or GRAPHMILL_HOME")
    for line in store.sweep():
        click.echo(f"removed what an interrupted build had left (.staging/{line})", err=True)
    return store


def complete_pipelines(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Returns the names of pipelines that begin with the typed text, for the shell."""
    from click.shell_completion import CompletionItem

    from graphmill.assets.pipeline.file import pipeline_files

    names = [CompletionItem(name) for name in sorted(pipeline_files()) if name.startswith(begun)]
    # Paths of TOML files are pipelines, too.
    return names or [CompletionItem(begun, type="file")]


def complete_tables(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Returns the names of the [[train]] tables of the pipeline that stands before."""
    from click.shell_completion import CompletionItem

    from graphmill.kernels.errors import InputError

    try:
        tables = Asked(context.params["pipeline"]).load().train
    except InputError:
        return []
    return [CompletionItem(table.name) for table in tables if table.name.startswith(begun)]


def pipeline_argument(command: Command) -> Command:
    """Gives a command the argument PIPELINE and the option --set; it gets both as `pipeline: Asked`."""

    @functools.wraps(command)
    def with_pipeline(*given: Any, pipeline: str, settings: tuple[str, ...], **rest: Any) -> Any:
        return command(*given, pipeline=Asked(pipeline, settings), **rest)

    return click.argument("pipeline", shell_complete=complete_pipelines)(set_option(with_pipeline))


set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a key of the pipeline file for this command: train.lr=0.01 for every [[train]] table, train.NAME.lr=0.01 for one, "
    "graph.nodes=1000; train.lr=0.01,0.03 trains with each. May be given several times.",
)


TRAINING_OPTIONS = (
    click.option("--resume", is_flag=True, help="Go on from the last checkpoint where there is one."),
    click.option("--retrain", is_flag=True, help="Train again what is trained already, and replace it."),
    click.option(
        "--ranks",
        type=click.IntRange(1),
        help="Processes that share a training by distributed, fresh-distributed or fullgraph; default: as the table says.",
    ),
    click.option(
        "--order",
        type=click.Choice(["models", "splits"]),
        default="models",
        help="Of a list of splits: train each table on all splits before the next one, or all tables on each split. Default: models.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="Print no line about epochs."),
    click.option("-v", "--verbose", is_flag=True, help="Print a line about every epoch; else about 100."),
)


def training_options(command: Command) -> Command:
    """Gives a command the options of every training; it gets them as `training`, as a `Launch` has them, and `order`."""

    @functools.wraps(command)
    def with_training(
        *given: Any, resume: bool, retrain: bool, ranks: int | None, quiet: bool, verbose: bool, order: str, **rest: Any
    ) -> Any:
        lines = "none" if quiet else "all" if verbose else "some"
        training = {"resume": resume, "retrain": retrain, "epoch_lines": lines, "ranks": ranks or 0}
        return command(*given, training=training | {"order": order}, **rest)

    for option in reversed(TRAINING_OPTIONS):
        with_training = option(with_training)
    return with_training


on_option = click.option(
    "--on",
    default="",
    metavar="ADDRESS",
    help="Ray cluster that builds parts and trains: auto, local:N, HOST:PORT or ray://HOST:PORT; default: as [run] of the file says.",
)
threads_option = click.option("--threads", type=int, help="Threads that build the data; default all cores, 8 at most.")
yes_option = click.option(
    "--yes", is_flag=True, help="Ask nothing about a work of more than a week, or of 16 times this machine's memory."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for a program.")
