"""The home of Dagster's history: `$GRAPHMILL_HOME`, which the web UI and the command line share."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

import jobs.runs.patience  # noqa: F401
from assets.storage.filesystem import locked, make_folder, replace_atomically
from assets.storage.home import VARIABLE, home_folder
from assets.storage.refused import refusal
from jobs.runs.history_errors import history_error, reporting_history, require_plain_name
from kernels.errors import InputError

SETTINGS = "dagster.yaml"
HISTORY_LOCK = ".history.lock"
MOST_SAID = 400
"""Most characters of a message of Dagster that are passed on."""

DAGSTER_YAML = """\
# Settings of Dagster for this home: https://docs.dagster.io/deployment/oss/dagster-yaml
# Written once by `graphmill init`, or by the first command that needs it, and never changed afterwards: edit it freely.

telemetry:
  enabled: false
nux:
  enabled: false

# One training at a time on this machine (pool gpu), and one step at a time that takes much memory (pool memory), whatever the number of
# runs. Raise the limits of the pools in the UI under Deployment. With granularity `run`, two runs would hold the same slot.
concurrency:
  pools:
    default_limit: 1
    granularity: op

run_monitoring:
  enabled: true
  start_timeout_seconds: 300
  cancel_timeout_seconds: 120
  poll_interval_seconds: 20
  # A run that died gives its slots back after this time.
  free_slots_after_run_end_seconds: 30

retention:
  schedule:
    purge_after_days: 90
  sensor:
    purge_after_days:
      skipped: 1
      failure: 30
      success: 90

# History is in SQLite files in this folder. For a server that several machines use, `pip install dagster-postgres`, then:
# storage:
#   postgres:
#     postgres_url:
#       env: GRAPHMILL_POSTGRES_URL
"""


def init_home(home: str | os.PathLike[str] | None = None) -> tuple[Path, bool]:
    """Makes the home folder and Dagster's settings, if they are missing.

    Args:
        home: the folder, None for `$GRAPHMILL_HOME` or `./.graphmill`.

    Returns:
        The absolute path of the folder, and whether the settings were written now.

    Raises:
        InputError: the folder cannot be made or written.
    """
    folder = home_folder(home)
    require_plain_name(folder)
    path = folder / SETTINGS
    try:
        make_folder(folder)
        if path.exists():
            return folder, False
        replace_atomically(path, DAGSTER_YAML.encode())
    except OSError as error:
        raise InputError(
            f"the home {folder} cannot be made or written: {error.strerror} ({error.filename})",
            "give another folder by --home or GRAPHMILL_HOME, or correct its permissions",
        ) from error
    return folder, True


def environment(home: Path) -> dict[str, str]:
    """Returns the environment variables that make a process use this home for artifacts and for history."""
    return {VARIABLE: str(home), "DAGSTER_HOME": str(home)}


def open_instance(home: Path) -> dg.DagsterInstance:
    """Opens the history of a home, to be used as a context manager.

    Raises:
        InputError: the folder cannot be made or written, or its settings or the history are damaged.
    """
    init_home(home)
    with reporting_history(home), _reporting_settings(home):
        return _open_instance(home)


def _open_instance(home: Path) -> dg.DagsterInstance:
    with locked(home / HISTORY_LOCK):
        instance = dg.DagsterInstance.from_config(str(home))
        # Each storage makes its tables when it is first touched, and two processes that make them at once fail.
        instance.get_runs_count()
        instance.event_log_storage.get_maximum_record_id()
        instance.all_instigator_state()
        return instance


@contextmanager
def _reporting_settings(home: Path) -> Iterator[None]:
    """Turns Dagster's errors about edited settings into an InputError."""
    try:
        yield
    except Exception as error:
        path = home / SETTINGS
        if refusal(error) or history_error(error, home) or path.read_bytes() == DAGSTER_YAML.encode():
            raise
        said = " ".join(str(error).split())
        raise InputError(
            f"the settings {path} cannot be used: {said[:MOST_SAID]}",
            "correct them, or move the file away: the next command writes it anew",
        ) from error
