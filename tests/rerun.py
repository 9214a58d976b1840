"""Runs the tests, and each that failed once more at the end, alone in a new process: `python -m tests.rerun [--strict] -- PYTEST_ARGS`.

A test that passes then does not fail the run. It is printed under the heading FLAKY with its first traceback, as the last thing on the
screen. A test that fails twice fails the run, and so does everything that is not one failed test: an error in a file that cannot be
imported, an interrupt, a run that stopped early.

A run in which no test has begun or ended for `SILENT_SECONDS` fails, and prints which tests had begun, and the processes that are there.

The file is also the plugin of both pytest processes (`-p tests.rerun`): the first writes its failures to a file, the second runs these
tests alone and writes which of them passed.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

MAX_FAILURES = 10
"""So many tests that failed twice end the second run: more of them say nothing new."""
SILENT_SECONDS = 1500
"""More than `faulthandler_timeout`, which ends a test that hangs: what hangs longer is between tests, and nothing else would end it."""


# The plugin.


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rerun")
    group.addoption(
        "--outcome", metavar="FILE", help="write failed tests with their tracebacks, and passed ones, as JSON"
    )
    group.addoption(
        "--silent", metavar="SECONDS", type=float, default=SILENT_SECONDS, help="end a run that says nothing"
    )
    group.addoption("--only", metavar="FILE", help="run no other tests than those that failed by this file")


def pytest_configure(config: pytest.Config) -> None:
    # A process of pytest-xdist's hands its reports to the first one, which writes them.
    if config.option.outcome and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Outcome(Path(config.option.outcome)))
        config.pluginmanager.register(Watch(config.option.silent))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.only:
        wanted = json.loads(Path(config.option.only).read_text())["failed"]
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in wanted])
        items[:] = [item for item in items if item.nodeid in wanted]


class Outcome:
    """Collects what became of the tests of one process and writes it to a file.

    Args:
        path: the file, with `failed` (test -> its first traceback), `passed` (tests), and `whole`: whether all tests ran.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.whole = path, True
        self.failed: dict[str, str] = {}
        self.passed: set[str] = set()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.whole &= not report.failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.setdefault(report.nodeid, f"{report.longreprtext}\n{report.capstderr}".rstrip())
        elif report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        whole = self.whole and not (session.shouldstop or session.shouldfail)
        passed = sorted(self.passed - self.failed.keys())
        self.path.write_text(json.dumps({"failed": self.failed, "passed": passed, "whole": whole}))


class Watch:
    """Ends a run in which no test has begun or ended for so many seconds, and says what it was at."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.changed, self.running = seconds, time.monotonic(), set[str]()
        self.screen = os.dup(2)  # while a test runs, pytest has put a file in its place
        threading.Thread(target=self._watch, daemon=True).start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.changed = time.monotonic()
        self.running.add(nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.changed = time.monotonic()
        self.running.discard(nodeid)

    def _watch(self) -> None:
        while (left := self.changed + self.seconds - time.monotonic()) > 0:
            time.sleep(left)
        with contextlib.suppress(OSError):  # not every machine has the command
            subprocess.run(
                ["ps", "-ww", "-eo", "pid,ppid,etimes,stat,wchan,args", "--forest"], stdout=self.screen, check=False
            )
        said = [f"No test began or ended for {self.seconds:,.0f} s. Running:", *sorted(self.running)]
        os.write(self.screen, "\n".join(["", *said, ""]).encode())
        faulthandler.dump_traceback(self.screen)
        os._exit(pytest.ExitCode.INTERNAL_ERROR)


# The two runs.


def main(arguments: list[str]) -> int:
    """Runs pytest, and once more what failed; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.rerun", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--strict", action="store_true", help="a test that fails once fails the run")
    parser.add_argument("arguments", nargs="*", help="arguments of pytest, after --")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder) / "first.json", Path(folder) / "second.json"
        code = run_pytest(*given.arguments, f"--outcome={first}")
        found = json.loads(first.read_text()) if first.exists() else {"failed": {}, "whole": False}
        if code != pytest.ExitCode.TESTS_FAILED or not found["whole"] or not found["failed"]:
            return code
        print(f"\nOnce more, alone: {len(found['failed'])} failed", flush=True)
        alone = ["--numprocesses", "0", f"--maxfail={MAX_FAILURES}"]
        # With "=": pytest looks for its settings beside every word that is a path.
        run_pytest(*given.arguments, *alone, f"--only={first}", f"--outcome={second}")
        passed = json.loads(second.read_text())["passed"] if second.exists() else []
    flaky = {name: traceback for name, traceback in found["failed"].items() if name in passed}
    if flaky:
        print("\n".join(report(flaky)), flush=True)
    return int(given.strict or len(flaky) < len(found["failed"]))


def run_pytest(*arguments: str) -> int:
    """Runs pytest with this file as a plugin; returns its exit code."""
    # Several processes share the cores. A thread of OpenMP that waits would spin, by default, on a core that another process needs.
    environment = {"OMP_WAIT_POLICY": "PASSIVE"} | os.environ
    # Hundreds of processes import the same files: each would compile the project anew, and each process of pytest all tests.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "pytest", "-p", "tests.rerun", *arguments]
    return subprocess.run(command, env=environment, check=False).returncode


def report(flaky: dict[str, str]) -> list[str]:
    """Returns the lines about tests that failed first and passed alone, each with its first traceback."""
    lines = [
        "",
        f" FLAKY: {len(flaky)} failed, and passed alone; mend them, or enter them in docs/log.md ".center(100, "="),
    ]
    for name, traceback in flaky.items():
        lines += ["", f"FLAKY {name}", *(f"    {line}" for line in traceback.splitlines())]
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
