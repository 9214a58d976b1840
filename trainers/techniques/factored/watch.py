"""Watches roles: one that dies, hangs or is too slow ends the run with an error that names it.

A role records the begin and end of its tasks (`Activity.at`). The thread that waits for results asks the `Watch` at every tick: a task that
has lasted longer than the limit, or a thread that has ended without a report, is a fault. An exception of a role is reported at once. So a
run ends within the limit and one tick of any fault.

A thread cannot be ended from outside: one that hangs is left alone, as a daemon that ends with the process. Not covered: a native call that
holds the interpreter's lock for ever, which stops the watch as well; a training in a child process is then ended by its guard.
"""

import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from graphmill.assets.storage.system.refused import refusal
from graphmill.kernels.errors import InputError
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.record.ledger import Timeline

MOST_TICK = 1.0
"""Most seconds between two checks of the roles."""


class ExecutorFault(InputError):
    """A role that failed, ended or took too long; the message names it, its task and the batch."""


class Activity:
    """The work of one thread of a role.

    Args:
        name: name of the role, "sampler 1".

    Attributes:
        seconds, tasks: by phase, the sum of all tasks that ended and their number.
        thread: its thread; None before it runs.
        device: the device on which the thread works; None for the run's.
        ended: whether the thread has reported its end.
    """

    def __init__(self, name: str, timeline: Timeline, clock: Callable[[], float] = time.monotonic):
        self.name, self.timeline, self.clock = name, timeline, clock
        self.doing: tuple[str, int, float] | None = None
        self.seconds: dict[str, float] = defaultdict(float)
        self.tasks: dict[str, int] = defaultdict(int)
        self.thread: threading.Thread | None = None
        self.device: Device | None = None
        self.ended = False

    def begin(self) -> None:
        """Forgets the tasks and the thread of the epoch before."""
        self.thread, self.ended, self.doing = None, False, None
        self.seconds.clear()
        self.tasks.clear()

    @contextmanager
    def at(self, phase: str, position: int) -> Iterator[None]:
        """Records a task for a batch while the block runs."""
        began = self.clock()
        self.doing = (phase, position, began)
        with self.timeline.span(self.name, phase, position):
            yield
        # `doing` stays if the block raises: the error names the task.
        self.seconds[phase] += self.clock() - began
        self.tasks[phase] += 1
        self.doing = None


class Watch:
    """Finds roles that are at fault: a task may take `limit` seconds, by a clock in seconds."""

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic):
        self.limit, self.clock = limit, clock
        self.tick = min(MOST_TICK, limit / 4)
        self.activities: list[Activity] = []

    def check(self) -> None:
        """Raises ExecutorFault if a role takes too long, or its thread is gone."""
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


@contextmanager
def naming(role: Any) -> Iterator[None]:
    """Raises the error of a role that works on this thread as `fault_of` reports it, with the activity that was at work."""
    try:
        yield
    except BaseException as error:
        activities = [activity for activity, _ in role.loops()]
        raise fault_of(next((each for each in activities if each.doing is not None), activities[0]), error)  # noqa: B904


def fault_of(activity: Activity, error: BaseException) -> BaseException:
    """Returns the error that reports a role's exception: an input error with the role's name, or the exception if it ends the program.

    A refusal of the machine keeps its remedy; a defect's traceback is printed, since it would be lost otherwise.
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
