"""The commands about pipeline files: making and checking them, their artifacts, and their results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from graphmill.jobs.commands.options import (
    Asked,
    complete_pipelines,
    complete_tables,
    json_option,
    pipeline_argument,
    set_option,
    with_table,
)
from graphmill.jobs.commands.plan import plan
from graphmill.kernels.errors import InputError


@click.command(short_help="Writes a pipeline file with comments.")
@click.argument("name")
@click.option(
    "--from",
    "source",
    required=True,
    help="What the graph is made from: data (an .npz archive, tables in Parquet or text, an ogbn-* folder, a file of dgl.save_graphs or of "
    "PyG), or a kind of source: citation, dgl, edges, npz, ogb, pyg, python-environment, rmat, sbm, tables, typed-python-environment, "
    "typed_citation, or that of an installed package.",
)
@click.option("--plan", "planned", is_flag=True, help="Choose the technique for this machine, as graphmill plan does.")
@click.pass_obj
def new(home: Path | None, name: str, source: str, planned: bool) -> None:
    """Writes a pipeline file with comments, NAME.toml, into the folder where pipelines are found by name; overwrites nothing.

    The folder is $GRAPHMILL_PIPELINES, or ./pipelines, which is made where it is missing. The web UI shows its pipelines.

    Example: graphmill new mine --from mine.npz
    """
    from graphmill.jobs.commands.new_pipeline import planned_pipeline, write_pipeline

    path = write_pipeline(name, source)
    click.echo(f"{path} is written\ngraphmill validate {name} checks it, graphmill run {name} builds and trains")
    if planned:
        click.echo(planned_pipeline(path, home, lambda line: click.echo(line, err=True)))
    else:
        click.echo(f"graphmill plan {name} says which technique fits the graph and this machine")


@click.command(short_help="Checks a pipeline file, and whether this machine can run it.")
@pipeline_argument
@json_option
@click.pass_obj
def validate(home: Path | None, pipeline: Asked, as_json: bool) -> None:
    """Checks a pipeline file, the data that it names (small ones are read), and your own models; reports all mistakes at once.

    Then it says what every step will take of memory, disk and time, and refuses a pipeline that cannot run on this machine.

    Example: graphmill validate cora
    """
    from graphmill.assets.partitions.method import say_rule
    from graphmill.jobs.commands.checked import require_runnable
    from graphmill.jobs.operations.unread import unread_lines
    from graphmill.trainers.recipe.unused import unused_lines

    loaded = pipeline.load(files=True)
    needs = require_runnable(loaded, home).needs
    trains = [table.name for table in loaded.train]
    parts = loaded.table("partitions")
    notes = [said] if parts is not None and (said := say_rule(parts.method)) else []
    notes += [*unused_lines(loaded.train, loaded.sampling, loaded.graph.attributes), *unread_lines(loaded)]
    if as_json:
        found = {"path": str(loaded.path), "name": loaded.name, "source": loaded.graph.source, "trains": trains}
        click.echo(json.dumps(found | {"notes": notes, "needs": needs.values()}, indent=2))
        return
    said = f"{loaded.path} is valid: graph from {loaded.graph.source}, trains {', '.join(trains) or 'nothing'}"
    click.echo("\n".join([said, *notes, *needs.lines()]))


@click.command(short_help="Shows what is there, what a run would build, and why.")
@pipeline_argument
@json_option
@click.pass_obj
def status(home: Path | None, pipeline: Asked, as_json: bool) -> None:
    """Shows which artifacts of a pipeline are there, which a run would build, and why. Builds nothing.

    Example: graphmill status cora
    """
    from graphmill.jobs.commands.status import print_status, status_json

    if as_json:
        click.echo(json.dumps(status_json(pipeline.load(), home), indent=2))
    else:
        print_status(pipeline.load(), home, click.echo)


@click.command(short_help="Prints the scores and costs of trained models.")
@pipeline_argument
@click.option("--all", "every", is_flag=True, help="All models that were ever trained for it, and what was tuned.")
@json_option
@click.option("--markdown", "markup", flag_value="markdown", help="Print the table alone, in Markdown.")
@click.option("--latex", "markup", flag_value="latex", help="Print the table alone, as a LaTeX tabular with booktabs.")
@click.pass_obj
def leaderboard(home: Path | None, pipeline: Asked, every: bool, as_json: bool, markup: str | None) -> None:
    """Prints the leaderboard of the models that a pipeline has. Trains nothing.

    Example: graphmill leaderboard showcase
    """
    from graphmill.jobs.commands.leaderboard import (
        leaderboard_json,
        leaderboard_table,
        print_leaderboard,
        stored_entries,
    )
    from graphmill.jobs.commands.tuned import all_entries

    if as_json and markup:
        raise InputError(f"--json and --{markup} are two forms of one table", "give one of them")
    loaded = pipeline.load()
    entries = all_entries(loaded, home) if every else stored_entries(loaded, home)
    if markup:
        table = leaderboard_table(loaded.name, entries)
        click.echo(table.latex() if markup == "latex" else table.markdown(), nl=False)
    elif as_json:
        click.echo(leaderboard_json(loaded.name, entries))
    else:
        print_leaderboard(loaded.name, entries)


@click.command(short_help="Shows what data or a pipeline hold and take; builds nothing.")
@click.argument("source", shell_complete=complete_pipelines)
@set_option
@json_option
@click.pass_obj
def inspect(home: Path | None, source: str, settings: tuple[str, ...], as_json: bool) -> None:
    """Shows what SOURCE holds, what would be built from it, and the memory and disk that it takes. Builds nothing.

    Of a pipeline it shows every step: memory, disk and time, by what is known before it is built; exit code 1 if one cannot fit.

    SOURCE is a pipeline, or data: an .npz archive, tables in Parquet or text (a folder, or a pattern in quotes), an unzipped ogbn-*
    folder, a file of dgl.save_graphs, a PyG graph of torch.save. Of what does not fit its memory, it keeps working files in the folder
    that TMPDIR names, /tmp without it.

    Example: graphmill inspect "edges-*.parquet"
    """
    from graphmill.jobs.commands.inspect_source import print_source, print_source_json

    (print_source_json if as_json else print_source)(source, home, settings)


@click.command(short_help="Shows what each level of the memory may hold.")
@click.argument("pipeline", required=False, shell_complete=complete_pipelines)
@click.option("--refresh", is_flag=True, help="Measure the machine again.")
@json_option
@click.pass_obj
def budgets(home: Path | None, pipeline: str | None, refresh: bool, as_json: bool) -> None:
    """Shows what each level of the memory may hold of a PIPELINE's features, and how that came about.

    "auto" in [memory] is resolved from memory and disk as they were when they were first needed; only --refresh measures again.

    Example: graphmill budgets cora --refresh
    """
    from graphmill.jobs.commands.budgets import print_budgets

    print_budgets(home, Asked(pipeline).load() if pipeline else None, again=refresh, as_json=as_json)


@click.command(short_help="Shows the rows that the schedules of chunks move.")
@pipeline_argument
@click.option(
    "--rates", help='Speeds from the host, between devices, inside one: "12GB/s,200GB/s,1.5TB/s"; default measured.'
)
@click.option("--row-bytes", default=512, show_default=True, help="Bytes of a row, such as 4 per column of float32.")
@click.option("--refresh", is_flag=True, help="Measure the links of this machine again.")
@json_option
@click.pass_obj
def chunks(home: Path | None, pipeline: Asked, rates: str | None, row_bytes: int, refresh: bool, as_json: bool) -> None:
    """Shows the rows that each schedule of a PIPELINE's chunks moves, and the seconds that they cost.

    The seconds are HongTu's equation 4 for one layer. Speeds of links are measured when they are first needed; only --refresh measures
    again. Chunks do not depend on them.

    Example: graphmill chunks showcase --rates 12GB/s,200GB/s,1.5TB/s
    """
    from graphmill.jobs.commands.chunks import print_chunks

    print_chunks(home, pipeline.load(), rates=rates, row_bytes=row_bytes, again=refresh, as_json=as_json)


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
    "--nodes",
    type=click.Path(path_type=Path),
    help="A .parquet or .csv file with a column node_id, or a .txt file with an id per line: predicts these nodes alone.",
)
@click.option(
    "--ranks",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Processes, each with the rows of its parts, which are in shards.",
)
@click.pass_obj
def predict(home: Path | None, pipeline: Asked, name: str | None, out: Path, ranks: int, **options: Any) -> None:
    """Writes original id, class, probability, embedding, label and split of every node, by the trained model of [[train]] table NAME.

    The two may be written as one, PIPELINE/NAME. With --nodes, only the layers' rows that these nodes need are computed.

    Example: graphmill predict cora gcn --out cora.parquet
    """
    from functools import partial

    from graphmill.assets.storage.store import Store
    from graphmill.trainers.inference.predict import predict_table
    from graphmill.trainers.record.progress import open_progress

    if name is None:
        pipeline, name = _required_table(pipeline)
    if ranks > 1:
        from graphmill.trainers.techniques.distributed.predict import predict_by_ranks

        options["by_ranks"] = partial(predict_by_ranks, ranks=ranks)
    model, num_rows = predict_table(Store(home), pipeline.load(), name, out, progress=open_progress(), **options)
    click.echo(f"{out}: {num_rows:,} nodes, by {model.label}")


@click.command(short_help="Copies what a training needs, for another machine.")
@pipeline_argument
@click.argument("name", shell_complete=complete_tables)
@click.argument("out", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.pass_obj
def bundle(home: Path | None, pipeline: Asked, name: str, out: Path | None) -> None:
    """Copies what the training of [[train]] table NAME needs into the folder OUT, to train on another machine.

    The first two may be written as one, PIPELINE/NAME. On the other machine, `python -m graphmill.trainers --from OUT` trains; it needs
    neither the raw data nor Dagster.

    Example: graphmill bundle python-environment sage for-the-gpu
    """
    from graphmill.assets.storage.store import Store
    from graphmill.jobs.commands.bundle import bundle_table

    if out is None:
        out = Path(name)
        pipeline, name = _required_table(pipeline, " OUT")
    bundle_table(Store(home), pipeline.load(), name, out, click.echo)


def _required_table(pipeline: Asked, more: str = "") -> tuple[Asked, str]:
    """Returns pipeline and table of PIPELINE/NAME."""
    found, name = with_table(pipeline)
    if name is None:
        how = f"write PIPELINE NAME{more} or PIPELINE/NAME{more}: {pipeline.name}/sage{more}"
        raise InputError(f"{pipeline.name} names no [[train]] table", how)
    return found, name


RECIPE_COMMANDS = (new, validate, plan, status, leaderboard, inspect, budgets, chunks, predict, bundle)
