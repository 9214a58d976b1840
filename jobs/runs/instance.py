"""The home of Dagster's history: `$GRAPHMILL_HOME`, which the web UI and the command line share."""

import logging
import os
import re
import shutil
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

import graphmill.jobs.runs.history_files  # noqa: F401 - how its files are opened
from graphmill.assets.storage.names.home import ROOT, VARIABLE, home_folder
from graphmill.assets.storage.system.filesystem import locked, make_folder, replace_atomically
from graphmill.assets.storage.system.refused import refusal
from graphmill.kernels.errors import InputError, install_extra

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
    "no such ": ANEW,
    "Could not decode": ANEW,
    "unsupported file format": ANEW,
    "locked": "end the other program that holds it, and run the same command again",
}
"""Words of SQLite's messages, and the remedy for each."""
LONGEST_HOME = 440
"""Most bytes of the path of a home: SQLite opens files with names of at most 512 bytes, and those of the history are up to 72 longer."""
SERVER = (
    "start the database server, or correct its address in {settings}, then run the same command again; "
    "a training goes on with --resume"
)
STORAGES = tuple(f"/dagster/_core/storage/{name}/" for name in ("runs", "event_log", "schedules"))
"""Folders of Dagster that read and write the history."""
LAYERS = ("kernels", "assets", "trainers", "jobs")
UNUSABLE = ("OperationalError", "InterfaceError", "DagsterPostgresException")
"""Names of the errors of a database server that is gone, cannot be reached or refuses: of psycopg2, SQLAlchemy and dagster-postgres."""
RETRYING = "Retrying failed database connection"
URL = "postgresql+psycopg2://USER:PASSWORD@HOST/DATABASE"
UNSET = re.compile(r'environment variable "(\w+)" which is not set')
"""Dagster's words about a setting `env: NAME`."""
MISSING = re.compile(r"(?:No module named '|import module )(dagster_postgres|psycopg2|psycopg)\b")
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

# Lines of Dagster on the terminal: not those for its own developers. The history has all events.
python_logs:
  python_log_level: INFO

# A run whose process was killed starts again as often as its tag dagster/max_retries says, runs without the tag max_retries times, and its
# training goes on from the checkpoint. A step that failed with a message does not: it would fail again.
run_retries:
  enabled: true
  max_retries: 0
  retry_on_asset_or_op_failure: false

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

# History is in SQLite files in this folder. For a server that several machines use, install the extra `postgres` of graphmill, then write
# these lines, and the address in the variable, as in postgresql+psycopg2://USER:PASSWORD@HOST/DATABASE
# storage:
#   postgres:
#     postgres_url:
#       env: GRAPHMILL_POSTGRES_URL
"""


class HistoryError(InputError):
    """The database of the history refuses, or its server is gone."""


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
            raise _settings_error(error, path) from error


def _settings_error(error: Exception, path: Path) -> InputError:
    """Returns the InputError for an error of Dagster about edited settings."""
    said = " ".join(str(error).split())
    if unset := UNSET.search(said):
        problem = f"{path} asks for the environment variable {unset[1]}, which is not set"
        return InputError(problem, f"set it: export {unset[1]}={URL}")
    if missing := MISSING.search(said):
        # SQLAlchemy from 2.1 on takes an address without a driver for one of psycopg.
        remedy = f"where graphmill is installed from: {install_extra('postgres')}"
        if missing[1] == "psycopg":
            remedy = f"write the address with its driver: {URL}"
        problem = f"{path} asks for a history in Postgres, but the package {missing[1]} is not installed"
        return InputError(problem, remedy)
    problem = f"the settings {path} cannot be used: {said[:MOST_SAID]}"
    return InputError(problem, "correct them, or move the file away: the next command writes it anew")


def history_error(error: BaseException, home: str | os.PathLike[str]) -> HistoryError | None:
    """Returns the error for a refusal of the history's database, None for any other error.

    Args:
        error: the error that SQLAlchemy, a database driver or dagster-postgres raised, or Dagster about a row that it cannot read.
    """
    found: BaseException | None = error
    while found is not None and type(found).__name__ not in UNUSABLE:
        if type(found).__module__.startswith(("sqlalchemy", "sqlite3")):
            break
        found = found.__cause__
    if found is None:
        return _damaged_row(error, home)
    # The last error of the chain has the driver's own words.
    while type(found.__cause__).__name__ in UNUSABLE and found.__cause__ is not None:
        found = found.__cause__
    driver = getattr(found, "orig", None) or found
    server = type(found).__name__ in UNUSABLE and not type(driver).__module__.startswith("sqlite3")
    return refused_history(str(driver), home, server=server)


def _damaged_row(error: BaseException, home: str | os.PathLike[str]) -> HistoryError | None:
    """Returns the error for a row of the history that does not hold what Dagster wrote, None for any other error.

    Such a row ends in errors of all kinds; what they share is that Dagster's storages, and no code of this project below them, raise them.
    """
    files = [Path(frame.f_code.co_filename) for frame, _ in traceback.walk_tb(error.__traceback__)]
    below = [any(name in path.as_posix() for name in STORAGES) for path in files]
    if not any(below) or any(
        path.is_relative_to(ROOT / name) for path in files[below.index(True) :] for name in LAYERS
    ):
        return None
    said = " ".join(f"{type(error).__name__}: {error}".split())[:MOST_SAID]
    return HistoryError(f"the history of runs in {home} cannot be used: a row of it is damaged: {said}", ANEW)


def refused_history(said: str, home: str | os.PathLike[str], *, server: bool) -> HistoryError | None:
    """Returns the error for what a history's database said, None if that is a defect and not a refusal."""
    # SQLAlchemy puts the statement and its values behind the driver's words.
    said = " ".join(said.partition("[SQL:")[0].split())
    remedy = next((remedy for words, remedy in SAID.items() if words in said), None)
    if remedy is None and server:
        remedy = SERVER.format(settings=Path(home) / SETTINGS)
    if remedy is None:
        return None
    if remedy == PERMIT and len(os.fsencode(Path(home).absolute())) > LONGEST_HOME:
        remedy = (
            f"point GRAPHMILL_HOME at a folder with a path of at most {LONGEST_HOME} bytes: SQLite opens no longer one"
        )
    if remedy == FREE:
        said += f"; {shutil.disk_usage(home or '.').free:,} bytes are free"
    return HistoryError(f"the history of runs in {home} cannot be used: {said}", remedy)


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


# dagster-postgres logs every try to reach a server before it raises an error that says the same.
logging.getLogger().addFilter(lambda record: not str(record.msg).startswith(RETRYING))
