"""`graphmill inspect SOURCE`: the contents of data, and the memory and disk that a graph of them would take, before a build."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmill.assets.sizes import format_bytes
from graphmill.jobs.commands.options import Asked
from graphmill.kernels.errors import InputError, joined

if TYPE_CHECKING:
    from graphmill.assets.pipeline.file import Pipeline
    from graphmill.assets.sources.interface import GraphConfig
    from graphmill.assets.sources.survey import Survey
    from graphmill.jobs.commands.pipelines.checked import PipelineReport

DGL_MAGIC = bytes.fromhex("3fa1b446f04f2edd")
"""First bytes of a `dgl.save_graphs` file."""
OGB_FOLDERS = ("raw", "processed", "split")
"""Folders of which an OGB dataset has at least one."""
PROFILED_BYTES = 256 << 20
"""Most bytes of the files of a pipeline that are read for its profile: some seconds."""
ENDS = (("src", "dst"), ("source", "target"), ("source", "destination"), ("from", "to"), ("u", "v"), ("head", "tail"))
"""Usual names of the two columns of an edge table."""


def print_source(source: str, home: Path | None, settings: Sequence[str] = ()) -> None:
    """Prints the survey of a pipeline's graph, or of a file or folder that no pipeline names yet.

    Args:
        source: name or TOML file of a pipeline; or an `.npz` archive, tables in Parquet or text (a folder, or a pattern in quotes), an
            ogbn-* folder, or a file of `dgl.save_graphs` or of a PyG graph.
        settings: KEY=VALUE each, keys that are set in the pipeline file.

    Raises:
        InputError: the source does not exist, it cannot be read, or a step of the pipeline cannot fit this machine.
    """
    if _is_pipeline(source):
        from graphmill.assets.storage.names.home import home_folder
        from graphmill.jobs.commands.pipelines.checked import report_pipeline
        from graphmill.jobs.planning.graph import evaluation_lines
        from graphmill.trainers.recipe.together import unused_lines

        pipeline = Asked(source, tuple(settings)).load()
        report, errors = report_pipeline(pipeline, home)
        if report is not None:
            survey = report.survey
            unused = unused_lines(pipeline.train, pipeline.sampling, survey.attributes)
            lines = [*survey.lines(), *unused, *_partition_lines(pipeline, survey), *report.needs.lines()]
            print("\n".join([*_profile_lines(pipeline), *lines, *evaluation_lines(pipeline, home_folder(home))]))
        _require_none(report, errors)
        return
    _require_no_settings(source, settings)
    require_local(source)
    if is_folder_of_tables(Path(source)):
        from graphmill.jobs.commands.pipelines.inspect_folder import print_folder

        print_folder(Path(source).absolute())
        return
    kind, keys = recognise(Path(source).absolute())
    if kind == "table":
        _print_unnamed(Path(source).absolute())
        return
    from graphmill.assets.pipeline.toml_text import toml_value

    print("\n".join(survey_of(source).lines()))
    print("\nto build it, write into a pipeline file (docs/own-data.md):\n\n[graph]")
    print("\n".join(f"{key} = {toml_value(value)}" for key, value in {"source": kind, **keys}.items()))


def _print_unnamed(path: Path) -> None:
    """Prints the contents of a table whose columns have other names than usual ones, and the keys that name them."""
    from graphmill.assets.sources.edges.survey import survey_files

    print("\n".join(survey_files([path])))
    print(
        "no columns are named like the ends of edges. If these are edges, name the ends: source_column and target_column\n"
        "in [graph]. A table of nodes is named there, too: nodes = PATH, id_column, features, label_column (docs/own-data.md)"
    )


def survey_of(source: str) -> Survey:
    """Returns the survey of a pipeline's graph, or of data whose kind and columns can be recognised.

    Raises:
        InputError: the source does not exist, it cannot be read, or it is a table without columns that are named like the ends of edges.
    """
    from graphmill.assets.features.config import features_config
    from graphmill.assets.features.stage import FEATURES
    from graphmill.assets.graph.stage import GRAPH
    from graphmill.assets.pipeline.file import load_pipeline
    from graphmill.assets.sources.registry import config_class
    from graphmill.jobs.commands.pipelines.inspect_pipeline import survey_pipeline, with_problems
    from graphmill.trainers.recipe.config import TrainTable

    if _is_pipeline(source):
        return survey_pipeline(load_pipeline(source, TrainTable))
    kind, keys = recognise(Path(source).absolute())
    if kind == "table":
        problem = f"{source} has no columns that are named like the ends of edges"
        raise InputError(problem, "name them in a [graph] table (docs/own-data.md), and inspect that pipeline file")
    config = config_class(kind)(**keys)
    return with_problems(config.survey(), [[(FEATURES, features_config(config)), (GRAPH, config)]])


def print_source_json(source: str, home: Path | None, settings: Sequence[str] = ()) -> None:
    """Prints the survey as JSON; of a pipeline with `needs`, those of its steps; errors are those of `print_source`."""
    if not _is_pipeline(source):
        _require_no_settings(source, settings)
        if is_folder_of_tables(Path(source)):
            from graphmill.jobs.commands.pipelines.inspect_folder import folder_values

            print(json.dumps(folder_values(Path(source).absolute()), indent=2))
            return
        print(json.dumps(survey_of(source).values(), indent=2))
        return
    from graphmill.assets.sources.profile.profile import profiled
    from graphmill.jobs.commands.pipelines.checked import report_pipeline

    pipeline = Asked(source, tuple(settings)).load()
    report, errors = report_pipeline(pipeline, home)
    if report is not None:
        with profiled(profiled_graph(pipeline)) if small_tables(pipeline) else nullcontext() as profile:
            found = {} if profile is None else {"profile": profile.values()}
        print(json.dumps(report.survey.values() | found | {"needs": report.needs.values()}, indent=2))
    _require_none(report, errors)


def _require_none(report: PipelineReport | None, errors: Sequence[InputError]) -> None:
    """Raises one error for the mistakes that a printed report does not show itself."""
    shown = {each.problem for each in report.survey.errors} if report is not None else set()
    if others := [each for each in errors if each.problem not in shown]:
        raise joined(others)


def _require_no_settings(source: str, settings: Sequence[str]) -> None:
    if settings:
        raise InputError(f"--set sets keys of a pipeline file, and {source} is data", "leave --set out")


def _is_pipeline(source: str) -> bool:
    from graphmill.assets.pipeline.file import pipeline_files

    return source in pipeline_files() or source.endswith(".toml")


def small_tables(pipeline: Pipeline) -> bool:
    """Tells whether the files of a pipeline's graph are so small that reading all of them for a profile takes seconds."""
    from graphmill.assets.storage.names.patterns import bytes_named

    return bytes_named(pipeline.graph) <= PROFILED_BYTES


def profiled_graph(pipeline: Pipeline) -> GraphConfig:
    """Returns the keys of a pipeline's graph, with the columns and encoders of the feature table that its trainings share."""
    from graphmill.assets.features.config import FeatureTables

    table = (pipeline.table("features") or FeatureTables()).find(pipeline.shared_features)
    return pipeline.graph if table.file is not None else pipeline.graph.for_table(table)


def _profile_lines(pipeline: Pipeline) -> Iterator[str]:
    """Yields the profile of the tables of a pipeline, or that they are not read."""
    from graphmill.assets.sources.profile.profile import profiled
    from graphmill.jobs.commands.pipelines.inspect_folder import profile_lines

    if not small_tables(pipeline):
        command = f"graphmill report {pipeline.reference} --data reads all of them"
        yield f"not profiled: the files have more than {format_bytes(PROFILED_BYTES)}; {command}"
        return
    with profiled(profiled_graph(pipeline)) as profile:
        yield from () if profile is None else [*profile_lines(profile), ""]


def _partition_lines(pipeline: Pipeline, survey: Survey) -> list[str]:
    from graphmill.assets.partitions.method import say_choice

    table = pipeline.table("partitions")
    if table is None:
        return []
    undirected = bool(getattr(pipeline.graph, "undirected", False))
    said = say_choice(table.method, survey.num_nodes, survey.num_edges, undirected)
    return [said] if said else []


def require_local(source: str) -> None:
    """Refuses an address of a file that is not on this machine; raises InputError if the text is such an address."""
    from graphmill.assets.storage.names.patterns import REMOTE, why_nothing

    if REMOTE.match(source) and not Path(source).exists():
        raise InputError(f"{source} {why_nothing(Path(source))}", "download the files, and give their local path")


def column_names(path: Path) -> list[str]:
    """Returns the names of the columns of a table; raises InputError if it cannot be read."""
    from graphmill.assets.sources.edges.config import NAMES
    from graphmill.assets.sources.readers.duck import Duck
    from graphmill.assets.sources.readers.table_files import TableFiles
    from graphmill.assets.sources.readers.text_layout import TextForm

    with Duck(None, 1 << 30, 1) as duck:
        return list(TableFiles(duck, [path], "edges", TextForm(names=NAMES["edges"])).columns)


def recognise(path: Path) -> tuple[str, dict[str, Any]]:
    """Returns (source, its keys) of a file or folder; ("table", {}) for tables without two columns of usual names.

    Raises:
        InputError: nothing is there, or no source reads it.
    """
    from graphmill.assets.sources.arrays.torch_file import looks_saved
    from graphmill.assets.sources.readers.part_files import looks_like_table
    from graphmill.assets.storage.names.patterns import matches, why_nothing

    if path.is_dir() and _is_ogb(path):
        return "ogb", {"path": path}
    if path.is_file() and path.suffix == ".npz":
        return "npz", {"path": path}
    if path.is_file() and _first_bytes(path) == DGL_MAGIC:
        return "dgl", {"path": path}
    if path.is_file() and looks_saved(path):
        return "pyg", {"path": path}
    found = matches(path)
    if any(looks_like_table(each) for each in found):
        return _recognise_table(path)
    if not found:
        what = why_nothing(path).replace("is not there", "is no such file or folder")
        raise InputError(f"{path} {what}, and no pipeline of that name", "`graphmill validate NAME` lists names")
    what = (
        "a folder of part files, none of which is Parquet or text" if path.is_dir() else "none of .npz, Parquet, text"
    )
    problem = f"{path} is {what}, an OGB folder (with raw/ or processed/), or a file of dgl.save_graphs or torch.save"
    raise InputError(problem, "docs/own-data.md has the layouts")


def is_folder_of_tables(path: Path) -> bool:
    """Tells whether a folder holds several tables, which no key describes yet."""
    from graphmill.assets.sources.folder.tables import holds_tables

    return path.is_dir() and not _is_ogb(path) and holds_tables(path.absolute())


def _is_ogb(folder: Path) -> bool:
    return any((folder / name).is_dir() for name in OGB_FOLDERS)


def _recognise_table(path: Path) -> tuple[str, dict[str, Any]]:
    columns = column_names(path)
    for ends in ENDS:
        if {*ends} <= {*columns}:
            named = {} if ends == ENDS[0] else {"source_column": ends[0], "target_column": ends[1]}
            return "edges", {"edges": path, **named}
    return "table", {}


def _first_bytes(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(8)
