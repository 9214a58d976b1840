"""`[schedule]` of pipeline files as Dagster's schedules and sensors.

A pipeline with `cron` has the schedule `NAME__schedule`, one with `refresh = true` the sensor `NAME__refresh`. Both ask the same question
(jobs/operations/difference.py) and start the same run, which builds the difference and nothing else. A tick that finds none starts no run
and says so, so a schedule leaves no trace in the history if nothing changed. The daemon that `graphmill ui` starts runs the ticks, in the
process that has loaded the definitions.
"""

from collections.abc import Mapping, Sequence
from time import time
from typing import Any

import dagster as dg

from graphmill.assets.definitions import Surroundings, group_of
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.steps import Step
from graphmill.jobs.operations.difference import OneAsker, decide

REFRESH_SECONDS = 60
"""Seconds between two looks of a refresh sensor. One look reads the small raw files again; digests of large ones are remembered."""


def schedules_of(
    pipeline: Pipeline, jobs: Mapping[str, Any], selections: Mapping[str, Sequence[Step]], around: Surroundings
) -> tuple[list[dg.ScheduleDefinition], list[dg.SensorDefinition]]:
    """Returns the schedule and the refresh sensor that a pipeline asks for.

    Args:
        jobs: selection -> asset job of the runs.
        selections: selection -> steps of that job.
    """
    table = pipeline.schedule
    if table is None:
        return [], []
    steps, one = list(selections[table.job]), OneAsker(pipeline.name)
    schedule, refresh = (f"{group_of(pipeline.name)}__{kind}" for kind in ("schedule", "refresh"))

    def tick(instance: dg.DagsterInstance, asker: str, *, patient: bool) -> dg.RunRequest | dg.SkipReason:
        answer = decide(instance, around.store, steps, now=time(), patient=patient, priority=table.priority)
        return one.let_through(answer, asker=asker, instance=instance, now=time())

    does, says = f"Brings {table.job} of {pipeline.name} up to date", f"\n\nFrom [schedule] of {pipeline.path}."
    schedules, sensors, status = [], [], "RUNNING" if table.enabled else "STOPPED"
    if table.cron:
        schedules.append(
            dg.ScheduleDefinition(
                name=schedule,
                job=jobs[table.job],
                cron_schedule=table.cron,
                execution_timezone=table.timezone,
                execution_fn=lambda context: tick(context.instance, schedule, patient=False),
                default_status=dg.DefaultScheduleStatus[status],
                description=f"{does}. A tick at which nothing has changed starts no run.{says}",
            )
        )
    if table.refresh:
        sensors.append(
            dg.SensorDefinition(
                name=refresh,
                job=jobs[table.job],
                evaluation_fn=lambda context: tick(context.instance, refresh, patient=True),
                minimum_interval_seconds=REFRESH_SECONDS,
                default_status=dg.DefaultSensorStatus[status],
                description=f"{does} when its data or its file changed, when an artifact is missing, "
                f"and again when a run failed.{says}",
            )
        )
    return schedules, sensors
