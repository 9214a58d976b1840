"""The command that starts the web UI: one for each home, on a port that there is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from graphmill.jobs import command as cli
from graphmill.jobs.commands.machine.ui import OnceEach, free_port, only_one
from graphmill.jobs.web.healthy import LOCK
from graphmill.kernels.errors import InputError

HOLD = """
import os, sys
from pathlib import Path
from graphmill.jobs.commands.machine.ui import only_one
lock = only_one(Path(sys.argv[1]))
os.pwrite(lock, b"http://127.0.0.1:3456", 0)
os.execv("/bin/sh", ["sh", "-c", "echo held; read line"])
"""


def test_a_second_web_ui_of_a_home_names_the_first(tmp_path: Path) -> None:
    """The lock outlives the program that took it, in the one that took its place, and no longer."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ,
        text=True,
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    with pytest.raises(InputError, match=r"runs already, at http://127.0.0.1:3456"):
        only_one(tmp_path)
    (tmp_path / LOCK).write_bytes(b"\xffttp://127.0.0.1:3456")  # a flipped bit
    with pytest.raises(InputError, match=r"runs already, at \ufffdttp://127.0.0.1:3456"):
        only_one(tmp_path)
    assert only_one(tmp_path / "..") >= 0  # another home has one of its own
    holder.communicate("go on")
    os.close(only_one(tmp_path))
    (tmp_path / ".." / LOCK).unlink()


def test_a_port_that_there_is_not_is_refused() -> None:
    for port in ("0", "99999", "-1"):
        result = CliRunner().invoke(cli.graphmill, ["ui", "--port", port])
        assert result.exit_code == 2 and "1<=x<=65535" in result.output


def test_a_taken_port_is_named() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="is taken"):
            free_port(taken.getsockname()[1])


def test_the_version_is_shown() -> None:
    assert CliRunner().invoke(cli.graphmill, ["--version"]).output.startswith("graphmill, version 0.1")


def test_its_lines_have_no_colours_and_stand_there_once() -> None:
    """Lines as Dagster prints them: what a step writes, the same as the log of its run, and lines of the daemon."""
    run = "2026-11-29 10:00:11 +0000 - dagster - INFO - __ASSET_JOB - 45d66dfb-c135-4734-ae10-f1f6ba7da0c9 - seen__sage - "
    epochs = [f"sage: seed 0, epoch {epoch}/2: loss 3.{epoch}, 0.06 s" for epoch in (1, 2)]
    daemon = "\x1b[32m2026-11-29 10:00:32 +0000\x1b[0m - dagster.daemon - \x1b[34mINFO\x1b[0m - Checking for new runs"
    lines, asked = OnceEach(), []
    for epoch in epochs:
        asked += [f"  {epoch}", f"{run}{epoch}"]  # on standard error first
    asked += [f"{run}only in the log", daemon, daemon, "", "", f"{run}{epochs[0]}", epochs[0], epochs[0]]
    plain = "2026-11-29 10:00:32 +0000 - dagster.daemon - INFO - Checking for new runs"
    printed = [said for line in asked if (said := lines.plain(line)) is not None]
    repeated = [f"{run}{epochs[0]}", epochs[0]]  # another training says the same, in its log first
    assert printed == [f"  {epochs[0]}", f"  {epochs[1]}", f"{run}only in the log", plain, plain, "", "", *repeated]
