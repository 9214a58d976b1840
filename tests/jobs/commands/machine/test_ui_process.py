"""`graphmill ui` as a process: runs of the command line stand where its own runs do, and it ends whatever ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.commands import COMMAND, environment, graphmill
from tests.jobs.runs.processes import lives, unused_port, wait_for, wait_until_gone
from tests.recipes import write_tiny

LANDING_PAGE = """{ repositoriesOrError { ... on RepositoryConnection { nodes { pipelines { name runs(limit: 5) { runId } } } } }
  runsOrError { ... on Runs { results { runId repositoryOrigin { repositoryName repositoryLocationName } } } } }"""


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow("the web UI ends with SIGTERM, too"))]
)
def test_it_lists_runs_of_the_command_line_and_ends_with_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    """SIGINT and SIGTERM end it though the shell of a script has them ignored, and nobody prints a traceback."""
    path = write_tiny(tmp_path / "pipelines", "tiny")
    ran = graphmill("build", "tiny", home=tmp_path / "home", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    with web_ui(tmp_path) as (process, port):
        found = ask(port, LANDING_PAGE)
        (run,) = found["runsOrError"]["results"]
        assert run["repositoryOrigin"] == {
            "repositoryName": "__repository__",
            "repositoryLocationName": "graphmill",
        }
        jobs = {job["name"]: job["runs"] for job in found["repositoriesOrError"]["nodes"][0]["pipelines"]}
        assert jobs["tiny__preprocess"] == [{"runId": run["runId"]}] and jobs["tiny__all"] == []
        process.send_signal(number)
        assert process.wait(90) == 0
    said = (tmp_path / "ui.log").read_text()
    assert said.endswith("the web UI has stopped\n") and "Traceback" not in said and "superseded" not in said
    assert path.exists()


def test_its_servers_end_when_it_is_killed(tmp_path: Path) -> None:
    with web_ui(tmp_path) as (process, _):
        process.kill()
        process.wait()


@contextmanager
def web_ui(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Yields the command in the background of a script, and its port; afterwards nothing of it may be left."""
    log, port = folder / "ui.log", unused_port()
    words = " ".join(f"'{word}'" for word in [*COMMAND, "ui", "--port", str(port)])
    with open(log, "wb") as file:
        script = ["sh", "-c", f"trap '' INT TERM; exec {words}"]
        variables = environment(folder / "home", {"GRAPHMILL_PIPELINES": str(folder / "pipelines")})
        process = subprocess.Popen(script, cwd=folder, env=variables, stdout=file, stderr=file)
    started: set[int] = set()
    try:
        wait_for(lambda: is_ready(process, port), "the web server", 180)
        assert f":{port} in a few" in log.read_text()
        started = descendants(process.pid)
        assert len(started) >= 3, "a web server, a daemon and a code server"
        yield process, port
        wait_until_gone(list(started))
    finally:
        process.kill()
        process.wait()
        for each in filter(lives, started):
            os.kill(each, signal.SIGKILL)


def descendants(process_id: int) -> set[int]:
    """Returns the ids of the living processes that a process started, and of those that these started."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = Path(f"/proc/{name}/stat").read_text()
            except OSError:
                continue
            parents[int(name)] = int(stat.rpartition(")")[2].split()[1])
    found: set[int] = set()
    while more := {child for child, parent in parents.items() if parent in {process_id, *found}} - found:
        found |= more
    return found


def is_ready(process: subprocess.Popen[bytes], port: int) -> bool:
    assert process.poll() is None
    try:
        found = ask(port, "{ workspaceOrError { ... on Workspace { locationEntries { loadStatus } } } }")
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
    entries = found["workspaceOrError"].get("locationEntries", [])
    return bool(entries) and all(entry["loadStatus"] == "LOADED" for entry in entries)


def ask(port: int, query: str) -> dict[str, Any]:
    """Sends a GraphQL query and returns its data."""
    body = json.dumps({"query": query}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        answer = json.load(reply)
    assert not answer.get("errors"), answer["errors"]
    return answer["data"]
