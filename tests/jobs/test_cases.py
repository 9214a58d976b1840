"""The folders of `cases` beside the folder that GRAPHMILL_TEST_DATA names: each `run.sh` exits with 0 if this project holds.

A `run.sh` runs the command that GRAPHMILL names on small inputs of its own; 1 means that a fault is back, 2 that it could not be tried.
Some were written when the four layers were packages by themselves; a copy is run in which they have their names of today.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forks
from tests.e2e.commands import FORKED, ROOT

CASES = Path(os.environ.get("GRAPHMILL_TEST_DATA", "/nowhere")).parent / "cases"
QUICK = ("B-04", "B-05", "B-13", "B-16", "B-23", "R-06")
"""Cases that take seconds and stand for a reader or a rule each; the others start servers, train long, or run many commands."""

SCRIPTS = sorted(CASES.glob("*/run.sh"))
OLD_NAMES = (
    (re.compile(r"\bimport (assets|jobs|kernels|trainers)(?=[, ;])"), r"import graphmill.\1 as \1"),
    (re.compile(r"\bfrom (assets|jobs|kernels|trainers)\b(?=[. ])"), r"from graphmill.\1"),
    (re.compile(r"-m trainers\b"), "-m graphmill.trainers"),
)
WHAT = "the cases that were reported: damaged checkpoints, ranks, servers, bundles, limits of the system, remedies of archives"
MARKED = [
    pytest.param(
        path, id=path.parent.name, marks=[] if path.parent.name.startswith(QUICK) else [pytest.mark.slow(WHAT)]
    )
    for path in SCRIPTS
]


@pytest.mark.skipif(not SCRIPTS, reason="no folder `cases` stands beside the one that GRAPHMILL_TEST_DATA names")
@pytest.mark.parametrize("script", MARKED or [None])
def test_a_case_holds(script: Path, tmp_path: Path) -> None:
    case = tmp_path / "case"
    shutil.copytree(script.parent, case)
    for path in (*case.glob("*.sh"), *case.glob("*.py")):
        text = path.read_text("utf-8")
        for old, new in OLD_NAMES:
            text = old.sub(new, text)
        path.write_text(text, "utf-8")
    command = Path(sys.executable).with_name("graphmill")
    if script.parent.name.startswith(QUICK):
        command = tmp_path / "graphmill"
        forks.command(command, FORKED, forks.COMMANDS)
    told = {"GRAPHMILL": str(command), "PYTHON": sys.executable, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        ["sh", str(case / "run.sh")],
        cwd=tmp_path,
        env=os.environ | told,
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode == 2 and "not installed" in done.stdout:
        pytest.skip(f"could not be tried: {done.stdout[-500:]}")
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
