"""The commands about results: what is there, scores and costs, predictions, and questions about the store."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from graphmill.assets.building.terminal import unescaped
from graphmill.jobs.commands.options import (
    Asked,
    complete_pipelines,
    complete_tables,
    json_option,
    opened_store,
    pipeline_argument,
    required_table,
)
from graphmill.kernels.errors import InputError

if TYPE_CHECKING:
    from graphmill.assets.pipeline.file import Pipeline
    from graphmill.assets.storage.store import Store


@click.command(short_help="Shows what is there, what a run would build, and why.")
@pipeline_argument
@json_option
@click.pass_obj
def status(home: Path | None, pipeline: Asked, as_json: bool) -> None:
    """Shows which artifacts of a pipeline are there, which a run would build, and why. Builds nothing.

    Example: graphmill status cora
    """
    from graphmill.jobs.commands.results.status import print_status, status_json

    if as_json:
        click.echo(json.dumps(status_json(pipeline.load(), home), indent=2))
    else:
        print_status(pipeline.load(), home, click.echo)


@click.command(short_help="Prints the scores and costs of trained models.")
@pipeline_argument
@click.option("--all", "every", is_flag=True, help="All models that were ever trained for it, and what was tuned.")
@click.option(
    "--by",
    type=click.Choice(["class", "label", "target"]),
    help="F1 of each class or label, or R2 of each target, instead of costs, on test nodes if there are some.",
)
@json_option
@click.option("--markdown", "markup", flag_value="markdown", help="Print the table alone, in Markdown.")
@click.option("--latex", "markup", flag_value="latex", help="Print the table alone, as a LaTeX tabular with booktabs.")
@click.pass_obj
def leaderboard(
    home: Path | None, pipeline: Asked, every: bool, by: str | None, as_json: bool, markup: str | None
) -> None:
    """Prints the leaderboard of the models that a pipeline has. Trains nothing.

    Example: graphmill leaderboard showcase
    """
    from graphmill.jobs.commands.results.by_class import class_board, class_board_json, print_class_board
    from graphmill.jobs.commands.results.leaderboard import leaderboard_json, leaderboard_table, print_leaderboard
    from graphmill.jobs.commands.results.tuned import all_entries, with_older

    if as_json and markup:
        raise InputError(f"--json and --{markup} are two forms of one table", "give one of them")
    loaded = pipeline.load()
    entries = all_entries(loaded, home) if every else with_older(loaded, home)
    write_table = class_board if by else leaderboard_table
    write_json, write_text = (class_board_json, print_class_board) if by else (leaderboard_json, print_leaderboard)
    if markup:
        table = write_table(loaded.name, entries)
        click.echo(table.latex() if markup == "latex" else table.markdown(), nl=False)
    elif as_json:
        click.echo(write_json(loaded.name, entries))
    else:
        write_text(loaded.name, entries)


@click.command(short_help="Writes the predictions of a trained model.")
@pipeline_argument
@click.argument("name", required=False, shell_complete=complete_tables)
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="The Parquet file; replaced when it exists."
)
@click.option("--seed", type=int, help="Which of the table's models; default its first.")
@click.option("--workspace", default="1GiB", show_default=True, help="Memory for input rows and layers.")
@click.option("--threads", type=int, help="Default: the table's.")
@click.option("--probabilities", is_flag=True, help="Write the probabilities of all classes.")
@click.option(
    "--top",
    type=click.IntRange(1),
    metavar="K",
    help="Write the K most probable classes, each with its probability; of links, the K best ends of each node without known edges.",
)
@click.option(
    "--pairs",
    type=click.Path(path_type=Path),
    help="Of links: a .parquet or .csv file with columns source and target (and relation): scores these pairs.",
)
@click.option(
    "--relation", "relations", multiple=True, metavar="NAME", help="Of links, with --top: a relation. May be repeated."
)
@click.option(
    "--threshold",
    "thresholds",
    multiple=True,
    metavar="[CLASS=]P",
    help="P: give no class below this probability. CLASS=P: give CLASS from this probability on, and another one below it. "
    "May be repeated.",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="Node type to predict, or all; may be repeated. Default: the types that have labels.",
)
@click.option(
    "--nodes",
    type=click.Path(path_type=Path),
    help="A .parquet or .csv file with a column node_id, or a .txt file with an id per line: predicts these nodes alone.",
)
@click.option(
    "--graph",
    shell_complete=complete_pipelines,
    metavar="OTHER",
    help="A pipeline whose graph and features are predicted from, by the model that was trained on those of PIPELINE.",
)
@click.option(
    "--eval",
    "evaluation",
    type=click.Choice(["exact", "sampled"]),
    default="exact",
    show_default=True,
    help="From all neighbours of a node, or from those that [sampling] draws.",
)
@click.option(
    "--ranks",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Processes, each with the rows of its parts, which are in shards.",
)
@click.pass_obj
def predict(
    home: Path | None,
    pipeline: Asked,
    name: str | None,
    out: Path,
    ranks: int,
    probabilities: bool,
    top: int | None,
    thresholds: tuple[str, ...],
    graph: str | None,
    **options: Any,
) -> None:
    """Writes original id, class, probability, embedding, label and split of every node, by the trained model of [[train]] table NAME.

    The two may be written as one, PIPELINE/NAME. In a graph with node types the nodes are those whose type has labels. With --nodes, only
    the layers' rows that these nodes need are computed. With --graph the model predicts another graph, which has the same columns of
    features, node types, relations and classes; so does --set with keys of [graph] and [features] if no model is trained on what they say.

    Example: graphmill predict cora gcn --out cora.parquet
    """
    from graphmill.assets.costs.needs import require_free
    from graphmill.assets.storage.store import Store
    from graphmill.trainers.recipe.costs.memory import prediction_need

    require_free(prediction_need(max(1, ranks)))  # before torch is loaded, whose libraries are most of it
    from graphmill.trainers.inference.answers.kinds import Columns
    from graphmill.trainers.inference.predict import predict_table
    from graphmill.trainers.record.progress import open_progress

    if name is None:
        pipeline, name = required_table(pipeline)
    if ranks > 1:
        from graphmill.trainers.techniques.distributed.predict import predict_by_ranks

        options["by_ranks"] = partial(predict_by_ranks, ranks=ranks)
    options["columns"] = Columns(probabilities=probabilities, top=top or 0, thresholds=thresholds)
    store = Store(home)
    loaded, other = _model_and_data(store, pipeline, name, options["seed"], graph)
    model, num_rows = predict_table(store, loaded, name, out, other=other, progress=open_progress(), **options)
    of = "" if other is None else f" of {other.reference}"
    rows = "rows" if top or options["pairs"] is not None else "nodes"
    click.echo(f"{out}: {num_rows:,} {rows}{of}, by {model.label}")


def _model_and_data(
    store: Store, asked: Asked, name: str, seed: int | None, graph: str | None
) -> tuple[Pipeline, Pipeline | None]:
    """Returns the pipeline of the model, and that of another graph if one is asked for."""
    from graphmill.trainers.inference.trained import is_trained

    loaded = asked.load()
    if graph is not None:
        return loaded, Asked(graph).load()
    of_data = [each for each in asked.settings if each.partition("=")[0].partition(".")[0] in ("graph", "features")]
    if not of_data or is_trained(store, loaded, name, seed):
        return loaded, None
    rest = tuple(each for each in asked.settings if each not in of_data)
    return Asked(asked.name, rest).load(), loaded


@click.command(short_help="Writes a trained model for programs without graphmill.")
@pipeline_argument
@click.argument("name", required=False, shell_complete=complete_tables)
@click.option("--to", "folder", type=click.Path(path_type=Path), help="A new folder; default export-NAME.")
@click.option("--seed", type=int, help="Which of the table's models; default its first.")
@click.pass_obj
def export(home: Path | None, pipeline: Asked, name: str | None, folder: Path | None, seed: int | None) -> None:
    """Writes the layers of [[train]] table NAME as torch programs, and its weights as modules of PyG and DGL, into a new folder.

    The two may be written as one, PIPELINE/NAME. What a library has no equal for is left out, and the reason is told.

    Example: graphmill export cora/gcn --to gcn
    """
    from graphmill.assets.storage.store import Store
    from graphmill.trainers.inference.exports.export import export_table

    if name is None:
        pipeline, name = required_table(pipeline)
    exported = export_table(Store(home), pipeline.load(), name, folder or Path(f"export-{name}"), seed)
    click.echo(f"{exported.folder}: {exported.label}")
    for file, contents in exported.files.items():
        click.echo(f"  {file}: {contents}")
    for what, why in exported.left_out.items():
        click.echo(f"  left out: {what}, since {why}")


@click.command(short_help="Shows one artifact.")
@click.argument("name")
@json_option
@click.pass_obj
def show(home: Path | None, name: str, as_json: bool) -> None:
    """Shows one artifact: recipe, inputs, checks, numbers, files; of a model the scores by class, label or target, too.

    NAME is any unique beginning of a version, also as stage/beginning; or PIPELINE/STEP, and PIPELINE/STEP/SEED where a [[train]] table has
    several seeds. If the pipeline lists splits, the split stands before the seed.

    Example: graphmill show python-environment/sage
    """
    from graphmill.jobs.commands.names import find_artifact
    from graphmill.jobs.commands.results.show import artifact_json, print_artifact

    artifact = find_artifact(opened_store(home), name)
    if as_json:
        click.echo(json.dumps(artifact_json(artifact), indent=2, default=str))
    else:
        print_artifact(artifact)


@click.command(short_help="Shows and draws what each thread of a training did.")
@click.argument("name")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="The PNG; default timeline-VERSION.png.")
@json_option
@click.pass_obj
def timeline(home: Path | None, name: str, out: Path | None, as_json: bool) -> None:
    """Shows what each thread did in the last epoch of a model, NAME as for `show`, and draws it; with --json only if --out is given.

    Example: graphmill timeline python-environment/sage
    """
    from graphmill.jobs.commands.names import find_artifact
    from graphmill.jobs.figures.timeline import print_timeline, read_timeline, write_timeline

    model = find_artifact(opened_store(home), name)
    if as_json:
        click.echo(json.dumps(dict(read_timeline(model)), indent=2))
        if out is not None:
            write_timeline(model, out)
        return
    print_timeline(model)
    click.echo(f"drawn in {write_timeline(model, out)}")


@click.command(short_help="Answers one SELECT over the store.")
@click.argument("query", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="How the answer is printed; a table shows at most 200 rows.",
)
@click.pass_obj
def sql(home: Path | None, query: str | None, form: Literal["table", "csv", "json"]) -> None:
    """Answers one SELECT over the store; without QUERY it lists the views. docs/sql.md has examples.

    Example: graphmill sql "SELECT version, max(valid) FROM metrics GROUP BY version"
    """
    from graphmill.jobs.commands.results.sql import print_query

    # A program that reads values gets them as they are; a person's terminal is not written to by them.
    file = sys.stdout if form == "table" or sys.stdout.isatty() else unescaped(sys.stdout)
    print_query(
        opened_store(home), query, form, partial(click.echo, file=file), lambda line: click.echo(line, err=True)
    )
