"""The tutorial, gone through from its first line to its last in an empty folder: every program, file and command, and what they print.

A `python` or `toml` fence begins with the name of the file that it is. An `sh` fence holds commands; the `text` fence behind it is what
they print, with "..." for lines that are left out. Seconds, sizes and scores differ a little from machine to machine, so decimals do not
count.
"""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import forks
from tests.docs.pages import ROOT, WALKED, fences
from tests.e2e.commands import FORKED

pytestmark = pytest.mark.first

NOT_RUN = {
    "source .venv/bin/activate": "the environment of the tests is active",
    "graphmill ui": "serves until it is stopped",
}
MEASURED = re.compile(r"\d+\.\d+( [KMG]iB)?|[0-9a-f]{12}|in epoch \d+|\s+|(?<=│) +\d+ (?=│)")


OF_OTHERS = ("torch_geometric", "pytorch_lightning", "accelerate")
"""Packages of which some programs are examples; where one is not installed, its programs are left out."""


@pytest.mark.parametrize("name", WALKED)
def test_every_line_does_what_it_says(name: str, tmp_path: Path) -> None:
    said, left_out = "", False
    for fence in fences(ROOT / name):
        if fence.language == "python":
            imported = re.findall(r"^(?:import|from) (\w+)", fence.text, re.M)
            left_out = any(each in OF_OTHERS and find_spec(each) is None for each in imported)
        if left_out:  # the program, its command and what this prints
            continue
        if fence.language in ("python", "toml"):
            path = tmp_path / fence.text.splitlines()[0].removeprefix("# ")
            path.parent.mkdir(exist_ok=True)
            path.write_text(fence.text)
        elif fence.language == "sh":
            said = "".join(run(line.partition(" #")[0].strip(), tmp_path) for line in fence.text.splitlines())
        else:
            assert fence.language == "text", fence
            missing = [
                line
                for line in fence.text.splitlines()
                if line.strip() not in ("", "...") and plain(line) not in plain(said)
            ]
            assert not missing, said


def run(command: str, folder: Path) -> str:
    """Runs a command as a reader would and returns what it prints."""
    if command in NOT_RUN:
        return ""
    words = command.split()
    assert words[0] in ("graphmill", "python"), command
    hidden = {"GRAPHMILL_HOME", "DAGSTER_HOME", "GRAPHMILL_PIPELINES"}
    variables = {key: value for key, value in os.environ.items() if key not in hidden}
    variables["PYTHONPATH"] = str(ROOT)
    if words[0] == "graphmill":
        done = forks.run([*FORKED, *words[1:]], cwd=folder, env=variables, imports=forks.COMMANDS)
    else:
        program = f"import runpy; runpy.run_path({words[1]!r}, run_name='__main__')"
        done = forks.run(["-c", program, *words[2:]], cwd=folder, env=variables, imports=forks.TRAININGS)
    said = done.stdout + done.stderr
    assert done.returncode == 0, f"{command}\n{said}"
    return said.replace(f"{folder.resolve()}/", "")


def plain(text: str) -> str:
    """Returns a text without what differs from machine to machine, and without spaces."""
    return MEASURED.sub("", text)
