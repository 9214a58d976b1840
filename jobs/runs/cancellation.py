"""Notices that a run was cancelled by asking its history, because a signal does not always come."""

import time

import dagster as dg

from assets.building.stage import Progress

CANCEL_POLL_SECONDS = 3.0


def is_canceled(context: dg.AssetExecutionContext) -> bool:
    """Tells whether the run was cancelled.

    Dagster signals a step, but misses the step that it is about to start, and cannot reach a run of the command line at all.
    """
    run = context.instance.get_run_by_id(context.run.run_id)
    return run is not None and run.status in (dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED)


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
