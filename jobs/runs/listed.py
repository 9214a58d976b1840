"""Gives runs of the command line the place in the web UI that runs of its own have: on the landing page and on the page of their job.

The UI finds a run by the code location and the job that it was launched from, its origin. Runs that the UI launches have one; Dagster's
functions that run a job in this process, or in processes of it, give none and offer no argument for one. So the function that both call
to create the run is replaced on the one instance that this program uses; a test asks the real UI for such runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import dagster as dg
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

LOCATION, REPOSITORY = "graphmill", "__repository__"
"""The `location_name` of workspace.yaml, and what Dagster calls the repository of a file with one object of definitions."""


@contextmanager
def listed_in_ui(instance: dg.DagsterInstance, job: str) -> Iterator[None]:
    """Gives the runs that are created while this is active the origin of a job of the UI's code location.

    Args:
        instance: creates the runs.
        job: name of the job.
    """
    location = RegisteredCodeLocationOrigin(LOCATION)
    origin = RemoteJobOrigin(RemoteRepositoryOrigin(location, REPOSITORY), job)
    create = instance.create_run_for_job
    instance.create_run_for_job = partial(create, remote_job_origin=origin)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        del instance.create_run_for_job
