"""The home of Dagster's history: `$GRAPHMILL_HOME`, which the web UI and the command line share.

On import it sets how long a process waits for another that writes to the history, for every SQLite file that SQLAlchemy opens. A write of
one process locks the file until it is on the disk, which takes many seconds while the disk is busy with artifacts. Dagster waits half a
minute for its events and five seconds, Python's default, for runs and ticks; then a run or a tick fails with "database is locked".
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
from sqlalchemy import event
from sqlalchemy.engine import Dialect, Engine

from assets.storage.filesystem import locked, make_folder, replace_atomically
from assets.storage.home import VARIABLE, home_folder
from assets.storage.refused import refusal
from kernels.errors import InputError

PATIENCE_SECONDS = 60.0
SETTINGS = "dagster.yaml"
HISTORY_LOCK = ".history.lock"
IN_A_URL = re.compile(r"\?|%[0-9A-Fa-f]{2}")
"""Text that means something else in the URL of a database, in which Dagster puts the path of the home."""

FREE = "free space there, or point GRAPHMILL_HOME at a larger file system; artifacts that were finished are kept"
PERMIT = "correct the permissions of its files, or point GRAPHMILL_HOME at a folder that can be written"
ANEW = "move the folder history/ away: the history begins anew, and artifacts stay"
SAID = {
    "disk is full": FREE,
    "disk I/O error": FREE,
    "readonly database": PERMIT,
    "unable to open": PERMIT,
    "not a database": ANEW,
    "malformed": ANEW,
    "locked": "end the other program that holds it, and run the same command again",
}
"""Words of SQLite's messages, and the remedy for each."""
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
        InputError: the folder cannot be made or written, or its path has a question mark, or a percent sign before two hex digits.
    """
    folder = home_folder(home)
    if found := IN_A_URL.search(str(folder)):
        problem = f"the home {folder} has {found[0]!r} in its path, which the history of runs cannot be kept under"
        raise InputError(problem, "give a folder without ? and % by --home or GRAPHMILL_HOME")
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
    with reporting_history(home), locked(home / HISTORY_LOCK):
        try:
            instance = dg.DagsterInstance.from_config(str(home))
            # Each storage makes its tables when it is first touched, and two processes that make them at once fail.
            instance.get_runs_count()
            instance.event_log_storage.get_maximum_record_id()
            instance.all_instigator_state()
            return instance
        except Exception as error:
            path = home / SETTINGS
            if refusal(error) or history_error(error, home) or path.read_bytes() == DAGSTER_YAML.encode():
                raise
            # Dagster's errors about edited settings.
            said = " ".join(str(error).split())
            raise InputError(
                f"the settings {path} cannot be used: {said[:MOST_SAID]}",
                "correct them, or move the file away: the next command writes it anew",
            ) from error


def history_error(error: BaseException, home: str | os.PathLike[str]) -> InputError | None:
    """Returns the InputError for a refusal of the history's database, None for any other error.

    Args:
        error: the error that SQLAlchemy or sqlite3 raised.
        home: folder of the history.
    """
    said = str(getattr(error, "orig", error))
    remedy = next((remedy for words, remedy in SAID.items() if words in said), None)
    if remedy is None or not type(error).__module__.startswith(("sqlalchemy", "sqlite3")):
        return None
    if remedy == FREE:
        said += f"; {shutil.disk_usage(home or '.').free:,} bytes are free"
    return InputError(f"the history of runs in {home} cannot be used: {said}", remedy)


@contextmanager
def reporting_history(home: Path) -> Iterator[None]:
    """Turns errors inside that `history_error` knows into an `InputError`."""
    try:
        yield
    except Exception as error:
        said = history_error(error, home)
        if said is None:
            raise
        raise said from error


@event.listens_for(Engine, "do_connect")
def _wait(dialect: Dialect, record: Any, arguments: list[Any], named: dict[str, Any]) -> None:
    if dialect.name == "sqlite":
        named["timeout"] = PATIENCE_SECONDS
