"""`graphmill inspect SOURCE`: the contents of data, and the memory and disk that a graph of them would take, before a build."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.sizes import format_bytes
from kernels.errors import InputError

if TYPE_CHECKING:
    from assets.pipeline.file import Pipeline
    from assets.sources.survey import Survey

DGL_MAGIC = bytes.fromhex("3fa1b446f04f2edd")
"""First bytes of a `dgl.save_graphs` file."""

ENDS = (("src", "dst"), ("source", "target"), ("source", "destination"), ("from", "to"), ("u", "v"), ("head", "tail"))
"""Usual names of the two columns of an edge table."""


def print_source(source: str) -> None:
    """Prints the survey of a pipeline's graph, or of a file or folder that no pipeline names yet.

    Args:
        source: name or TOML file of a pipeline; or an `.npz` archive, Parquet or CSV tables (a pattern in quotes), an
            ogbn-* folder, or a file of `dgl.save_graphs`.

    Raises:
        InputError: the source does not exist, or it cannot be read.
    """
    from assets.pipeline.file import load_pipeline, pipeline_files

    if source in pipeline_files() or source.endswith(".toml"):
        pipeline, survey = load_pipeline(source), survey_of(source)
        more = [*_hotness_lines(pipeline, survey.num_nodes), *_partition_lines(pipeline, survey)]
        print("\n".join([*survey.lines(), *more]))
        return
    kind, keys = recognise(Path(source).absolute())
    if kind == "table":
        from assets.sources.edges.survey import survey_files

        print("\n".join(survey_files([Path(source).absolute()])))
        print("no columns are named like the ends of edges; docs/own-data.md says how to name them in [graph]")
        return
    print("\n".join(survey_of(source).lines()))
    print("\nto build it, write into a pipeline file (docs/own-data.md):\n\n[graph]")
    print("\n".join(f'{key} = "{value}"' for key, value in {"source": kind, **keys}.items()))


def survey_of(source: str) -> Survey:
    """Returns the survey of a pipeline's graph, or of data whose kind and columns can be recognised.

    Raises:
        InputError: the source does not exist, it cannot be read, or it is a table without columns that are named like the ends of edges.
    """
    from assets.pipeline.file import load_pipeline, pipeline_files
    from assets.sources.registry import config_class, source_module

    if source in pipeline_files() or source.endswith(".toml"):
        pipeline = load_pipeline(source)
        survey = source_module(pipeline.graph.source).survey(pipeline.graph.by_split()[0])
        if len(pipeline.splits) > 1:
            line = f"one graph for each of the splits {', '.join(pipeline.splits)}"
            survey = replace(survey, contents=[*survey.contents, line])
        tables = pipeline.table("features")
        return survey if tables is None else survey.stored_as(tables.main.dtype)
    kind, keys = recognise(Path(source).absolute())
    if kind == "table":
        problem = f"{source} has no columns that are named like the ends of edges"
        raise InputError(problem, "name them in a [graph] table (docs/own-data.md), and inspect that pipeline file")
    return source_module(kind).survey(config_class(kind)(**keys))


def _hotness_lines(pipeline: Pipeline, num_nodes: int) -> list[str]:
    from assets.building.execution import Threads
    from assets.hotness.config import hotness_config, needed_bytes

    hotness = pipeline.table("hotness")
    if hotness is None:
        return []
    config = hotness_config(hotness, pipeline.sampling, pipeline.seed)
    memory, stored = needed_bytes(config, num_nodes, Threads().threads)
    epochs = f"{hotness.rounds * hotness.presamples} presampled and {hotness.evaluate_epochs} evaluated epochs"
    return [
        f"hotness by {hotness.policy}: {epochs}",
        f"  memory    {format_bytes(memory)}, one batch per thread, and the mapped graph",
        f"  disk      {format_bytes(stored)}",
    ]


def _partition_lines(pipeline: Pipeline, survey: Survey) -> list[str]:
    from assets.partitions.method import say_choice

    table = pipeline.table("partitions")
    if table is None:
        return []
    undirected = bool(getattr(pipeline.graph, "undirected", False))
    said = say_choice(table.method, survey.num_nodes, survey.num_edges, undirected)
    return [said] if said else []


def recognise(path: Path) -> tuple[str, dict[str, Any]]:
    """Returns (source, its keys) of a file or folder; ("table", {}) for tables without two columns of usual names.

    Raises:
        InputError: nothing is there, or no source reads it.
    """
    if path.is_dir():
        return "ogb", {"path": path}
    if path.is_file() and path.suffix == ".npz":
        return "npz", {"path": path}
    if path.is_file() and _first_bytes(path) == DGL_MAGIC:
        return "dgl", {"path": path}
    if any(ending in path.name for ending in (".parquet", ".pq", ".csv", ".tsv")):
        return _recognise_table(path)
    if not path.exists():
        raise InputError(
            f"{path}: no such file or folder, and no pipeline of that name", "`graphmill validate NAME` lists names"
        )
    raise InputError(
        f"{path} is none of .npz, Parquet, CSV, an ogbn-* folder, or a file of dgl.save_graphs",
        "docs/own-data.md has the layouts",
    )


def _recognise_table(path: Path) -> tuple[str, dict[str, Any]]:
    from assets.sources.readers.duck import Duck
    from assets.sources.readers.table_files import TableFiles

    with Duck(None, 256 << 20, 1) as duck:
        columns = TableFiles(duck, [path], "edges").columns
    for ends in ENDS:
        if set(ends) <= set(columns):
            named = {} if ends == ENDS[0] else {"source_column": ends[0], "target_column": ends[1]}
            return "edges", {"edges": path, **named}
    return "table", {}


def _first_bytes(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(8)
