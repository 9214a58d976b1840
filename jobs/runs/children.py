"""Runs a training as a child process of a step, and leaves no process behind however the step ends.

The child leads a session of its own behind a guard (assets/building/guard.py). When the step ends in any way, by an error or a
cancellation, which reaches it as a BaseException between two byte codes, the child's whole group gets SIGINT, SIGTERM and SIGKILL. When the
step itself is killed, the guard does the same. Dagster's own subprocess client sends one SIGINT and then leaves the child running.

That a run was cancelled is noticed by asking its history, because a signal does not always come. An interrupt becomes a cancellation:
Dagster ends an interrupted run as cancelled only if its history says that a cancellation was asked for, and else as failed, which sensors
and webhooks tell of. It asks the history for the run just before it writes the end. So `interrupts_cancel` replaces that function on the
one instance that this program uses, and writes the request into the history at the first question after an interrupt.
"""

import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
from dagster import (
    DagsterExecutionInterruptedError,
    PipesClientCompletedInvocation,
    PipesFileContextInjector,
    PipesFileMessageReader,
    open_pipes_session,
)

from graphmill.assets.building import guard
from graphmill.assets.building.child import (
    KilledError,
    await_child,
    child_environment,
    end_group,
    start_guarded,
    why_killed,
)
from graphmill.assets.building.stage import Progress
from graphmill.assets.costs.needs import Need
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.local.writer import Staging
from graphmill.assets.storage.names.home import IMPORTED_FROM
from graphmill.kernels.errors import InputError

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


KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""Exit codes of a guard that was killed, and of one whose command was."""


class ChildProcesses(dg.PipesClient):
    """A Pipes client for commands on this machine.

    Args:
        grace: seconds to wait after each of SIGINT, SIGTERM and SIGKILL when a child has to end.
        stderr: file descriptor that the child writes its standard error to, None for the step's own.
    """

    def __init__(self, grace: Sequence[float] = guard.GRACE, stderr: int | None = None):
        self.grace, self.stderr = tuple(grace), stderr

    def run(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        *,
        context: dg.AssetExecutionContext,
        command: Sequence[str],
        extras: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        need: Need | None = None,
    ) -> PipesClientCompletedInvocation:
        """Runs the command from the root of the tree until it ends.

        Args:
            extras: plain values that the child reads from its Pipes context.
            need: the memory that it was said to take, which the error of a killed child lists.

        Raises:
            InputError: the child reported an InputError, or was killed.
            dagster.Failure: it ended with another exit code than 0.
        """
        with _pipes_session(context, extras or {}) as session:
            # Steps import from a path that Dagster adds while it loads code; a child gets it through its environment.
            environment = child_environment({**(env or {}), **session.get_bootstrap_env_vars()})
            code = self._run_to_end(command, environment, context)
        invocation = PipesClientCompletedInvocation(session)
        for message in invocation.get_custom_messages():
            if isinstance(message, Mapping) and "problem" in message:
                raise InputError(str(message["problem"]), str(message.get("remedy", "")))
        if code in KILLED:
            problem = f"{' '.join(command)} was killed ({why_killed()})"
            if need is not None:
                said = f"it was said to take {format_bytes(need.memory_bytes)} of memory:"
                problem = "\n".join([f"{problem}; {said}", *(f"  {line}" for line in need.lines())])
            remedy = "lower what takes memory (queue, eval_workspace, batch_size, fanouts, hidden, [memory]), then go on with --resume"
            raise KilledError(problem, remedy)
        if code != 0:
            description = f"{' '.join(command)} ended with exit code {code}; its standard error is in this step's log"
            raise dg.Failure(description=description, allow_retries=False)
        return invocation

    def _run_to_end(
        self, command: Sequence[str], environment: dict[str, str], context: dg.AssetExecutionContext
    ) -> int:
        def check() -> None:
            if is_canceled(context):
                raise DagsterExecutionInterruptedError

        process = start_guarded(command, environment, self.grace, cwd=IMPORTED_FROM, stderr=self.stderr)
        try:
            return await_child(process, check, CANCEL_POLL_SECONDS)
        finally:
            end_group(process, self.grace)


@contextmanager
def _pipes_session(context: dg.AssetExecutionContext, extras: Mapping[str, Any]) -> Iterator[dg.PipesSession]:
    # Under the home, so that nothing stays in /tmp after a kill: the next run sweeps it, like the leftovers of writers.
    staging = Staging(Path(context.instance.root_directory) / "store")
    with ExitStack() as stack:
        staging.open()
        stack.callback(staging.close)
        injector = PipesFileContextInjector(str(staging.folder / "context"))
        reader = PipesFileMessageReader(str(staging.folder / "messages"))
        with warnings.catch_warnings():
            # Dagster warns of a preview function that it calls itself.
            warnings.simplefilter("ignore", dg.PreviewWarning)
            session = open_pipes_session(context, injector, reader, dict(extras))
            opened = stack.enter_context(session)
        yield opened
