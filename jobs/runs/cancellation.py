"""Notices that a run was cancelled by asking its history, because a signal does not always come; makes an interrupt a cancellation.

Dagster ends an interrupted run as cancelled only if its history says that a cancellation was asked for, and else as failed, which sensors
and webhooks tell of. It asks the history for the run just before it writes the end. So `interrupts_cancel` replaces that function on the
one instance that this program uses, and writes the request into the history at the first question after an interrupt.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import dagster as dg

from graphmill.assets.building.stage import Progress

CANCEL_POLL_SECONDS = 3.0


def is_canceled(context: dg.AssetExecutionContext) -> bool:
    """Tells whether the run was cancelled.

    Dagster signals a step, but misses the step that it is about to start, and cannot reach a run of the command line at all.
    """
    run = context.instance.get_run_by_id(context.run.run_id)
    return run is not None and run.status in (dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED)


@contextmanager
def interrupts_cancel(instance: dg.DagsterInstance, noticed: Callable[[], bool]) -> Iterator[None]:
    """Makes SIGINT and SIGTERM cancellations of the runs that this process carries out while this is active."""
    get = instance.get_run_by_id

    def get_run_by_id(run_id: str) -> dg.DagsterRun | None:
        run = get(run_id)
        if run is None or run.status != dg.DagsterRunStatus.STARTED or not noticed():
            return run
        instance.report_run_canceling(run, "Interrupted on the command line.")
        return get(run_id)

    instance.get_run_by_id = get_run_by_id  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        del instance.get_run_by_id


class CancelableProgress(Progress):
    """Passes progress on, and ends the stage when its run was cancelled."""

    def __init__(self, progress: Progress, context: dg.AssetExecutionContext):
        self._progress, self._context = progress, context
        self._asked = time.monotonic()

    def start(self, label: str, total: int | None, unit: str) -> None:
        """Passes the beginning on."""
        self._progress.start(label, total, unit)

    def advance(self, n: int) -> None:
        """Passes the step on; every few seconds it checks whether the run was cancelled."""
        self._progress.advance(n)
        if time.monotonic() - self._asked >= CANCEL_POLL_SECONDS:
            self._asked = time.monotonic()
            if is_canceled(self._context):
                raise dg.DagsterExecutionInterruptedError

    def done(self) -> None:
        """Passes the end on."""
        self._progress.done()
