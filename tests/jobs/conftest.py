"""What keeps the modules of this folder apart, and launches that take a second."""

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext

from graphmill.assets.storage.home import ROOT
from graphmill.jobs.runs.children import ChildProcesses
from tests import forks


@pytest.fixture(autouse=True, scope="module")
def own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A launch sets the home for its processes, and leaves the pipeline files that its process loaded (jobs/runs/pinned.py); the next
    module must not see either. What asks for no home gets one of this module.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DefinitionsLoadContext, "_instance", None)
        for name in ("GRAPHMILL_HOME", "DAGSTER_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp("default")))
        yield


@pytest.fixture(scope="module")
def quick_launches() -> Iterator[None]:
    """For tests of what a launch builds: its trainings are forks of a process that has imported torch, without a guard."""

    def run(self: ChildProcesses, command: Sequence[str], environment: dict[str, str], canceled: Any) -> int:
        done = forks.run(command[1:], cwd=ROOT, env=environment, imports=forks.TRAININGS)
        print(done.stdout, end="")
        if self.stderr is None:
            print(done.stderr, end="", file=sys.stderr)
        else:
            os.write(self.stderr, done.stderr.encode())
        return done.returncode

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChildProcesses, "_run_to_end", run)
        yield
