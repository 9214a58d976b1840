"""A program in a fork has its own process, folder, environment, output and end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forks

SAYS = """
import os, sys
print(os.getcwd(), os.environ["WORD"], "HOME" in os.environ, *sys.argv, __name__)
"""


def test_it_answers_as_a_process_of_its_own_would(tmp_path: Path) -> None:
    words = ["-c", SAYS, "a b"]
    env = {"WORD": "blue", "PATH": os.environ["PATH"]}
    done = forks.run(words, cwd=tmp_path, env=env)
    plain = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == plain.returncode == 0
    assert done.stdout == plain.stdout == f"{tmp_path} blue False -c a b __main__\n"


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("raise SystemExit(7)", 7),
        ("raise SystemExit('why')", 1),
        ("raise KeyboardInterrupt", -2),
        ("1 / 0", 1),
        ("import atexit; atexit.register(print, 'bye')", 0),
    ],
)
def test_any_end_is_told_and_the_next_one_runs(tmp_path: Path, code: str, ended: int) -> None:
    done = forks.run(["-c", code], cwd=tmp_path)
    assert done.returncode == ended
    assert ("ZeroDivisionError" in done.stderr) == (code == "1 / 0") and (done.stderr == "why\n") == ("why" in code)
    assert (done.stdout == "bye\n") == (ended == 0)
    assert forks.run(["-c", "print(6 * 7)"], cwd=tmp_path).stdout == "42\n"


def test_a_module_runs_as_the_main_one(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import sys; print(__name__, sys.argv[1:])")
    done = forks.run(["-m", "own", "x"], cwd=tmp_path)
    assert done.stdout == "__main__ ['x']\n", done.stderr


def test_a_safe_path_leaves_the_current_folder_out(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("print('mine')")
    assert (
        "No module named own" in forks.run(["-m", "own"], cwd=tmp_path, env=os.environ | {"PYTHONSAFEPATH": "1"}).stderr
    )


def test_one_that_does_not_end_is_killed(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        forks.run(["-c", "import time; time.sleep(600)"], cwd=tmp_path, timeout=0.5)
