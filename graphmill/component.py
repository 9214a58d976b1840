"""A pipeline inside a Dagster project of somebody else: a component whose `defs.yaml` names a pipeline file.

The project gets the assets, checks, jobs and schedules that graphmill's own code location has for the file, and none of graphmill's
executor: docs/dagster.md shows a project with an asset of its own below a model.
"""

import dagster as dg

from graphmill.assets.pipeline.file import find_pipeline, parse_pipeline, read_pipeline_file
from graphmill.jobs.definitions import definitions_of, surroundings
from graphmill.jobs.runs.children import ChildProcesses
from graphmill.jobs.runs.pinned import pinned_files
from graphmill.trainers.recipe.config import TrainTable


class PipelineComponent(dg.Component, dg.Model, dg.Resolvable):
    """Loads a pipeline of graphmill as assets: one for each stage, and one for each `[[train]]` table.

    Attributes:
        pipeline: path of the TOML file, relative to the folder of `defs.yaml`; or the name of a shipped pipeline.
        home: folder of the artifacts, relative to the project; None for `$GRAPHMILL_HOME`, or `.graphmill` in the current folder.
        threads: threads that build the data, None for the default.
    """

    pipeline: str
    home: str | None = None
    threads: int | None = None

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Returns the definitions of the pipeline; every step of a run takes the file as it was when the run was launched.

        Raises:
            InputError: the file does not exist, or all mistakes in it, each with its line.
        """
        folder = context.path if context.path.is_dir() else context.path.parent
        path = folder / self.pipeline if self.pipeline.endswith(".toml") else find_pipeline(self.pipeline)
        ((path, data),) = pinned_files(lambda: {path: read_pipeline_file(path)[1]}, str(path)).items()
        around = surroundings(self.home and context.project_root / self.home)
        return definitions_of(parse_pipeline(path, data, TrainTable), around, ChildProcesses(), self.threads)
