"""The artifacts that a pipeline asks for and lacks: the one question behind its schedule and its refresh sensor.

The question is about levels and not about events. No message reports that a file changed; each look compares the version that the recipe
and the raw content ask for now with the version that was materialised last, and checks that the store has it. So a missed event costs
nothing, an edit that was undone asks for the old version again, and a failed step still differs at the next look.

A run that failed is tried again, later each time: after 5 minutes, 10, 20, and so on up to 6 hours. Only runs that were started for the
same difference count; a change of the recipe or the data, or a materialisation, makes it another difference.

Of `[schedule]` in pipeline files, a pipeline with `cron` has the schedule `NAME__schedule`, one with `refresh = true` the sensor
`NAME__refresh`. Both ask the question and start the same run, which builds the difference and nothing else. A tick that finds none starts
no run and says so, so a schedule leaves no trace in the history if nothing changed. The daemon that `graphmill ui` starts runs the ticks,
in the process that has loaded the definitions.
"""

import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import time
from typing import Any

import dagster as dg
from dagster import DagsterRunStatus, RunsFilter

from graphmill.assets.definitions import HIDDEN, Surroundings, group_of
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.shown import DATA_TAG, key_of
from graphmill.assets.pipeline.steps import Step, Versions, find_all, find_inputs, joint_version
from graphmill.assets.storage.names.version import canonical_json
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError

PIPELINE_TAG, DIFFERENCE_TAG, PRIORITY_TAG = f"{HIDDEN}pipeline", f"{HIDDEN}difference", "dagster/priority"
BROWSER_JOB = "__ASSET_JOB"
"""Dagster's own job of all assets. Materialising from a page of assets in the browser runs it: such a run lacks our tags and may be about
several pipelines."""

UNFINISHED = (
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
)
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 300.0, 21600.0
MOMENT_SECONDS = 45.0
"""Longer than the daemon takes from an answer to the run, and shorter than the time between two looks: a run that could not start is asked
for again."""


@dataclass(frozen=True, kw_only=True)
class WantedStep:
    """A step whose artifacts are not those that the recipe and the data ask for.

    Attributes:
        last: place of its last materialisation in the history, 0 if it has none.
    """

    step: Step
    version: str
    last: int
    why: str


def find_difference(
    instance: dg.DagsterInstance, store: Store, steps: Sequence[Step], versions: Versions
) -> list[WantedStep]:
    """Returns the steps that a run would build or reuse differently from their last materialisation, in their order.

    Raises:
        InputError: raw content is missing or unreadable.
    """
    found = []
    for step in steps:
        version = joint_version(versions.of(step))
        last, seen = last_materialized(instance, key_of(step))
        if not last:
            why = "not built here yet"
        elif seen != version:
            why = "recipe or data changed"
        elif find_all(store, step, versions) is None:
            why = "missing from the store"
        else:
            continue
        found.append(WantedStep(step=step, version=version, last=last, why=why))
    return found


def last_materialized(instance: dg.DagsterInstance, key: dg.AssetKey) -> tuple[int, str]:
    """Returns place in the history and data version of an asset's last materialisation; (0, "") if it has none."""
    records = instance.fetch_materializations(key, limit=1).records
    if not records or records[0].asset_materialization is None:
        return 0, ""
    tags = records[0].asset_materialization.tags or {}
    return records[0].storage_id, tags.get(DATA_TAG, "")


def require_inputs(store: Store, wanted: Sequence[WantedStep], versions: Versions) -> None:
    """Checks that a run of these steps would find the inputs that it does not build itself.

    Raises:
        InputError: an input is missing; the error names it and the command that builds it.
    """
    building = {each.step.key for each in wanted}
    for each in wanted:
        if not all(source.key in building for source in each.step.sources.values()):
            for one in each.step.apart:
                outside = {role: source for role, source in one.sources.items() if source.key not in building}
                find_inputs(store, replace(one, inputs=outside, reads={}), versions)


def decide(
    instance: dg.DagsterInstance, store: Store, steps: Sequence[Step], *, now: float, patient: bool, priority: int = 0
) -> dg.RunRequest | dg.SkipReason:
    """Returns the run that makes up the difference, or the reason for none.

    Args:
        now: seconds since 1970.
        patient: wait after failed runs; a schedule does not, for its times are far apart.
    """
    versions, name = Versions(), steps[0].pipeline
    if waiting := run_on_its_way(instance, name):
        return waiting
    try:
        wanted = find_difference(instance, store, steps, versions)
        require_inputs(store, wanted, versions)
    except InputError as error:
        return dg.SkipReason(str(error))
    if not wanted:
        return dg.SkipReason(f"all {len(steps)} assets of {name} are as its file and its data ask for")
    # The name of a difference: the versions that are asked for, and the last materialisations.
    listed = [[*each.step.key, each.version, each.last] for each in wanted]
    named = hashlib.sha256(canonical_json(listed)).hexdigest()[:32]
    tried = instance.get_run_records(RunsFilter(tags={DIFFERENCE_TAG: named}))
    if tried and patient:
        wait = min(FIRST_WAIT_SECONDS * 2 ** (len(tried) - 1), LONGEST_WAIT_SECONDS)
        ended = max(map(run_end, tried))
        if now < ended + wait:
            again = f"{round(ended + wait - now)} s"
            return dg.SkipReason(
                f"run {tried[0].dagster_run.run_id[:8]} did not make up the difference ({len(tried)} so far); again in {again}"
            )
    return dg.RunRequest(
        run_key=f"{named}-{len(tried)}",
        asset_selection=[key_of(each.step) for each in wanted],
        tags={DIFFERENCE_TAG: named, PRIORITY_TAG: str(priority), "graphmill/why": _in_words(wanted)},
    )


def run_end(record: dg.RunRecord) -> float:
    """Returns the end of a finished run, in seconds since 1970."""
    return record.end_time or record.update_timestamp.timestamp()


def run_on_its_way(instance: dg.DagsterInstance, pipeline: str) -> dg.SkipReason | None:
    """Returns a skip reason while a run of the pipeline is not over; None if all are over."""
    unfinished = instance.get_runs(RunsFilter(statuses=list(UNFINISHED)))
    waiting = next((run for run in unfinished if is_about(run, pipeline)), None)
    return dg.SkipReason(f"run {waiting.run_id[:8]} of {pipeline} is on its way") if waiting else None


def is_about(run: dg.DagsterRun, pipeline: str) -> bool:
    """Tells whether a run is of a pipeline's jobs or builds any of its assets."""
    if run.tags.get(PIPELINE_TAG) == pipeline:
        return True
    if run.asset_selection is None:
        return run.job_name == BROWSER_JOB
    return any(key.path[0] == pipeline for key in run.asset_selection)


class OneAsker:
    """Lets a pipeline's schedule and sensor start runs one at a time: both may tick in one second and find no run on its way.

    A run that was asked for is in the history a moment later. Until then the other asker has to wait. The daemon evaluates both in one
    process, so this is remembered in memory.
    """

    def __init__(self, pipeline: str) -> None:
        self.pipeline = pipeline
        self._lock = threading.Lock()
        self._last: tuple[str, float] | None = None

    def let_through(
        self, answer: dg.RunRequest | dg.SkipReason, *, asker: str, instance: dg.DagsterInstance, now: float
    ) -> dg.RunRequest | dg.SkipReason:
        """Returns the answer of a tick, or the reason why its run is not started.

        Args:
            now: seconds since 1970, later than the look at the history that `answer` is based on.
        """
        if isinstance(answer, dg.SkipReason):
            return answer
        with self._lock:
            # A run that the other one started while this tick compared versions is in the history by now, or less than a moment old.
            if self._last is not None and self._last[0] != asker and abs(now - self._last[1]) < MOMENT_SECONDS:
                return dg.SkipReason(f"{self._last[0]} asked for a run of {self.pipeline} a moment ago")
            if waiting := run_on_its_way(instance, self.pipeline):
                return waiting
            self._last = (asker, now)
            return answer


def _in_words(wanted: Sequence[WantedStep]) -> str:
    whys: dict[str, list[str]] = {}
    for each in wanted:
        whys.setdefault(each.why, []).append(each.step.name)
    return "; ".join(f"{why}: {', '.join(names)}" for why, names in whys.items())


REFRESH_SECONDS = 60
"""Seconds between two looks of a refresh sensor. One look reads the small raw files again; digests of large ones are remembered."""


def schedules_of(
    pipeline: Pipeline, jobs: Mapping[str, Any], selections: Mapping[str, Sequence[Step]], around: Surroundings
) -> tuple[list[dg.ScheduleDefinition], list[dg.SensorDefinition]]:
    """Returns the schedule and the refresh sensor that a pipeline asks for."""
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
