"""`pytest -m gpu` runs the tests that need a CUDA device, and fails when none of them ran; otherwise they are skipped, visibly.

Nothing heavy is imported here: on a GPU machine the kernels' tests run beside NumPy, torch and CuPy alone.
"""

import re
from contextlib import suppress

import pytest

with suppress(ModuleNotFoundError):  # a GPU machine need not have it
    from hypothesis import HealthCheck, settings

    # A busy machine may stop for seconds in the middle of an example, which says nothing about the code.
    settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy machine")

PASSED = pytest.StashKey[list[str]]()


def asked_for_gpu(config: pytest.Config) -> bool:
    """Whether tests are to run and -m names gpu, and not as "not gpu"."""
    return not config.option.collectonly and re.search(r"(?<!not )\bgpu\b", config.option.markexpr) is not None


def pytest_configure(config: pytest.Config) -> None:
    config.stash[PASSED] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Files that take long come first, so that no process is left alone with one of them at the end (`make test` deals files to several).
    first = {item.path for item in items if item.get_closest_marker("first")}
    items.sort(key=lambda item: item.path not in first)
    if not asked_for_gpu(config):
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device; `pytest -m gpu` runs it"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if report.when == "call" and report.passed and item.get_closest_marker("gpu"):
        item.config.stash[PASSED].append(report.nodeid)
    return report


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
