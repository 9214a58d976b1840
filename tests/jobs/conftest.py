"""What keeps the modules of this folder apart, and launches that take a second."""

from collections.abc import Iterator

import pytest
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext

from graphmill.jobs.runs.children import ChildProcesses
from tests.e2e.commands import train_in_fork


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

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChildProcesses, "_run_to_end", train_in_fork)
        yield
