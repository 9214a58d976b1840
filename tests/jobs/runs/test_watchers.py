"""Signals that Dagster would take: an ignored SIGINT stays ignored inside its steps, and SIGTERM keeps its handler."""

import signal

import pytest
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._utils.interrupts import capture_interrupts, raise_interrupts_as

from graphmill.jobs.runs import watchers as _watchers  # noqa: F401 - for its import


@pytest.fixture
def handlers():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def around_a_step():
    """Returns the handlers inside of a step and behind it."""
    found = []
    with capture_interrupts(), raise_interrupts_as(DagsterExecutionInterruptedError):
        found += [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)]
    return [*found, signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)]


def test_an_ignored_sigint_stays_ignored(handlers):
    def ours(number, frame):
        raise AssertionError

    signal.signal(signal.SIGTERM, ours)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert around_a_step() == [signal.SIG_IGN, ours, signal.SIG_IGN, ours]
    signal.raise_signal(signal.SIGINT)


def test_any_other_is_dagsters_within_a_step(handlers):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with raise_interrupts_as(DagsterExecutionInterruptedError), pytest.raises(DagsterExecutionInterruptedError):
        signal.raise_signal(signal.SIGTERM)
