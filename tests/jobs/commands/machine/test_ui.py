"""The command that starts the web UI: one for each home, on a port that there is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from graphmill.jobs import command as cli
from graphmill.jobs.commands.machine.ui import free_port, only_one
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
