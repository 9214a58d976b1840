"""Watches executors: one that dies, hangs or is too slow ends the run with an error that names it.

An executor says what it begins and ends (`Activity.at`). Whoever waits for results asks the `Watch` at every tick: a task that has lasted
longer than the limit, or a thread that has ended without a word, is a fault. An exception of an executor is told at once. So a run ends
within the limit and one tick of any fault.

A thread cannot be ended from outside: one that hangs is left alone, as a daemon that goes when the process does. Not covered: a native call
that holds the interpreter's lock for ever, which stops the watch as well; a training in a child process is then ended by its guard.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from assets.storage.refused import refusal
from kernels.errors import InputError
from trainers.record.timeline import Timeline

MOST_TICK = 1.0
"""Seconds from one look at the executors to the next, at most."""


class ExecutorFault(InputError):
    """An executor that failed, ended or took too long; the message names it, what it did and for which batch."""


class Activity:
    """What one thread of an executor does.

    Args:
        name: of the executor, "sampler 1".
        timeline: gets a span of each task.
        clock: returns seconds.

    Attributes:
        seconds, tasks: by phase, the sum of all tasks that ended and their number.
        thread: that it belongs to; None before it runs.
        ended: the thread has said that it is done.
    """

    def __init__(self, name: str, timeline: Timeline, clock: Callable[[], float] = time.monotonic):
        self.name, self.timeline, self.clock = name, timeline, clock
        self.doing: tuple[str, int, float] | None = None
        self.seconds: dict[str, float] = defaultdict(float)
        self.tasks: dict[str, int] = defaultdict(int)
        self.thread: threading.Thread | None = None
        self.ended = False

    @contextmanager
    def at(self, phase: str, position: int) -> Iterator[None]:
        """Says that a task is being done for a batch."""
        began = self.clock()
        self.doing = (phase, position, began)
        with self.timeline.span(self.name, phase, position):
            yield
        # Left as it was where the block raises: the error says what was being done.
        self.seconds[phase] += self.clock() - began
        self.tasks[phase] += 1
        self.doing = None

    def mean(self, phase: str) -> float | None:
        """Returns the mean seconds of a phase's tasks, None before one has ended."""
        return self.seconds[phase] / self.tasks[phase] if self.tasks.get(phase) else None


class Watch:
    """Finds executors that are at fault.

    Args:
        limit: seconds that one task may take.
        clock: returns seconds.
    """

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic):
        self.limit, self.clock = limit, clock
        self.tick = min(MOST_TICK, limit / 4)
        self.activities: list[Activity] = []

    def check(self) -> None:
        """Looks at every executor.

        Raises:
            ExecutorFault: one of them takes too long, or its thread is gone.
        """
        now = self.clock()
        for activity in self.activities:
            doing = activity.doing
            if doing is not None and now - doing[2] > self.limit:
                phase, position, since = doing
                raise ExecutorFault(
                    f"{activity.name} has been at work ({phase}, batch {position}) for {now - since:.1f} s, and timeout = {self.limit:g} s",
                    "raise `timeout` if the machine is slow, or lower `batch_size` or `fanouts`; --resume goes on from the checkpoint",
                )
            thread = activity.thread
            if thread is not None and not activity.ended and not thread.is_alive():
                raise ExecutorFault(f"{activity.name} has ended without a word", "use --resume")


def fault_of(activity: Activity, error: BaseException) -> BaseException:
    """Returns what an executor's exception is told as: its own error with the executor's name, or itself where it ends the program.

    What the machine refused keeps its remedy; a defect's traceback is printed, since nobody else has it.
    """
    if not isinstance(error, Exception):
        return error
    at = "" if activity.doing is None else f" ({activity.doing[0]}, batch {activity.doing[1]})"
    said = refusal(error)
    if said is None:
        traceback.print_exception(error)
        remedy = "the traceback above says where; --resume goes on from the checkpoint"
        said = InputError(f"{type(error).__name__}: {error}", remedy)
    fault = ExecutorFault(f"{activity.name} failed{at}: {said.problem}", said.remedy)
    fault.__cause__ = error
    return fault
