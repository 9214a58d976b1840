"""Processes that end with the one that started them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphmill.assets.building.child import (
    NUM_SPINS,
    SPINS,
    TUNABLES,
    WAIT_POLICY,
    begin_as_trainings,
    child_environment,
)
from graphmill.jobs import cli
from graphmill.jobs.commands.ui import server_environment


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
    code = "import graphmill.assets.storage.home, dagster, numpy; print(graphmill.assets.storage.home.ROOT)"
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
    monkeypatch.setattr(cli.interrupts, "begin", lambda line: None)
    monkeypatch.setattr(cli, "begin_to_print", lambda: None)
    with pytest.raises(SystemExit, match="0"):
        cli.main()
    cli.main(words)  # a function that is called, and not a program, must not begin again
    assert begun == [command] * times
