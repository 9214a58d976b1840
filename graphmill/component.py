"""A pipeline inside a Dagster project of somebody else: a component whose `defs.yaml` names a pipeline file.

The project gets the assets, checks, jobs and schedules that graphmill's own code location has for the file, and none of graphmill's
executor: docs/dagster.md shows a project with assets of its own above the data and below a model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

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


class PipelineComponent(dg.Component, dg.Model, dg.Resolvable):
    """Loads a pipeline of graphmill as assets: one for each stage, and one for each `[[train]]` table.

    Attributes:
        pipeline: path of the TOML file, relative to the folder of `defs.yaml`; or the name of a shipped pipeline.
        home: folder of the artifacts, relative to the project; None for `$GRAPHMILL_HOME`, or `.graphmill` in the current folder.
        threads: threads that build the data, None for the default.
        upstream: keys of assets of the project that come before the graph and its features; or key of `[graph]`, `features` or
            `features.NAME` -> key of the asset that writes what is read there.
    """

    pipeline: str
    home: str | None = None
    threads: int | None = None
    upstream: Mapping[str, str] | Sequence[str] = ()

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Returns the definitions of the pipeline; every step of a run takes the file as it was when the run was launched.

        Raises:
            InputError: the file does not exist, or all mistakes in it, each with its line.
        """
        folder = context.path if context.path.is_dir() else context.path.parent
        path = folder / self.pipeline if self.pipeline.endswith(".toml") else find_pipeline(self.pipeline)
        ((path, data),) = pinned_files(lambda: {path: read_pipeline_file(path)[1]}, str(path)).items()
        home = self.home and context.project_root / self.home
        with one_home(home):
            pipeline = below(parse_pipeline(path, data, TrainTable), self.upstream)
        around = replace(surroundings(home), in_project=True)
        return definitions_of(pipeline, around, ChildProcesses(), self.threads)


def below(pipeline: Pipeline, upstream: Mapping[str, str] | Sequence[str]) -> Pipeline:
    """Returns a pipeline whose data come after assets of the project, as if `after` in its file named them.

    Args:
        pipeline: the recipe.
        upstream: the attribute of the component.

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
