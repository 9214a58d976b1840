"""A code location whose trainings ignore SIGINT and SIGTERM, for tests of cancellation.

The pipeline is the file `$GRAPHMILL_STUBBORN`; the process ids of a training go to the file RUN_ID.NAME in the same folder.
"""

import os
import sys
from pathlib import Path

import dagster as dg

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.jobs.definitions import build_defs
from graphmill.jobs.runs.children import ChildProcesses
from graphmill.trainers.recipe.config import TrainTable


class StubbornChildren(ChildProcesses):
    """Runs stubborn.py in place of any training."""

    def run(self, *, context, command, **more):
        pid_file = Path(os.environ["GRAPHMILL_STUBBORN"]).parent / f"{context.run.run_id}.{context.asset_key.path[-1]}"
        command = [sys.executable, str(Path(__file__).parent / "stubborn.py"), str(pid_file)]
        return super().run(context=context, command=command, **more)


@dg.definitions
def defs():
    pipeline = load_pipeline(os.environ["GRAPHMILL_STUBBORN"], TrainTable)
    return build_defs([pipeline], children=StubbornChildren((0.3, 0.3, 20.0)))
