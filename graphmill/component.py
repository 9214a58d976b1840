"""Pipelines inside a Dagster project of somebody else: components whose `defs.yaml` names a pipeline file, or stands in a folder of them.

The project gets the assets, checks, jobs and schedules that graphmill's own code location has for the files, and none of graphmill's
executor: docs/dagster.md shows a project with assets of its own above the data and below a model. The command `dg` finds both components by
the entry point of the group `dagster_dg_cli.registry_modules` (pyproject.toml).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import dagster as dg

from graphmill.assets.features.config import FeatureTables
from graphmill.assets.pipeline.file import Pipeline, find_pipeline, parse_pipeline, read_pipeline_file
from graphmill.assets.storage.names.home import one_home
from graphmill.assets.storage.names.upstream import wrong_asset_key
from graphmill.jobs.definitions import definitions_of, surroundings
from graphmill.jobs.runs.children import ChildProcesses
from graphmill.jobs.runs.pinned import pinned_files
from graphmill.kernels.errors import InputError, did_you_mean
from graphmill.trainers.recipe.config import TrainTable

FIRST_PIPELINE = """\
# A generated graph, until [graph] names yours: docs/own-data.md and, for tables of your own assets, docs/dagster.md.
[graph]
source = "sbm"
nodes = 1000
edges = 8000
features = 8
classes = 3

[sampling]
fanouts = [5, 5]
batch_size = 128

[[train]]
name = "sage"
hidden = 16
epochs = 5
"""
"""What `dg scaffold` writes: a pipeline that trains in seconds."""

HOME = (
    "Folder of the artifacts, relative to the project. Without it $GRAPHMILL_HOME, or .graphmill in the current folder."
)
THREADS = "Threads that build the data. Without it each stage has its default."
UPSTREAM = (
    "Assets of the project that write files which the pipeline reads: a list of asset keys, or key of [graph], features or features.NAME "
    "-> asset key."
)


class PipelineScaffolder(dg.Scaffolder):
    """Writes a pipeline that trains, and the `defs.yaml` that loads it."""

    def scaffold(self, request: dg.ScaffoldRequest) -> None:
        """Writes both files into the folder of the component."""
        name = re.sub(r"[^A-Za-z0-9_-]", "-", request.target_path.name)
        (request.target_path / f"{name}.toml").write_text(FIRST_PIPELINE)
        names_a_file = request.type_name.endswith(PipelineComponent.__name__)
        dg.scaffold_component(request, {"pipeline": f"{name}.toml"} if names_a_file else {})


class _Pipelines(dg.Component, dg.Model, dg.Resolvable):
    """The attributes that both components have."""

    home: Annotated[str | None, dg.Resolver.default(description=HOME)] = None
    threads: Annotated[int | None, dg.Resolver.default(description=THREADS)] = None
    upstream: Annotated[Mapping[str, str] | Sequence[str], dg.Resolver.default(description=UPSTREAM)] = ()

    def _load(self, context: dg.ComponentLoadContext, files: Mapping[Path, bytes], name: str) -> dg.Definitions:
        """Returns the definitions of pipeline files; every step of a run takes them as they were when the run was launched."""
        home = context.project_root / self.home if self.home else None
        around, parts = replace(surroundings(home), in_project=True), []
        for path, data in pinned_files(lambda: files, name).items():
            with one_home(home):
                pipeline = below(parse_pipeline(path, data, TrainTable), self.upstream)
            parts.append(definitions_of(pipeline, around, ChildProcesses(), self.threads))
        return dg.Definitions.merge(*parts)


@dg.scaffold_with(PipelineScaffolder)
class PipelineComponent(_Pipelines):
    """Loads a pipeline of graphmill as assets: one for each stage of its data, and one for each model that it trains."""

    pipeline: Annotated[
        str,
        dg.Resolver.default(
            description="Path of the TOML file, relative to the folder of defs.yaml; or the name of a shipped pipeline.",
            examples=["communities.toml"],
        ),
    ]

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Returns the definitions of the pipeline.

        Raises:
            InputError: the file does not exist, or all mistakes in it, each with its line.
        """
        path = _folder(context) / self.pipeline if self.pipeline.endswith(".toml") else find_pipeline(self.pipeline)
        return self._load(context, {path: read_pipeline_file(path)[1]}, str(path))


@dg.scaffold_with(PipelineScaffolder)
class PipelineFolderComponent(_Pipelines):
    """Loads each pipeline of graphmill in a folder, and in the folders below it, as assets of a group of its own."""

    folder: Annotated[
        str, dg.Resolver.default(description="Folder of the TOML files, relative to the folder of defs.yaml.")
    ] = "."

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Returns the definitions of all pipelines of the folder.

        Raises:
            InputError: the folder has none, or all mistakes in the first wrong file, each with its line.
        """
        folder = _folder(context) / self.folder
        if not (paths := sorted(folder.glob("**/*.toml"))):
            raise InputError(f"{folder} has no pipeline file", "put TOML files there, or correct `folder` in defs.yaml")
        return self._load(context, {path: read_pipeline_file(path)[1] for path in paths}, str(folder))


def _folder(context: dg.ComponentLoadContext) -> Path:
    return context.path if context.path.is_dir() else context.path.parent


def below(pipeline: Pipeline, upstream: Mapping[str, str] | Sequence[str]) -> Pipeline:
    """Returns a pipeline whose data come after assets of the project, as if `after` in its file named them.

    Raises:
        InputError: a text is not an asset key, or is given for a key that the file does not have.
    """
    pairs = upstream.items() if isinstance(upstream, Mapping) else [("", key) for key in upstream]
    graph, features = pipeline.graph, pipeline.tables.get("features") or FeatureTables()
    main, named = features.main, dict(features.named)
    keys = {each.name for each in fields(graph)}
    for place, key in pairs:
        if wrong := wrong_asset_key(key):
            raise InputError(f"upstream: {wrong}", "correct it in defs.yaml")
        name = place.removeprefix("features.")
        if place == "features":
            main = _after(main, key)
        elif name != place and name in named:
            named[name] = _after(named[name], key)
        elif not place or place.partition(".")[0] in keys:
            graph = _after(graph, key)
        else:
            hint = did_you_mean(place, [*keys, "features", *(f"features.{each}" for each in named)])
            problem = f"upstream: {pipeline.path} has no {place}{hint}"
            raise InputError(problem, "name a key of [graph], features or features.NAME")
    tables = {**pipeline.tables, "graph": graph, "features": replace(features, main=main, named=named)}
    return replace(pipeline, tables=tables)


def _after(table: Any, key: str) -> Any:
    """Returns a table of the file that comes after one more asset."""
    return replace(table, after=(*table.after, key))
