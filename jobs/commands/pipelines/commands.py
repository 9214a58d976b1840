"""The commands about pipeline files: making and checking them, and saying what they take."""

from __future__ import annotations

import json
from pathlib import Path

import click

from graphmill.jobs.commands.options import Asked, complete_pipelines, json_option, pipeline_argument, set_option
from graphmill.jobs.commands.pipelines.plan import plan


@click.command(short_help="Writes a pipeline file with comments.")
@click.argument("name")
@click.option(
    "--from",
    "source",
    required=True,
    help="What the graph is made from: data (a folder of tables, an .npz archive, tables in Parquet or text, an ogbn-* folder, a file of "
    "dgl.save_graphs or of PyG), or a kind of source: citation, dgl, edges, events, npz, ogb, pyg, python-environment, ratings, rmat, sbm, "
    "tables, typed-python-environment, typed_citation, or that of an installed package.",
)
@click.option(
    "--links",
    is_flag=True,
    help="Predict the edges of a folder of tables, also where a column looks like classes of its nodes.",
)
@click.option("--plan", "planned", is_flag=True, help="Choose the technique for this machine, as graphmill plan does.")
@click.pass_obj
def new(home: Path | None, name: str, source: str, links: bool, planned: bool) -> None:
    """Writes a pipeline file with comments, NAME.toml, into the folder where pipelines are found by name; overwrites nothing.

    The folder is $GRAPHMILL_PIPELINES, or ./pipelines, which is made where it is missing. The web UI shows its pipelines.

    Example: graphmill new mine --from mine.npz
    """
    from graphmill.jobs.commands.pipelines.new_pipeline import planned_pipeline, write_pipeline

    path = write_pipeline(name, source, links=links)
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
    from graphmill.jobs.commands.pipelines.checked import load_checked, require_runnable
    from graphmill.jobs.operations.sound import unread_lines, untrained_lines
    from graphmill.trainers.recipe.together import unused_lines

    loaded = load_checked(pipeline, home)
    report = require_runnable(loaded, home)
    needs, dropped = report.needs, report.survey.num_dropped_edges
    trains = [table.name for table in loaded.train]
    parts = loaded.table("partitions")
    notes = [said] if parts is not None and (said := say_rule(parts.method)) else []
    notes += [f"{dropped:,} edges with an end without a node will be left out (dangling)"] if dropped else []
    notes += [
        *report.notes,
        *unused_lines(loaded.train, loaded.sampling, loaded.graph.attributes),
        *unread_lines(loaded),
        *untrained_lines(loaded, home),
    ]
    if as_json:
        values = {"path": str(loaded.path), "name": loaded.name, "source": loaded.graph.source, "trains": trains}
        click.echo(json.dumps(values | {"notes": notes, "needs": needs.values()}, indent=2))
        return
    said = f"{loaded.path} is valid: graph from {loaded.graph.source}, trains {', '.join(trains) or 'nothing'}"
    click.echo("\n".join([said, *notes, *needs.lines()]))


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
    from graphmill.jobs.commands.pipelines.inspect_source import print_source, print_source_json

    (print_source_json if as_json else print_source)(source, home, settings)


@click.command(short_help="Shows what each level of the memory may hold.")
@click.argument("pipeline", required=False, shell_complete=complete_pipelines)
@set_option
@click.option("--refresh", is_flag=True, help="Measure the machine again.")
@json_option
@click.pass_obj
def budgets(home: Path | None, pipeline: str | None, settings: tuple[str, ...], refresh: bool, as_json: bool) -> None:
    """Shows what each level of the memory may hold of a PIPELINE's features, and how that came about.

    "auto" in [memory] is resolved from memory and disk as they were when they were first needed; only --refresh measures again.

    Example: graphmill budgets cora --set memory.host=1GiB
    """
    from graphmill.jobs.commands.pipelines.chunks import print_budgets
    from graphmill.kernels.errors import InputError

    if settings and pipeline is None:
        raise InputError("--set sets keys of a pipeline file, and no PIPELINE is given", "name one, or leave --set out")
    print_budgets(home, Asked(pipeline, settings).load() if pipeline else None, again=refresh, as_json=as_json)


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
    from graphmill.jobs.commands.pipelines.chunks import print_chunks

    print_chunks(home, pipeline.load(), rates=rates, row_bytes=row_bytes, again=refresh, as_json=as_json)


PIPELINES = (new, validate, inspect, plan, budgets, chunks)
