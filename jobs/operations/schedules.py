"""`[schedule]` of pipeline files as Dagster's schedules and sensors.

A pipeline with `cron` has the schedule `NAME__schedule`, one with `refresh = true` the sensor `NAME__refresh`. Both ask the same question
(jobs/operations/difference.py) and start the same run, which builds the difference and nothing else. A tick that finds none starts no run
and says so, so a schedule leaves no trace in the history if nothing changed. The daemon that `graphmill ui` starts runs the ticks, in the
process that has loaded the definitions.
"""

from collections.abc import Callable, Mapping, Sequence
from time import time
from typing import Any

import dagster as dg

from assets.definitions import Surroundings, group_of
from assets.pipeline.file import Pipeline
from assets.pipeline.schedule import ScheduleTable
from assets.pipeline.steps import Step
from jobs.operations.difference import OneAsker, decide

REFRESH_SECONDS = 60
"""Seconds between two looks of a refresh sensor. One look reads the small raw files again; digests of large ones are remembered."""


def schedule_name(pipeline: str) -> str:
    """Returns the name of a pipeline's schedule in the UI."""
    return f"{group_of(pipeline)}__schedule"


def refresh_name(pipeline: str) -> str:
    """Returns the name of a pipeline's refresh sensor in the UI."""
    return f"{group_of(pipeline)}__refresh"


def schedules_of(
    pipeline: Pipeline,
    jobs: Mapping[str, Any],
    selections: Mapping[str, Sequence[Step]],
    around: Surroundings,
) -> tuple[list[dg.ScheduleDefinition], list[dg.SensorDefinition]]:
    """Returns the schedule and the refresh sensor that a pipeline asks for.

    Args:
        pipeline: the recipe.
        jobs: selection -> asset job of the runs.
        selections: selection -> steps of that job.
        around: the store and the listeners.
    """
    table = pipeline.schedule
    if table is None:
        return [], []
    job, steps = jobs[table.job], list(selections[table.job])

    one = OneAsker(pipeline.name)

    def tick(instance: dg.DagsterInstance, asker: str, *, patient: bool) -> dg.RunRequest | dg.SkipReason:
        answer = decide(instance, around.store, steps, now=time(), patient=patient, priority=table.priority)
        return one.let_through(answer, asker=asker, instance=instance, now=time())

    schedules = [_schedule(pipeline, table, job, tick)] if table.cron else []
    return schedules, [_refresh(pipeline, table, job, tick)] if table.refresh else []


Tick = Callable[..., dg.RunRequest | dg.SkipReason]


def _schedule(pipeline: Pipeline, table: ScheduleTable, job: Any, tick: Tick) -> dg.ScheduleDefinition:
    def evaluate(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        return tick(context.instance, schedule_name(pipeline.name), patient=False)

    on, off = dg.DefaultScheduleStatus.RUNNING, dg.DefaultScheduleStatus.STOPPED
    return dg.ScheduleDefinition(
        name=schedule_name(pipeline.name),
        job=job,
        cron_schedule=table.cron,
        execution_timezone=table.timezone,
        execution_fn=evaluate,
        default_status=on if table.enabled else off,
        description=f"Brings {table.job} of {pipeline.name} up to date. A tick at which nothing has changed starts no run.\n\n"
        f"From [schedule] of {pipeline.path}.",
    )


def _refresh(pipeline: Pipeline, table: ScheduleTable, job: Any, tick: Tick) -> dg.SensorDefinition:
    def evaluate(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        return tick(context.instance, refresh_name(pipeline.name), patient=True)

    on, off = dg.DefaultSensorStatus.RUNNING, dg.DefaultSensorStatus.STOPPED
    return dg.SensorDefinition(
        name=refresh_name(pipeline.name),
        job=job,
        evaluation_fn=evaluate,
        minimum_interval_seconds=REFRESH_SECONDS,
        default_status=on if table.enabled else off,
        description=f"Brings {table.job} of {pipeline.name} up to date when its data or its file changed, when an artifact is missing, "
        f"and again when a run failed.\n\nFrom [schedule] of {pipeline.path}.",
    )
