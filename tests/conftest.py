"""How tests are dealt to processes, and what a run says about marked tests at its end.

`pytest -m gpu` runs the tests that need a CUDA device, and fails when none of them ran; otherwise they are skipped, visibly. `pytest -m
slow` ends with the list of what slow tests cover alone: each says it in its mark.

Tests build thousands of artifacts. In the test's own process a stage composes its figures and no test pays for their pixels, but for those
that ask for `drawn`; and files are not forced to the disk, but for tests that ask for `forced`, since nothing here outlives a loss of
power. Forks (tests/forks.py) are alike. Other processes that tests start do both.

Nothing heavy is imported here: on a GPU machine the kernels' tests run beside NumPy, torch and CuPy alone.
"""

import gc
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.scheduler import pytest_xdist_make_scheduler as pytest_xdist_make_scheduler  # a hook

with suppress(ModuleNotFoundError):  # a GPU machine need not have it
    from hypothesis import HealthCheck, settings

    # A busy machine may stop for seconds in the middle of an example, which says nothing about the code.
    settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy machine")

os.environ.pop("GRAPHMILL_STORE", None)
"""Tests share nothing through the object store of the one who runs them; those about it have a server of their own."""

PASSED = pytest.StashKey[list[str]]()
COVERED = "covered by this slow test alone"


class _Passed:
    """Lists the tests that passed on a GPU, of all processes of the run."""

    def __init__(self, passed: list[str]):
        self.passed = passed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed and "gpu" in report.keywords:
            self.passed.append(report.nodeid)


@pytest.fixture(scope="session", autouse=True)
def drawing() -> Iterator[Callable[[Any], bytes]]:
    """The function that draws a figure. In its place nothing is drawn."""
    from graphmill.assets.figures import style

    draw = style.png
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(style, "png", lambda figure: b"not drawn")
        yield draw


@pytest.fixture(scope="module")
def drawn(drawing: Callable[[Any], bytes]) -> Iterator[None]:
    """For a file whose tests look at drawn figures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphmill.assets.figures.style.png", drawing)
        patch.setenv("GRAPHMILL_TEST_DRAWN", "1")
        yield


@pytest.fixture(scope="session", autouse=True)
def forcing() -> Iterator[Callable[[int], None]]:
    """The function that forces a file to the disk. In its place none is."""
    force = os.fsync
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # it refuses what is no open file, too
        yield force


@pytest.fixture(scope="module")
def forced(forcing: Callable[[int], None]) -> Iterator[None]:
    """For a file whose tests drop pages from the page cache: only what is on the disk can be dropped."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", forcing)
        yield


@pytest.fixture(autouse=True)
def nothing_is_given_back_too_early() -> Iterator[None]:
    """Fails a test in which memory was given back while a launch on a simulated accelerator could still touch it."""
    yield
    accelerator = sys.modules.get("tests.accelerator")
    if accelerator is not None and accelerator.load.cache_info().currsize:
        fault = accelerator.take_fault()
        accelerator.wait_for_all()  # what this test has left is no other test's
        assert not fault, fault


@pytest.fixture(scope="session", autouse=True)
def histories() -> None:
    """Spares histories of runs the seconds of their beginning, if a test that was collected may have one."""
    if "dagster" in sys.modules:
        from tests import forks, histories

        histories.begin_with_copies(forks.folder())


def asked_for_gpu(config: pytest.Config) -> bool:
    """Whether tests are to run and -m names gpu, and not as "not gpu"."""
    return not config.option.collectonly and re.search(r"(?<!not )\bgpu\b", config.option.markexpr) is not None


def pytest_configure(config: pytest.Config) -> None:
    config.stash[PASSED] = []
    config.pluginmanager.register(_Passed(config.stash[PASSED]))
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        from tests import forks

        forks.start_for_all()
    # Thousands of collected tests and a few large libraries are looked through at every collection of garbage: a tenth of the whole run.
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Files that take long come first, so that no process is left alone with one of them at the end (`make test` deals files to several).
    first = {item.path for item in items if item.get_closest_marker("first")}
    items.sort(key=lambda item: item.path not in first)
    for item in items:
        slow = item.get_closest_marker("slow")
        if slow and not slow.args:
            raise pytest.UsageError(f"{item.nodeid}: say in its mark what it covers alone: pytest.mark.slow(TEXT)")
        if slow:
            item.user_properties.append((COVERED, slow.args[0]))
    if not asked_for_gpu(config):
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device; `pytest -m gpu` runs it"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are cores: servers, browsers, disks and locks are waited for."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if asked_for_gpu(session.config) and not session.config.stash[PASSED] and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    if asked_for_gpu(config):
        passed = len(config.stash[PASSED])
        terminalreporter.write_line(
            f"{passed} tests ran on a CUDA device"
            if passed
            else "-m gpu was asked for and no test ran on a CUDA device",
            red=not passed,
        )
    reports = [report for found in terminalreporter.stats.values() for report in found if hasattr(report, "when")]
    covered: dict[str, Counter[str]] = defaultdict(Counter)
    for report in reports:
        text = dict(getattr(report, "user_properties", ())).get(COVERED)
        if text and (report.when == "call" or not report.passed):
            covered[text][report.outcome] += 1
    if covered:
        terminalreporter.section("covered by slow tests alone")
    for text, outcomes in sorted(covered.items()):
        told = ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items()))
        terminalreporter.write_line(f"{told:>12}  {text}")
