"""Ends the runs that no process carries out any more.

A run whose process was killed stays STARTED for ever and keeps its slots in the pools, and no other training starts: Dagster's run
monitoring does not look at processes on this machine. So each start of work checks first. The process of a run stands in its events; a
process that started after them is another one with the same number. The machine stands in the run's tags from its first step on: several
machines or containers may mount one home, and the processes of another one cannot be seen from here. The tags also hold the seconds since
boot at which that step was there: the time of day of the events may have been set since, by NTP or when a paused machine went on.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import dagster as dg
from dagster import DagsterEventType, DagsterInstance, DagsterRunStatus, RunsFilter

from graphmill.assets.definitions import MACHINE_TAG, seen_at
from graphmill.assets.storage.system.machine import here_and_now, seconds_since_boot

RUNNING = (DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING)
SLACK_SECONDS = 2.0
UNTOLD_SECONDS = 120.0
"""Seconds for which a run that has not named its machine may be on its way elsewhere; after that it has begun no step."""


def fail_dead_runs(instance: DagsterInstance) -> list[str]:
    """Reports every started run whose process on this machine is gone as failed, and frees its slots. Returns the runs' ids.

    A history in a database that other machines may share is left alone: their processes cannot be seen from here.
    """
    if "Sqlite" not in type(instance.event_log_storage).__name__:
        return []
    failed = []
    for run in instance.get_runs(filters=RunsFilter(statuses=list(RUNNING))):
        found = run_process(instance, run.run_id)
        if found is None or may_live(run.tags.get(MACHINE_TAG), *found, seen_at(run)):
            continue
        instance.report_run_failed(
            run, f"The process of this run ({found[0]}) is gone; it was killed, or the machine restarted."
        )
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
        failed.append(run.run_id)
    return failed


def tell_dead_runs(instance: DagsterInstance, report: Callable[[str], object]) -> None:
    """Does what `fail_dead_runs` does, and reports a line about each run."""
    for run_id in fail_dead_runs(instance):
        report(f"run {run_id[:8]} of an earlier process is gone; it is marked as failed")


def run_process(instance: DagsterInstance, run_id: str) -> tuple[int, float] | None:
    """Returns the process id of the run's last own process, and the time of the event that names it; None if no event does."""
    events = instance.all_logs(run_id, of_type=DagsterEventType.ENGINE_EVENT)
    for entry in reversed(events):
        event = entry.dagster_event
        if event is None or event.step_key is not None or entry.step_key is not None:
            continue
        pid = event.engine_event_data.metadata.get("pid")
        if isinstance(pid, dg.TextMetadataValue) and (pid.text or "").isdigit():
            return int(pid.text or 0), entry.timestamp
    return None


def may_live(told: str | None, pid: int, seen: float, step_seen: float | None = None) -> bool:
    """Tells whether the process of a run may be there, as far as this machine can say.

    Args:
        told: machine of the run (`here_and_now`), None if the run has not named it.
        pid, seen: id of its process, and the time of the event that names it, in seconds since 1970.
        step_seen: seconds since the boot of that machine at which a step of the run was there, None if no step recorded it.
    """
    if told is None or told.count("/") != 2:  # anyone may write a tag
        return time.time() - seen < UNTOLD_SECONDS or process_lives(pid, seen)
    host, boot, namespace = told.split("/")
    here, now, own = here_and_now().split("/")
    if host != here or (boot == now and namespace != own):
        return True
    return boot == now and process_lives(pid, seen, step_seen)


def process_lives(pid: int, seen: float, step_seen: float | None = None) -> bool:
    """Tells whether the process that once had this id is still there.

    Args:
        seen: time at which it had the id, in seconds since 1970.
        step_seen: the same in seconds since boot, None if unknown; it takes precedence over `seen`.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return False
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    if step_seen is None:
        step_seen = seconds_since_boot() - (time.time() - seen) + SLACK_SECONDS
    return fields[0] not in "ZX" and started <= step_seen
