"""`graphmill prune-runs`: shows the runs that the history may forget, asks, and removes them.

A history grows by about half a MB per run for ever. The artifacts of a run stay in the store; only its history goes: its events, its logs
and its place in the lists. Runs that are on their way stay, and so does the last run that materialised an asset, however old: the UI shows
its numbers, and the refresh sensor compares with it.
"""

import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import dagster as dg
from dagster import RunsFilter

from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.names.home import home_folder
from graphmill.jobs.commands.store.gc import confirmed
from graphmill.jobs.operations.difference import run_end
from graphmill.jobs.runs.dead_runs import fail_dead_runs
from graphmill.jobs.runs.instance import open_instance, reporting_history
from graphmill.jobs.runs.slot import OVER
from graphmill.kernels.errors import InputError

AGE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(min|h|d|w)")
SECONDS = {"min": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_age(text: str) -> float:
    """Returns the seconds that an age names: "30d", "12h", "2w", "90min"; raises InputError if `text` is not an age."""
    match = AGE.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{text!r} is no age", "write a number with min, h, d or w, such as 30d")
    return float(match[1]) * SECONDS[match[2]]


def prune_runs(
    home: Path | None, older: str, report: Callable[[str], None], *, yes: bool = False, dry_run: bool = False
) -> int:
    """Removes old runs from the history after showing them and asking. Returns the number of removed runs.

    Raises:
        InputError: `older` is not an age, or no terminal is there to answer.
    """
    before, folder = time.time() - parse_age(older), home_folder(home)
    with reporting_history(folder), open_instance(folder) as instance:
        old = find_old_runs(instance, before)
        total = 0
        for run, ended in ((record.dagster_run, run_end(record)) for record in old):
            num_bytes = sum(map(_bytes, _files(folder, run.run_id)))
            when = datetime.fromtimestamp(ended).astimezone().strftime("%Y-%m-%d %H:%M")
            report(
                f"remove  {run.run_id[:8]}  {when}  {run.status.value:8}  {format_bytes(num_bytes):>10}  {run.job_name}"
            )
            total += num_bytes
        report(f"{len(old)} runs to remove, {format_bytes(total)} in {folder}; artifacts stay")
        if not old or dry_run:
            return 0
        if not yes and not confirmed():
            report("nothing was removed")
            return 0
        for record in old:
            _remove(instance, folder, record.dagster_run.run_id)
    report(f"removed {len(old)} runs")
    return len(old)


def find_old_runs(instance: dg.DagsterInstance, before: float) -> list[dg.RunRecord]:
    """Returns the finished runs that ended before a time and that no later look compares with, the oldest first.

    Args:
        before: time in seconds since 1970.
    """
    fail_dead_runs(instance)
    needed = set()
    for key in instance.all_asset_keys():
        for records in (instance.fetch_materializations(key, limit=1), instance.fetch_observations(key, limit=1)):
            needed |= {record.run_id for record in records.records}
    found = [
        run
        for run in instance.get_run_records(RunsFilter(statuses=list(OVER)))
        if run.dagster_run.run_id not in needed and run_end(run) < before
    ]
    return sorted(found, key=lambda run: (run_end(run), run.dagster_run.run_id))


def _remove(instance: dg.DagsterInstance, home: Path, run_id: str) -> None:
    """Removes a run from the history, with its files; a run that is gone meanwhile is not an error."""
    instance.delete_run(run_id)
    # SQLite has a file per run, which `delete_run` empties and leaves.
    for path in _files(home, run_id):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _files(home: Path, run_id: str) -> list[Path]:
    """Returns the files and folders of a run in a home whose history is in SQLite."""
    places = [*home.glob(f"history/runs/{run_id}.db*"), home / "storage" / run_id, home / "logs" / run_id]
    return [path for path in places if path.exists()]


def _bytes(path: Path) -> int:
    total = 0
    with suppress(OSError):  # it is gone meanwhile
        for each in (path, *path.rglob("*")):
            total += 0 if each.is_dir() else each.lstat().st_size
    return total
