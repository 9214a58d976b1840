"""`make test` on tiny suites: a test that fails once is printed as FLAKY, one that fails twice fails the run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BEGIN = """
import os
from pathlib import Path
import pytest

@pytest.fixture
def first_time(request):
    place = Path(__file__).with_name(f"ran-{request.node.name}")
    before, _ = place.exists(), place.touch()
    return not before

def test_sound():
    pass
"""
ONCE = """
@pytest.mark.parametrize("letter", ["a b", "ü[::]"])
def test_once(first_time, letter):
    assert not first_time, "only the first time"
"""
CRASH = """
def test_crash(first_time):
    first_time and os._exit(3)
"""
TWICE = """
def test_twice():
    assert False, "each time"
"""
SKIPPED = """
def test_skipped(first_time):
    assert not first_time, "it did not pass"
    pytest.skip("alone")
"""
SILENT = """
import time
import pytest

@pytest.fixture(scope="session", autouse=True)
def hangs():
    yield
    time.sleep(600)
"""
LIMIT_SECONDS = 120

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make on this machine")


def make_test(folder: Path, suite: str, *words: str, arguments: str = "") -> tuple[int, str]:
    """Runs the Makefile's target on a suite of one file; returns its exit code, 2 for any failure, and what it printed."""
    (folder / "test_tiny.py").write_text(BEGIN + suite)
    (folder / "pytest.ini").write_text("[pytest]\n")
    given = f"{arguments} -p no:cacheprovider {folder}"
    # The environment that runs this test is set up; the outer make's variables are none of this one's.
    done = [option for stamp in ("ready-dev", "built") for option in ("-o", f".venv/.{stamp}")]
    outer = ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "STRICT", "PYTEST_ADDOPTS")
    result = subprocess.run(
        ["make", "test", f"BIN={Path(sys.executable).parent}", f"PYTEST_ARGS={given}", *done, *words],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in outer},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    return result.returncode, result.stdout


def test_one_that_fails_once_leaves_0_and_is_the_last_thing_on_the_screen(tmp_path: Path) -> None:
    code, printed = make_test(tmp_path, ONCE + CRASH, arguments="--numprocesses 2 --max-worker-restart 4")
    assert code == 0, printed
    _, heading, flaky = printed.partition(" FLAKY: 3 failed, and passed alone")
    assert heading and flaky.count("FLAKY test_tiny.py::test_once[") == 2
    assert "FLAKY test_tiny.py::test_crash" in flaky and "crashed" in flaky
    assert flaky.count("AssertionError: only the first time") == 2 and flaky.count("def test_once") == 2, "tracebacks"
    assert "test_sound" not in printed and printed.count("3 passed, 1 deselected") == 1, "the failed ones alone"


def test_strict_fails_on_it(tmp_path: Path) -> None:
    code, printed = make_test(tmp_path, ONCE, "STRICT=1")
    assert code == 2 and "Error 1" in printed and "FLAKY test_tiny.py::test_once[a b]" in printed


def test_one_that_fails_twice_leaves_1(tmp_path: Path) -> None:
    code, printed = make_test(tmp_path, ONCE + TWICE + SKIPPED)
    assert code == 2 and "Error 1" in printed
    assert " FLAKY: 2 failed, and passed alone" in printed
    assert "FLAKY test_tiny.py::test_twice" not in printed and "FLAKY test_tiny.py::test_skipped" not in printed


@pytest.mark.parametrize(
    ("suite", "arguments"), [("import nowhere\n", ""), (ONCE, "-x")], ids=["an import that fails", "an early stop"]
)
def test_what_is_not_one_failed_test_is_not_run_again(tmp_path: Path, suite: str, arguments: str) -> None:
    code, printed = make_test(tmp_path, suite, arguments=arguments)
    assert code == 2 and "Once more, alone" not in printed and "FLAKY" not in printed


def test_a_sound_suite_runs_once(tmp_path: Path) -> None:
    code, printed = make_test(tmp_path, "")
    assert code == 0 and printed.count("1 passed") == 1 and "Once more" not in printed and "FLAKY" not in printed


@pytest.mark.parametrize("arguments", ["", "--numprocesses 2"], ids=["alone", "in processes"])
def test_a_run_that_says_nothing_ends_with_what_it_was_at(tmp_path: Path, arguments: str) -> None:
    code, printed = make_test(tmp_path, SILENT, arguments=f"--silent 5 {arguments}")
    assert code == 2 and "No test began or ended for 5 s. Running:\ntest_tiny.py::test_sound" in printed
    assert "--outcome" in printed and "Once more" not in printed


def test_a_process_that_crashes_holds_nobody_up(tmp_path: Path) -> None:
    """Also when it has done whole files before, which nobody has to do again."""
    for number in range(12):
        (tmp_path / f"test_sound_{number}.py").write_text("def test_sound(): pass\n")
    (tmp_path / "test_zero.py").write_text(f"import time\n{BEGIN}{CRASH}\ndef test_last(): time.sleep(1)\n")
    dealt = "-p tests.scheduler --numprocesses 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 4"
    code, printed = make_test(tmp_path, "", arguments=f"--silent 75 {dealt}")
    assert code == 0 and "1 failed" in printed and "FLAKY test_zero.py::test_crash" in printed, printed
