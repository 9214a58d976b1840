"""Processes that end with the one that started them."""

import os
import queue
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from graphmill.assets.building.child import (
    ENDED,
    ERR,
    NUM_SPINS,
    OUT,
    SPINS,
    TUNABLES,
    WAIT_POLICY,
    Child,
    FunctionChild,
    await_child,
    begin_as_trainings,
    child_environment,
    end_group,
    how_ended,
    how_it_ended,
    received,
    run_child,
    start_child,
    start_guarded,
)
from graphmill.assets.storage.names.home import ROOT
from graphmill.jobs import cli
from graphmill.jobs.commands.machine.ui import server_environment
from tests.jobs.runs.processes import wait_until_gone


@pytest.mark.parametrize("module", ["graphmill.assets.partitions.metis_child", "graphmill.assets.sources.dgl.reader"])
def test_a_child_whose_parent_is_gone_before_it_begins_ends(module):
    """It is told who started it; here that is not so. Beyond that look it would fail with a traceback: nothing else is given."""
    # Process 0 is nobody's parent.
    ended = subprocess.run(
        [sys.executable, "-m", module, "0"], env=child_environment(), capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", "")


@pytest.mark.parametrize("whose", ["a child", "a server"])
def test_modules_in_the_users_folder_are_not_imported(tmp_path: Path, whose: str) -> None:
    """A Dagster project has folders of the same names as this one, and everybody may have a `numpy.py`."""
    for name in ("assets/__init__.py", "jobs/__init__.py", "dagster/__init__.py", "numpy.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise SystemExit('the user's code was run')")
    server = os.environ | server_environment(tmp_path / "home", 3000)
    code = "import graphmill.assets.storage.names.home, dagster, numpy; print(graphmill.assets.storage.names.home.ROOT)"
    (tmp_path / "inner.py").write_text("raise SystemExit('the user's module was run')")
    environment = child_environment() if whose == "a child" else server
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr) == (0, "")
    missing = subprocess.run(
        [sys.executable, "-m", "inner"], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "No module named inner" in missing.stderr


def test_a_program_begins_again_with_the_heap_and_threads_of_trainings_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (SPINS, TUNABLES, WAIT_POLICY):
        monkeypatch.delenv(name, raising=False)
    begun: list[dict[str, str]] = []
    # This process goes on, and must not block the signals.
    monkeypatch.setattr(signal, "pthread_sigmask", lambda how, numbers: set())
    monkeypatch.setattr(os, "execve", lambda program, arguments, environment: begun.append(environment))
    begin_as_trainings()
    assert [each[SPINS] for each in begun] == [NUM_SPINS] and TUNABLES in begun[0]
    for name in (SPINS, TUNABLES):
        monkeypatch.setenv(name, begun[0][name])
    begin_as_trainings()
    assert len(begun) == 1


@pytest.mark.parametrize(("command", "times"), [("plan", True), ("new --plan", True), ("new", False)])
def test_commands_that_time_trainings_begin_as_these_do(
    command: str, times: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*command.split(), "--help"]
    begun: list[str] = []
    monkeypatch.setattr(sys, "argv", ["graphmill", *words])
    monkeypatch.setattr("graphmill.assets.building.child.begin_as_trainings", lambda: begun.append(command))
    # This process goes on: it neither answers signals nor escapes what it prints.
    monkeypatch.setattr("graphmill.assets.building.interrupts.begin", lambda line: None)
    monkeypatch.setattr("graphmill.assets.building.terminal.begin_to_print", lambda: None)
    monkeypatch.setattr("graphmill.jobs.cli.signal.signal", lambda number, handler: None)
    with pytest.raises(SystemExit, match="0"):
        cli.main()
    cli.main(words)  # a function that is called, and not a program, must not begin again
    assert begun == [command] * times


def test_a_child_gets_an_order_and_its_lines_are_heard() -> None:
    heard: list[tuple[str, str]] = []
    code = "import sys; print(sys.stdin.read()); print('no', file=sys.stderr); sys.exit(3)"
    child = Child(
        [sys.executable, "-c", code], child_environment(), lambda stream, line: heard.append((stream, line)), "an order"
    )
    assert await_child(child.process, lambda: None, 0.05) == 3
    child.join()
    assert sorted(heard) == [(ERR, "no"), (OUT, "an order")]
    assert (child.code, how_it_ended(3), how_ended(3)) == (3, "exit code 3", "ended with exit code 3")
    assert run_child([sys.executable, "-c", code], order="the same").stdout == "the same\n"


def test_a_check_ends_the_wait_and_not_the_child() -> None:
    child = start_child(["sleep", "60"])

    def cancelled() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await_child(child, cancelled, 0.01)
    assert child.poll() is None
    end_group(child, (0.2, 5, 5))
    assert how_it_ended(child.wait()) == "SIGINT" and how_ended(-signal.SIGTERM) == "was ended by SIGTERM"


def answer_twice(pipe: Connection) -> None:
    """The function of a child in the tests below."""
    print("a print is no value")
    asked = received(pipe)
    while (value := asked.get()) is not None:
        pipe.send((os.getpid(), value * 2))


def test_a_function_in_a_child_takes_and_gives_values_until_it_is_told() -> None:
    events: queue.Queue[tuple[Any, Any]] = queue.Queue()
    child = FunctionChild(answer_twice, events)
    try:
        child.send(1)
        child.send("b")
        assert [events.get(timeout=120) for _ in range(2)] == [
            (child, (child.process.pid, 2)),
            (child, (child.process.pid, "bb")),
        ]
    finally:
        assert child.end(60.0) == 0
    assert events.get(timeout=60) == (child, ENDED)


PARENT = """
import queue, sys, time
from graphmill.assets.building.child import FunctionChild, child_environment, start_guarded
from tests.assets.building.test_child import answer_twice
events = queue.Queue()
child = FunctionChild(answer_twice, events)
child.send(1)
events.get()
behind = start_guarded(["sleep", "600"], child_environment(), (0.2, 0.2, 20))
print(child.process.pid, behind.pid, flush=True)
time.sleep(600)
"""


def test_a_killed_parent_leaves_no_function_and_no_guarded_group() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2 and len({os.getsid(pid) for pid in (*pids, parent.pid)}) == 3
    parent.kill()
    parent.communicate()
    wait_until_gone(pids)


def test_a_guarded_group_is_ended_with_what_it_has_started() -> None:
    child = start_guarded(
        ["sh", "-c", "sleep 600 & echo $!; wait"], child_environment(), (0.2, 0.2, 20), stdout=subprocess.PIPE
    )
    assert child.stdout
    inner = int(child.stdout.readline())
    began = time.monotonic()
    end_group(child, (5, 5, 20))
    assert child.poll() is not None and time.monotonic() - began < 30
    child.stdout.close()
    wait_until_gone([inner])
