"""Tells of failed runs: by a command of the pipeline file, by a webhook, or by both.

`[schedule] on_failure` is a program and its arguments, `webhook` the name of an environment variable with an address; the address itself
is a secret and stands in no file. The daemon looks for failed runs twice per minute. It tells of a run once, however the run was started:
by a schedule, in the browser or on the command line. The message is short: names, the id of the run and the messages of the failed steps.

The command gets the text on its standard input, and the variables GRAPHMILL_PIPELINE, GRAPHMILL_RUN and GRAPHMILL_JOB. The webhook gets a
POST of JSON with the keys text, pipeline, job and run; chat systems show `text`.
"""

import json
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Any

import dagster as dg

from graphmill.assets.definitions import group_of
from graphmill.assets.pipeline.file import Pipeline
from graphmill.jobs.operations.difference import BROWSER_JOB, is_about
from graphmill.jobs.runs.pinned import LOCATION, REPOSITORY
from graphmill.kernels import environment

TELL_SECONDS = 30
LIMIT_SECONDS = 30.0
LONGEST_TEXT = 4000


def failure_sensor(pipeline: Pipeline, jobs: Sequence[Any]) -> dg.SensorDefinition | None:
    """Returns the sensor that reports failed runs, None if the pipeline names neither command nor webhook."""
    table = pipeline.schedule
    if table is None or not (table.on_failure or table.webhook):
        return None

    own = {job.name for job in jobs}

    def tell(context: dg.RunFailureSensorContext) -> None:
        run = context.dagster_run
        # Another pipeline's run returns nothing: Dagster takes no skip reason beside the reports of the same tick.
        if run.job_name not in own and not is_about(run, pipeline.name):
            return
        said = [event.step_failure_data for event in context.get_step_failure_events()]
        head = f"graphmill: {run.job_name} of {pipeline.name} failed (run {run.run_id[:8]})"
        text = "\n".join([head, *([said_by(each) for each in said] or [context.failure_event.message or ""])])
        text = text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + " ..."
        values = {"pipeline": pipeline.name, "job": run.job_name, "run": run.run_id, "text": text}
        problems = []
        if table.on_failure:
            problems.append(run_command(table.on_failure, values))
        if table.webhook:
            problems.append(post(environment.read_named(table.webhook), values) or "")
        if any(problems):
            # Raised, so that the tick stands as failed in the UI; Dagster goes on with the next failed run.
            raise RuntimeError("; ".join(filter(None, problems)))

    sensor: Any = dg.run_failure_sensor(
        name=f"{group_of(pipeline.name)}__tell_failures",
        minimum_interval_seconds=TELL_SECONDS,
        monitored_jobs=[*jobs, dg.JobSelector(LOCATION, REPOSITORY, BROWSER_JOB)],
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Tells of failed runs of {pipeline.name}, as [schedule] of {pipeline.path} says.",
    )
    return sensor(tell)


def run_command(command: Sequence[str], values: Mapping[str, str]) -> str:
    """Runs a command with the text on its standard input, and returns its problem in words, "" if there was none."""
    told = {f"GRAPHMILL_{name.upper()}": values[name] for name in ("pipeline", "job", "run")}
    try:
        done = subprocess.run(
            list(command),
            input=values["text"],
            env=environment.all_variables() | told,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return f"on_failure = {list(command)} could not be run: {error}"
    problem = f"on_failure = {list(command)} ended with {done.returncode}: {done.stderr[-500:]}"
    return problem if done.returncode else ""


def post(address: str, values: Mapping[str, str]) -> str:
    """Sends the values to a webhook, and returns the problem in words, "" if there was none. The address, a secret, is never shown."""
    if not address.startswith(("http://", "https://")):
        return "the variable that webhook names holds no http address; export it before `graphmill ui` starts"
    try:
        request = urllib.request.Request(
            address, json.dumps(dict(values)).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=LIMIT_SECONDS):
            return ""
    except (OSError, ValueError, HTTPException) as error:
        # Some of these errors have the address in their text.
        return f"the webhook could not be told: {type(error).__name__} {getattr(error, 'code', '')}".strip()


def said_by(failure: Any) -> str:
    """Returns the message of a failed step."""
    if failure.user_failure_data is not None:
        return failure.user_failure_data.description or ""
    return failure.error.message.strip() if failure.error else ""
