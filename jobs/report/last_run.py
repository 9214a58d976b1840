"""The last run of a pipeline, as the history of the home knows it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from graphmill.jobs.operations.difference import is_about
from graphmill.jobs.operations.failures import said_by
from graphmill.jobs.runs.instance import SETTINGS, open_instance, reporting_history
from graphmill.kernels.errors import InputError

RUNS_SEARCHED = 100
"""Newest runs of the history among which the pipeline's last one is looked for."""


@dataclass(frozen=True, kw_only=True)
class LastRun:
    """A run that is on its way or over.

    Attributes:
        run_id: the first digits of its id.
        status: Dagster's word for its state, such as SUCCESS or FAILURE.
        seen: time of its last event, UTC.
        failures: a text for each failed step.
        over: whether it has ended.
    """

    run_id: str
    status: str
    seen: datetime
    failures: tuple[str, ...] = ()
    over: bool = True


def find_last_run(home: Path, pipeline: str) -> LastRun | None:
    """Returns the newest run of a pipeline; None if the history has none or cannot be read.

    Args:
        home: folder of the history, which is not made here.
    """
    if not (home / SETTINGS).is_file():
        return None
    try:
        with reporting_history(home), open_instance(home) as instance:
            records = instance.get_run_records(limit=RUNS_SEARCHED)
            found = next((each for each in records if is_about(each.dagster_run, pipeline)), None)
            if found is None:
                return None
            run = found.dagster_run
            return LastRun(
                run_id=run.run_id[:8],
                status=run.status.value,
                seen=datetime.fromtimestamp(found.update_timestamp.timestamp(), UTC),
                over=run.is_finished,
                failures=tuple(_failures(instance, run.run_id)) if run.is_failure else (),
            )
    except InputError:  # the next run tells of it; the models can be shown without its history
        return None


def _failures(instance: object, run_id: str) -> list[str]:
    import dagster as dg

    assert isinstance(instance, dg.DagsterInstance)
    events = instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
    return [
        f"{each.step_key}: {said_by(each.dagster_event.step_failure_data)}" for each in events if each.dagster_event
    ]
