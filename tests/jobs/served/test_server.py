"""The web UI's own way: a real web server, daemon and code servers, asked over GraphQL."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from graphmill.assets.pipeline.steps import Versions, preprocessing_steps
from graphmill.assets.storage.names.home import ROOT
from graphmill.jobs.commands.machine.ui import WORKSPACE
from graphmill.jobs.runs.instance import open_instance
from graphmill.jobs.runs.training import training_steps
from tests.jobs.runs.processes import stubborn_pids, wait_for, wait_until_gone
from tests.recipes import load_tiny, write_tiny

pytestmark = pytest.mark.first


def _versions(pipeline) -> dict[str, str]:
    """Returns name -> the version that a recipe asks for."""
    data = preprocessing_steps(pipeline)
    return {step.name: Versions().only(step) for step in [*data, *training_steps(pipeline, data)]}


def test_a_job_launched_over_graphql_builds_everything_as_it_was_launched(server):
    """An edit during the run does not change it; undone, it leaves nothing to build."""
    before = _versions(load_tiny(server.pipelines, "during", tables=("sage",), nodes="300 -> 340"))
    run_id = server.launch("during__all")
    wait_for(lambda: server.status(run_id) in ("STARTED", "SUCCESS"), "the run to start")
    write_tiny(server.pipelines, "during", tables=("sage",), nodes="300 -> 333", hidden="8 -> 4")
    server.reload()
    server.wait_for_run(run_id)
    assets = server.assets("during")
    assert {name: asset["version"] for name, asset in assets.items()} == before
    assert {asset["reused"] for asset in assets.values()} == {False}
    assert server.unsynced("during") == {"graph", "features", "sage"}
    write_tiny(server.pipelines, "during", tables=("sage",), nodes="300 -> 340")
    server.reload()
    assert {asset["stale"] for asset in server.assets("during").values()} == {"FRESH"}


@pytest.mark.slow("`dagster job launch`, which tests/docs/test_commands.py looks up, carried out")
def test_dagster_job_launch_does_the_same(server):
    server.wait_for_run(server.launch("tiny__all"))
    command = [sys.executable, "-m", "dagster", "job", "launch", "-w", str(WORKSPACE), "-j", "tiny__all"]
    done = subprocess.run(
        command, cwd=server.folder, env=server.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    runs = server.ask(
        '{ runsOrError(filter: {pipelineName: "tiny__all"}, limit: 1) { ... on Runs { results { runId } } } }'
    )
    server.wait_for_run(runs["runsOrError"]["results"][0]["runId"])
    assert {asset["reused"] for asset in server.assets("tiny").values()} == {True}


@pytest.mark.slow("`dagster asset materialize` of one asset")
def test_dagster_asset_materialize_does_the_same(server):
    server.wait_for_run(server.launch("tiny__all"))
    before = server.assets("tiny")
    command = [sys.executable, "-m", "dagster", "asset", "materialize", "-f", "jobs/definitions.py"]
    done = subprocess.run(
        [*command, "--select", 'key:"tiny/sage"'],
        cwd=ROOT,
        env=server.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (run_id,) = set(re.findall(r"__ASSET_JOB - ([0-9a-f-]{36})", done.stdout + done.stderr))
    assert server.status(run_id) == "SUCCESS", "the history of the UI has the run"
    after = server.assets("tiny")
    assert after["sage"] == before["sage"] | {"reused": True} and after["sage"]["version"]


@pytest.mark.slow("an edit shows in the web UI what it decides, and taking it back builds nothing")
def test_an_edit_marks_the_closure_and_reverting_it_builds_nothing(server):
    def edit(**changes):
        write_tiny(server.pipelines, "edited", tables=("sage",), **changes)
        server.reload()

    server.wait_for_run(server.launch("edited__all"))
    first = {name: asset["version"] for name, asset in server.assets("edited").items()}

    edit(nodes="300 -> 310")
    assert server.unsynced("edited") == {"graph", "features", "sage"}
    edit(nodes="300 -> 350", batch_size="64 -> 32")
    assert server.unsynced("edited") == {"sage"} and server.unsynced("tiny") == set()

    server.wait_for_run(server.launch("edited__train"))
    second = {name: asset["version"] for name, asset in server.assets("edited").items()}
    assert second["graph"] == first["graph"] and second["sage"] != first["sage"]
    assert server.unsynced("edited") == set()

    edit(nodes="300 -> 350")
    assert server.unsynced("edited") == {"sage"}
    server.wait_for_run(server.launch("edited__train"))
    third = server.assets("edited")
    assert {name: asset["version"] for name, asset in third.items()} == first and third["sage"]["reused"]
    assert server.unsynced("edited") == set()


def test_a_training_alone_names_the_command_for_what_is_missing(server):
    run_id = server.launch("alone__train")
    server.wait_for_run(run_id, "FAILURE")
    (failure,) = server.failures(run_id)
    assert "graphmill build alone" in failure and "which" in failure and "does not have" in failure


def _hanging_run(server) -> tuple[str, list[int]]:
    """Launches a training that ignores signals, and returns the run and the process ids of the training."""
    run_id = server.launch("stubborn__all", "stubborn")
    (path,) = wait_for(lambda: _pid_files(server, run_id), "a training to start")
    return run_id, stubborn_pids(path)


def _pid_files(server, run_id) -> list[Path]:
    return [path for path in (server.folder / "stubborn").glob(f"{run_id}.*") if path.suffix != ".part"]


def test_cancelling_ends_a_training_that_ignores_signals(server):
    run_id, pids = _hanging_run(server)
    server.cancel(run_id)
    server.wait_for_run(run_id, "CANCELED")
    wait_until_gone(pids)
    server.assert_sound()
    with open_instance(server.home) as instance:
        lines = [each.user_message for each in instance.all_logs(run_id) if ": cancelled; " in each.user_message]
    assert len(lines) == 1 and "To go on, re-execute this run, materialize stubborn/" in lines[0]


def test_killing_the_step_leaves_no_process(server):
    run_id, pids = _hanging_run(server)
    guard_id = os.getpgid(pids[0])
    with open(f"/proc/{guard_id}/stat") as file:
        step_id = int(file.read().rpartition(")")[2].split()[1])
    os.kill(step_id, signal.SIGKILL)
    wait_until_gone([step_id, guard_id, *pids])
    # The slot is free again, so the other table starts. This is also the moment in which Dagster forgets to tell a step of a
    # cancellation.
    server.cancel(run_id)
    server.wait_for_run(run_id, "CANCELED")
    for path in _pid_files(server, run_id):
        wait_until_gone([int(word) for word in path.read_text().split()])
    server.assert_sound()
