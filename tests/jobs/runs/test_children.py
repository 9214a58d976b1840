"""Trainings as child processes: what they report, and what is left of them."""

import os
import signal
import sys
from pathlib import Path

import dagster as dg

from graphmill.assets.storage.names.home import ROOT
from graphmill.jobs.runs.children import ChildProcesses
from tests.jobs.runs.processes import stubborn_pids, wait_until_gone

FAST = (0.2, 0.2, 20.0)
STUBBORN = Path(__file__).parent / "stubborn.py"


def _materialize(code: str, extras=None, env=None):
    """Runs a Python program under the client as the body of an asset."""

    @dg.asset
    def child(context):
        client = ChildProcesses(FAST)
        done = client.run(context=context, command=[sys.executable, "-c", code], extras=extras, env=env)
        return done.get_materialize_result()

    with dg.DagsterInstance.ephemeral() as instance:
        return dg.materialize([child], instance=instance, raise_on_error=False)


def test_values_go_in_and_metadata_comes_back():
    result = _materialize(
        "import os, graphmill.kernels.errors\n"
        "from dagster_pipes import open_dagster_pipes\n"
        "with open_dagster_pipes() as pipes:\n"
        "    pipes.report_asset_materialization(metadata={'twice': 2 * pipes.extras['n'], 'there': os.getcwd(),\n"
        "                                                 'extra': os.environ['EXTRA']})",
        extras={"n": 21},
        env={"EXTRA": "yes"},
    )
    (event,) = result.get_asset_materialization_events()
    metadata = {name: value.value for name, value in event.materialization.metadata.items()}
    assert metadata["twice"] == 42 and metadata["there"] == str(ROOT) and metadata["extra"] == "yes"


def test_working_files_lie_in_the_staging_area_of_the_home():
    """What a kill leaves there is swept by the next run."""
    result = _materialize(
        "import os\n"
        "from dagster_pipes import decode_param, open_dagster_pipes\n"
        "with open_dagster_pipes() as pipes:\n"
        "    paths = [decode_param(os.environ[name])['path'] for name in ('DAGSTER_PIPES_CONTEXT', 'DAGSTER_PIPES_MESSAGES')]\n"
        "    pipes.report_asset_materialization(metadata={'paths': ' '.join(paths)})"
    )
    (event,) = result.get_asset_materialization_events()
    paths = [Path(path) for path in event.materialization.metadata["paths"].value.split()]
    assert [path.name for path in paths] == ["context", "messages"]
    assert all(path.parts[-4:-2] == ("store", ".staging") and not path.parent.exists() for path in paths)


def test_a_killed_child_may_have_run_out_of_memory():
    result = _materialize("import os; os.kill(os.getpid(), 9)")
    assert "was killed (often: out of memory)" in _failure(result) and "--resume" in _failure(result)


def _failure(result) -> str:
    (event,) = [event for event in result.all_events if event.is_step_failure]
    data = event.step_failure_data
    return data.user_failure_data.description if data.user_failure_data else data.error.to_string()


def test_an_input_error_of_the_child_is_that_of_the_step():
    result = _materialize(
        "from dagster_pipes import open_dagster_pipes\n"
        "with open_dagster_pipes() as pipes:\n"
        "    pipes.report_custom_message({'problem': 'lr = -1', 'remedy': 'give more'})\n"
        "raise SystemExit(1)"
    )
    assert "lr = -1\n  remedy: give more" in _failure(result)


def test_a_crash_of_the_child_fails_the_step():
    assert "ended with exit code 134" in _failure(_materialize("import os; os.kill(os.getpid(), 6)"))


def test_processes_that_the_child_leaves_behind_are_ended(tmp_path):
    pid_file = tmp_path / "pids"
    code = (
        f"import subprocess, sys, os, time; subprocess.Popen([sys.executable, {str(STUBBORN)!r}, {str(pid_file)!r}])\n"
        f"while not os.path.exists({str(pid_file)!r}): time.sleep(0.05)"
    )
    assert _materialize(code).success
    wait_until_gone([int(word) for word in pid_file.read_text().split()])


def test_an_interrupted_step_ends_a_child_that_ignores_signals(tmp_path):
    """What a cancellation does: the step gets SIGINT, the child's group all three signals."""
    import threading

    pid_file, pids = tmp_path / "pids", []

    def interrupt():
        pids.extend(stubborn_pids(pid_file))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    result = _materialize(
        f"import os, sys; os.execv(sys.executable, [sys.executable, {str(STUBBORN)!r}, {str(pid_file)!r}])"
    )
    thread.join()
    assert not result.success and len(pids) == 2
    wait_until_gone(pids)
