"""A run that Dagster repeats after its training was killed goes on from the checkpoint, and ends with the bits of an undisturbed run."""

import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

import graphmill
from graphmill.assets.building.child import end_group, start_guarded
from graphmill.assets.storage.names.home import IMPORTED_FROM
from graphmill.jobs.runs import training
from graphmill.jobs.runs.children import ChildProcesses
from graphmill.trainers.loop.checkpoint import Checkpoint, RunState, write_checkpoint
from graphmill.trainers.record.checkpoint_head import Waiting, checkpoint_path, waiting_run
from tests.graphmill.test_component import COMMUNITIES
from tests.graphmill.test_component import project as project
from tests.trainers.runs import content

EPOCHS = 200


def job_with(policy: dg.RetryPolicy | None) -> dg.JobDefinition:
    """The job of all assets of the project in the current folder, as the process of a run finds it."""
    for name in [each for each in sys.modules if each.partition(".")[0] == "shop"]:
        del sys.modules[name]
    loaded = importlib.import_module("shop.definitions").defs()
    job = dg.define_asset_job("night", op_retry_policy=policy)
    return dg.Definitions.merge(loaded, dg.Definitions(jobs=[job])).resolve_job_def("night")


def training_job() -> dg.JobDefinition:
    """That job, as Dagster makes it again: without arguments."""
    return job_with(None)


def retried_job() -> dg.JobDefinition:
    """The same with a retry policy, by which Dagster tries a step again that was interrupted, too."""
    return job_with(dg.RetryPolicy(max_retries=1))


def execute(
    instance: dg.DagsterInstance, job: Callable[[], dg.JobDefinition] = training_job, **more: Any
) -> tuple[dg.DagsterRun, list[str]]:
    """Executes the job, and returns its run and the lines that it logged itself."""
    config = {"execution": {"config": {"in_process": {}}}} | more.pop("run_config", {})
    with dg.execute_job(dg.reconstructable(job), instance, run_config=config, **more) as done:
        run_id = done.run_id
    lines = [each.user_message for each in instance.all_logs(run_id) if each.dagster_event is None]
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run, lines


def killed_in_epoch(epoch: int, home: Path, error: type[BaseException] | None = None) -> Any:
    """Returns a child process that is killed as soon as its checkpoint is of an epoch; the error is that of a step that is cancelled."""

    def run(self: ChildProcesses, command: list[str], environment: dict[str, str], context: Any) -> int:
        process = start_guarded(command, environment, self.grace, cwd=IMPORTED_FROM, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            for path in (home / "checkpoints").glob("*.safetensors"):
                waits = waiting_run(path, path.stem)
                if waits is not None and waits.epoch >= epoch:
                    os.killpg(process.pid, signal.SIGKILL)
                    end_group(process, self.grace)
                    if error is not None:
                        raise error
                    return -signal.SIGKILL
            time.sleep(0.005)
        return process.returncode

    return run


def forget(path: Path) -> None:
    """Removes the model and the checkpoint of a project; a longer training could go on from the latter."""
    shutil.rmtree(graphmill.artifact(path, "sage").path)
    shutil.rmtree(path.parents[3] / ".graphmill" / "checkpoints")


@pytest.mark.first
def test_a_repeated_run_and_a_retry_policy_go_on_to_the_same_bits(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, home, run_to_end = project / COMMUNITIES, project / ".graphmill", ChildProcesses._run_to_end
    path.write_text(path.read_text().replace("epochs = 2", f"epochs = {EPOCHS}"))
    (project / "history").mkdir()
    with dg.DagsterInstance.local_temp(str(project / "history")) as instance:
        straight, lines = execute(instance)
        assert straight.status == dg.DagsterRunStatus.SUCCESS and not any("goes on" in line for line in lines)
        undisturbed = content(graphmill.artifact(path, "sage"))

        forget(path)
        monkeypatch.setattr(ChildProcesses, "_run_to_end", killed_in_epoch(5, home))
        first, _ = execute(instance, raise_on_error=False)
        assert first.status == dg.DagsterRunStatus.FAILURE
        (checkpoint,) = (home / "checkpoints").glob("*.safetensors")
        reached = waiting_run(checkpoint, checkpoint.stem)
        assert reached is not None and 5 <= reached.epoch < EPOCHS
        monkeypatch.setattr(ChildProcesses, "_run_to_end", run_to_end)
        again, lines = execute(instance, reexecution_options=dg.ReexecutionOptions.from_failure(first.run_id, instance))
        assert again.parent_run_id == first.run_id
        said = [line for line in lines if line.startswith("sage: ")]
        repeats = f"of run {first.run_id[:8]}, which this run repeats; `resume: false` would begin anew"
        assert said[0] == f"sage: goes on from the checkpoint of epoch {reached.epoch} {repeats}"
        trained = [line for line in said if "epoch " in line and "loss" in line]
        assert trained[0].startswith(f"sage: seed 0, epoch {reached.epoch + 1}/{EPOCHS}")
        assert content(graphmill.artifact(path, "sage")) == undisturbed

        forget(path)
        ways = iter([killed_in_epoch(5, home), run_to_end])

        def killed_once(*arguments: Any) -> int:
            return next(ways)(*arguments)

        monkeypatch.setattr(ChildProcesses, "_run_to_end", killed_once)
        done, lines = execute(instance, retried_job)
        assert done.status == dg.DagsterRunStatus.SUCCESS and done.parent_run_id is None
        assert any(line.startswith("sage: goes on from the checkpoint of epoch ") for line in lines)
        assert content(graphmill.artifact(path, "sage")) == undisturbed


def test_the_page_of_a_cancelled_training_says_how_it_goes_on(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = project / COMMUNITIES
    path.write_text(path.read_text().replace("epochs = 2", f"epochs = {EPOCHS}"))
    (project / "history").mkdir()
    cancelled = killed_in_epoch(5, project / ".graphmill", dg.DagsterExecutionInterruptedError)
    monkeypatch.setattr(ChildProcesses, "_run_to_end", cancelled)
    with dg.DagsterInstance.local_temp(str(project / "history")) as instance:
        with suppress(dg.DagsterExecutionInterruptedError):
            execute(instance, raise_on_error=False)
        (run,) = instance.get_runs()
        said = [
            each.user_message
            for each in instance.all_logs(run.run_id)
            if each.user_message.startswith("sage: cancelled")
        ]
        (checkpoint,) = (project / ".graphmill" / "checkpoints").glob("*.safetensors")
        reached = waiting_run(checkpoint, checkpoint.stem)
    assert reached is not None and said == [
        f"sage: cancelled; the checkpoint of {reached.place} is kept. To go on, re-execute this run, materialize communities/sage, "
        f"or use the command line: graphmill train {path} sage --resume"
    ]


def resume_of(run_config: dict[str, Any], tags: dict[str, str], parent: str | None, retry: int = 0) -> bool:
    """Tells whether a step goes on if a checkpoint waits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "waiting_run", lambda path, version, ended: Waiting(epoch=3, position=0))
        return goes_on(Path("/nowhere"), run_config, tags, parent, retry)


def goes_on(
    home: Path,
    run_config: dict[str, Any],
    tags: dict[str, str],
    parent: str | None,
    retry: int = 0,
    *,
    trained: bool = False,
) -> bool:
    """Tells whether a step of a home goes on."""
    run = SimpleNamespace(parent_run_id=parent, tags=tags)
    context: Any = SimpleNamespace(run=run, retry_number=retry, log=SimpleNamespace(info=lambda line: None))
    versions: Any = SimpleNamespace(of=lambda step: ("0" * 64,))
    store = SimpleNamespace(home=home, find=lambda stage, version: object() if trained else None)
    around: Any = SimpleNamespace(store=store)
    step: Any = SimpleNamespace(name="sage", recipe=SimpleNamespace(name="model"))
    return training._goes_on(context, training.TrainingRun(**run_config), step, around, versions)


def test_who_goes_on_and_who_begins_anew() -> None:
    command_line = {training.LAUNCHED_TAG: "command line"}
    assert resume_of({}, {}, None)  # materialised in the UI: what waits is not overwritten
    assert not resume_of({"resume": False}, {}, "parent")
    assert not resume_of({"retrain": True}, {}, None)
    assert not resume_of({}, command_line, None) and resume_of({"resume": True}, command_line, None)
    for config in ({}, {"retrain": True}):
        for tags in ({}, command_line):
            assert resume_of(config, tags, "parent") and resume_of(config, tags, None, retry=1)


def test_a_training_that_was_killed_in_its_last_scores_goes_on(tmp_path: Path) -> None:
    """Its checkpoint is that of its end, as a finished model leaves one for longer trainings."""
    state = RunState(epoch=3, done=True)
    write_checkpoint(checkpoint_path(tmp_path / "checkpoints", "0" * 64), Checkpoint("0" * 64, state, {}, {}))
    assert goes_on(tmp_path, {}, {}, "parent")
    assert not goes_on(tmp_path, {"retrain": True}, {}, "parent", trained=True)
