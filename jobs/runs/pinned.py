"""What Dagster has no public interface for: pipeline files of a run as they were at its launch, and its place in the web UI.

Every step of a run is a new process that loads the definitions again. If it read the pipeline files again, an edit during a run
would change the artifacts of later steps. Dagster can carry values from the first load to the later ones, but only an internal class of
Dagster returns them, so it is used here and nowhere else. (`Definitions.with_reconstruction_metadata` would store them, but it cannot read
them back.) tests/jobs/runs/test_pinned.py notices when that class changes.

Runs of the command line are listed in the web UI like its own: on the landing page and on the page of their job. The UI finds a run by the
code location and the job that it was launched from, its origin. Runs that the UI launches have an origin; Dagster's functions that run a
job in this process, or in its child processes, set none and have no argument for one. So the function that both call to create the run is
replaced on the one instance that this program uses; a test asks the real UI for such runs.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import dagster as dg
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

KEY = "graphmill/pipeline_files"


def pinned_files(read: Callable[[], Mapping[Path, bytes]], name: str = "") -> dict[Path, bytes]:
    """Returns path -> content of the pipeline files: read now on a first load, and as they were then on every later one.

    Args:
        name: a name for these files, where one code location reads several sets of them.
    """
    context, key = DefinitionsLoadContext.get(), f"{KEY}/{name}" if name else KEY
    # Latin-1 maps each byte to one character and back, so a file that is not UTF-8 is reported as such, and not changed.
    if context.load_type == DefinitionsLoadType.RECONSTRUCTION and key in context.reconstruction_metadata:
        pinned = json.loads(context.reconstruction_metadata[key])
        return {Path(path): data.encode("latin-1") for path, data in pinned.items()}
    files = dict(read())
    text = json.dumps({str(path): data.decode("latin-1") for path, data in files.items()})
    context.add_to_pending_reconstruction_metadata(key, text)
    return files


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
