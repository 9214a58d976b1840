"""The guard ends the whole group of a child whose parent is gone."""

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphmill.assets.building import guard
from graphmill.assets.building.child import end_group
from tests.jobs.runs import processes
from tests.jobs.runs.processes import stubborn_pids, wait_until_gone

STUBBORN = str(Path(processes.__file__).parent / "stubborn.py")
FAST = (0.2, 0.2, 20.0)


def _guarded(*command: str, parent: int | None = None) -> list[str]:
    return [sys.executable, "-I", guard.__file__, str(parent or os.getpid()), "0.2,0.2,20", *command]


@pytest.mark.parametrize(("code", "expected"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 128 + 9)])
def test_the_exit_code_is_the_commands(code, expected):
    command = _guarded(sys.executable, "-c", f"import os, sys; {code}")
    assert subprocess.run(command, start_new_session=True, check=False).returncode == expected


def test_the_command_can_be_interrupted_and_the_guard_stays(tmp_path):
    """SIGINT to the group reaches the command, which ends as it likes; the guard then ends with its code."""
    code = (
        "import sys, time, pathlib\n"
        "try:\n    pathlib.Path(sys.argv[1]).touch(); time.sleep(600)\n"
        "except KeyboardInterrupt:\n    sys.exit(130)"
    )
    process = subprocess.Popen(_guarded(sys.executable, "-c", code, str(tmp_path / "ready")), start_new_session=True)
    while not (tmp_path / "ready").exists():
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(60) == 130


def test_a_killed_parent_leaves_no_process(tmp_path):
    pid_file = tmp_path / "pids"
    starter = (
        "import subprocess, sys, os\n"
        f"subprocess.Popen([sys.executable, '-I', {guard.__file__!r}, str(os.getpid()), '0.2,0.2,20', sys.executable, "
        f"{STUBBORN!r}, {str(pid_file)!r}], start_new_session=True).wait()"
    )
    parent = subprocess.Popen([sys.executable, "-c", starter])
    pids = stubborn_pids(pid_file)
    guard_id = os.getpgid(pids[0])
    assert guard_id not in (os.getpgrp(), parent.pid)
    parent.kill()
    parent.wait()
    wait_until_gone([*pids, guard_id])


def test_a_parent_that_is_gone_before_the_guard_starts(tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    command = _guarded(sys.executable, "-c", "import time; time.sleep(600)", parent=gone.pid)
    assert subprocess.run(command, start_new_session=True, timeout=120, check=False).returncode in (1, -signal.SIGKILL)


def test_end_group_escalates_to_sigkill(tmp_path):
    pid_file = tmp_path / "pids"
    process = subprocess.Popen(_guarded(sys.executable, STUBBORN, str(pid_file)), start_new_session=True)
    pids = stubborn_pids(pid_file)
    assert set(pids) < set(guard.group_members(process.pid))
    end_group(process, FAST)
    assert process.poll() is not None and not guard.group_members(process.pid)
    wait_until_gone(pids)


def test_while_the_machine_stands_still_no_time_to_end_passes(monkeypatch):
    """Each look at the clock finds it a minute later, as after a suspension: the group still gets its turns after each signal."""
    clock, sent = itertools.count(0, 60), []
    monkeypatch.setattr(
        guard, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda seconds: sent.append("turn"))
    )
    monkeypatch.setattr(guard.os, "killpg", lambda group, number: sent.append(number))
    guard.end_group(0, lambda: False, (10, 5, 5))
    turns = [list(group) for is_turn, group in itertools.groupby(sent, lambda each: each == "turn") if is_turn]
    assert [each for each in sent if each != "turn"] == list(guard.SIGNALS) and [len(each) for each in turns] == [
        20,
        10,
        10,
    ]
