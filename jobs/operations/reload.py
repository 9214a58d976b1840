"""Notices pipeline files that are new, edited or gone, and makes the web server load the definitions again.

Definitions are loaded once; an edited file changes nothing until they are loaded again, and the refresh sensors use the old text until
then. So one sensor compares the files with those that were loaded, and when they differ it sends the web server the request of the *Reload*
button. The request is sent a moment after the tick has ended, for it replaces the process in which the tick runs.
Loading definitions writes nothing, so the same sensor tells the history which files have mistakes: their assets then show a failed check.
"""

import hashlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import dagster as dg

from graphmill.jobs.runs.pinned import LOCATION
from graphmill.kernels import environment

NAME = "graphmill__reload"
UI_VARIABLE = environment.UI
"""Address of the web server, as in http://127.0.0.1:3000; `graphmill ui` sets it for its processes."""
RELOAD_SECONDS = 30
DELAY_SECONDS, TIMEOUT_SECONDS = 1.0, 120.0
RELOAD = """
mutation($name: String!) { reloadRepositoryLocation(repositoryLocationName: $name) {
  __typename ... on PythonError { message } ... on UnauthorizedError { message } } }
"""


def reload_sensor(
    loaded: Mapping[Path, bytes],
    read: Callable[[], Mapping[Path, bytes]],
    ask: Callable[[str], None] | None = None,
    told: Sequence[dg.AssetCheckEvaluation] = (),
) -> dg.SensorDefinition:
    """Returns the sensor.

    Args:
        loaded: path -> content of the pipeline files of its own definitions.
        ask: function that gets the address of the web server and asks it to load the definitions again; None for `ask_later`.
        told: failed checks of the files with mistakes, which the first tick after each change of them tells the history.
    """
    before = dict(loaded)
    texts = "".join(f"{each.asset_key.to_user_string()} {each.description}\n" for each in told)
    cursor = hashlib.sha256(texts.encode()).hexdigest()

    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        events = told if context.cursor != cursor else ()
        return dg.SensorResult(skip_reason=look(), cursor=cursor, asset_events=events)

    def look() -> dg.SkipReason:
        changed = changes(before, read())
        address = environment.read(UI_VARIABLE)
        if not changed:
            return dg.SkipReason("the pipeline files are those that were loaded")
        if not address:
            return dg.SkipReason(
                f"{changed}; {UI_VARIABLE} names no web server that could load them: use Deployment, Reload"
            )
        (ask or ask_later)(address)
        return dg.SkipReason(f"{changed}; {address} is asked to load them")

    return dg.SensorDefinition(
        name=NAME,
        evaluation_fn=evaluate,
        minimum_interval_seconds=RELOAD_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Loads the definitions again when a pipeline file is new, edited or gone, and marks those with mistakes. "
        "It starts no runs.",
    )


def changes(before: Mapping[Path, bytes], after: Mapping[Path, bytes]) -> str:
    """Returns in words which files differ, "" if none do."""
    kinds = {
        "new": [path for path in after if path not in before],
        "edited": [path for path in after if path in before and after[path] != before[path]],
        "gone": [path for path in before if path not in after],
    }
    return "; ".join(
        f"{kind}: {', '.join(str(path) for path in sorted(paths))}" for kind, paths in kinds.items() if paths
    )


def ask_later(address: str) -> None:
    """Sends the request from a thread, after the tick that asks for it has ended."""
    thread = threading.Timer(DELAY_SECONDS, _ask_quietly, [address])
    thread.daemon = True
    thread.start()


def _ask_quietly(address: str) -> None:
    # The next tick finds the same difference and asks again.
    try:
        ask_reload(address)
    except (OSError, ValueError) as error:
        dg.get_dagster_logger().warning(f"{address} could not be asked to load the pipeline files again: {error}")


def ask_reload(address: str) -> None:
    """Makes a web server load the definitions of graphmill again, and waits for it.

    Raises:
        OSError: the server cannot be reached.
        ValueError: the server refused.
    """
    body = json.dumps({"query": RELOAD, "variables": {"name": LOCATION}}).encode()
    request = urllib.request.Request(f"{address}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as reply:
        answer = json.load(reply)
    kind = ((answer.get("data") or {}).get("reloadRepositoryLocation") or {}).get("__typename")
    if kind != "WorkspaceLocationEntry":
        raise ValueError(f"it answered {json.dumps(answer)[:500]}")
