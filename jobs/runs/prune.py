"""Removes old runs from the history, which otherwise grows by about half a MB per run for ever.

The artifacts of a run stay in the store; only its history goes: its events, its logs and its place in the lists. Runs that are on their way
stay, and so does the last run that materialised an asset, however old: the UI shows its numbers, and the refresh sensor compares with it.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from dagster import RunsFilter

from jobs.runs.dead_runs import fail_dead_runs

PAGE = 500
FINISHED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


@dataclass(frozen=True, kw_only=True)
class OldRun:
    """A run that the history may forget.

    Attributes:
        run_id, job, status: id, job and status of the run.
        ended: its end in seconds since 1970.
        num_bytes: number of bytes of its files in the home.
    """

    run_id: str
    job: str
    status: str
    ended: float
    num_bytes: int


def find_old_runs(instance: dg.DagsterInstance, home: Path, before: float) -> list[OldRun]:
    """Returns the finished runs that ended before a time and that no later look compares with, the oldest first.

    Args:
        instance, home: the history and its folder.
        before: time in seconds since 1970.
    """
    fail_dead_runs(instance)
    needed = _last_of_assets(instance)
    found = [
        OldRun(
            run_id=record.dagster_run.run_id,
            job=record.dagster_run.job_name,
            status=record.dagster_run.status.value,
            ended=record.end_time or record.update_timestamp.timestamp(),
            num_bytes=sum(_bytes(path) for path in _files(home, record.dagster_run.run_id)),
        )
        for record in _finished(instance)
        if record.dagster_run.run_id not in needed
    ]
    return sorted((run for run in found if run.ended < before), key=lambda run: (run.ended, run.run_id))


def remove_runs(
    instance: dg.DagsterInstance, home: Path, runs: list[OldRun], report: Callable[[OldRun], None] = lambda run: None
) -> None:
    """Removes runs from the history, with their files.

    Args:
        instance, home: the history and its folder.
        runs: result of `find_old_runs`; a run that is gone meanwhile is not an error.
        report: function that gets each removed run.
    """
    for run in runs:
        instance.delete_run(run.run_id)
        # SQLite has a file per run, which `delete_run` empties and leaves.
        for path in _files(home, run.run_id):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        report(run)


def _last_of_assets(instance: dg.DagsterInstance) -> set[str]:
    """Returns the ids of the runs that last materialised or observed an asset."""
    needed = set()
    for key in instance.all_asset_keys():
        for records in (instance.fetch_materializations(key, limit=1), instance.fetch_observations(key, limit=1)):
            needed |= {record.run_id for record in records.records}
    return needed


def _finished(instance: dg.DagsterInstance) -> Iterator[dg.RunRecord]:
    cursor = None
    while True:
        page = instance.get_run_records(RunsFilter(statuses=list(FINISHED)), limit=PAGE, cursor=cursor)
        yield from page
        if len(page) < PAGE:
            return
        cursor = page[-1].dagster_run.run_id


def _files(home: Path, run_id: str) -> list[Path]:
    """Returns the files and folders of a run in a home whose history is in SQLite."""
    places = [*home.glob(f"history/runs/{run_id}.db*"), home / "storage" / run_id, home / "logs" / run_id]
    return [path for path in places if path.exists()]


def _bytes(path: Path) -> int:
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    with suppress(OSError):
        total += 0 if path.is_dir() else path.stat().st_size
    return total
