"""Lists runs of the command line in the web UI like its own runs: on the landing page and on the page of their job.

The UI finds a run by the code location and the job that it was launched from, its origin. Runs that the UI launches have an origin;
Dagster's functions that run a job in this process, or in its child processes, set none and have no argument for one. So the function that
both call to create the run is replaced on the one instance that this program uses; a test asks the real UI for such runs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import dagster as dg
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

LOCATION, REPOSITORY = "graphmill", "__repository__"
"""The `location_name` of workspace.yaml, and Dagster's name of the repository of a file with one object of definitions."""


@contextmanager
def listed_in_ui(instance: dg.DagsterInstance, job: str) -> Iterator[None]:
    """Gives the runs that are created while this is active the origin of a job of the UI's code location."""
    location = RegisteredCodeLocationOrigin(LOCATION)
    origin = RemoteJobOrigin(RemoteRepositoryOrigin(location, REPOSITORY), job)
    create = instance.create_run_for_job
    instance.create_run_for_job = partial(create, remote_job_origin=origin)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        del instance.create_run_for_job
