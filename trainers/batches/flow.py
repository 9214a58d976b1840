"""A flow: tasks that prepare mini-batches on threads ahead of the training step, in order and within bounds.

A `Task` is one piece of work for every batch. It runs on its own threads, its lanes; lane i works on every lanes-th batch. Tasks may stand
one behind the other (`after`), or side by side; a task after several tasks joins them, and so does the step.

    sample, gather                              online
    read, gather                                from stored samples
    load graph ------------+
    load rows -> assemble -+->                  from disk

A queue keeps the order of batches and is bounded in bytes: the capacity is divided equally among the tasks. Workers finish batches in any
order. A worker asks for the bytes of its batch before it gathers the rows, and is admitted only in order and only when they fit beside the
batches that wait already. So the bound holds at every moment, at any number of workers, and the batch that the step waits for can never be
locked out by later ones. If the bound may grow, each task's part grows to two batches of the largest size, so that one can be prepared
while another is trained on. An error in any task ends the flow and reaches the step; when the step stops asking, all threads end.
"""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from graphmill.kernels.sampling.epoch_plan import PlannedBatch
from graphmill.trainers.devices.protocol import OverBudget
from graphmill.trainers.record.ledger import STEP, WAIT, Timeline

Item = TypeVar("Item")


class Closed(Exception):
    """The consumer has gone; workers stop."""


class Closable:
    """Waits of several threads for one another, notified by a condition (None: its own), which end when it is closed."""

    def __init__(self, changed: threading.Condition | None = None):
        self.closed, self._changed = False, changed or threading.Condition()

    def close(self) -> None:
        """Ends all waits."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def _await(self, ready: Callable[[], bool]) -> None:
        """Waits until something is ready, or raises `Closed`; the thread holds the condition."""
        self._changed.wait_for(lambda: self.closed or ready())
        if self.closed:
            raise Closed


class ByteQueue(Closable, Generic[Item]):
    """Items that are admitted one after the other, by number, within a bound on their bytes.

    Args:
        capacity_bytes: bound on the bytes of all admitted and not yet released items.
        most_bytes: bound up to which the capacity grows, for two items of the largest size.
    """

    def __init__(
        self, capacity_bytes: int, most_bytes: int, first: int = 0, changed: threading.Condition | None = None
    ):
        super().__init__(changed)
        self.capacity_bytes, self.most_bytes, self._turn = capacity_bytes, most_bytes, first
        self.used_bytes = self.peak_bytes = 0
        self._items: dict[int, tuple[Item, int]] = {}

    def put(self, number: int, item: Item, num_bytes: int) -> None:
        """Delivers an admitted item."""
        with self._changed:
            self._items[number] = (item, num_bytes)
            self._changed.notify_all()

    def _require(self, num_bytes: int, what: str) -> None:
        """Raises `OverBudget` if an item alone exceeds what the capacity may grow to."""
        if num_bytes > self.most_bytes:
            raise OverBudget(num_bytes, self.most_bytes, what, "lower `batch_size` or `fanouts`")

    def _grow(self, num_bytes: int) -> None:
        """Lets the capacity hold two items of this size, so that one is made while another is used."""
        self.capacity_bytes = max(self.capacity_bytes, min(2 * num_bytes, self.most_bytes))

    def _book(self, num_bytes: int) -> None:
        """Books an item that is admitted, after which it is the next one's turn."""
        self._turn += 1
        self.used_bytes += num_bytes
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        self._changed.notify_all()


class OrderedByteQueue(ByteQueue[Item]):
    """Items numbered 0, 1, ... that are delivered in that order.

    Args:
        capacity_bytes: bound on the sum of all admitted and not yet released items, of all queues that share it.
        most_items: bound on the number of items that were admitted and not yet taken, None for no bound.
        share: number of queues that share the capacity in equal parts.
        most_bytes: bound up to which the capacity grows, for two items of the largest size; None for the capacity itself.
        eager_bytes: bytes up to which items are admitted whatever their number is.
    """

    def __init__(
        self,
        capacity_bytes: int,
        most_items: int | None = None,
        share: int = 1,
        most_bytes: int | None = None,
        eager_bytes: int = 0,
    ):
        super().__init__(capacity_bytes // share, max(capacity_bytes, most_bytes or 0) // share)
        self.most_items, self._eager_bytes, self._num_waiting = most_items, eager_bytes, 0
        self._error: BaseException | None = None

    def admit(self, number: int, num_bytes: int) -> None:
        """Waits for the item's turn and for its bytes; raises OverBudget if it alone can never fit, and Closed if the consumer has gone."""
        self._require(num_bytes, "a batch in the queue")
        with self._changed:
            self._grow(num_bytes)
            self._await(lambda: number == self._turn and self._fits(num_bytes))
            self._num_waiting += 1
            self._book(num_bytes)

    def take(self, number: int) -> tuple[Item, int]:
        """Waits for item `number` and returns it with its bytes; they stay booked until `release`.

        Raises:
            BaseException: the error of a worker.
            Closed: the consumer has gone, and the caller is a stage before it.
        """
        with self._changed:
            self._changed.wait_for(lambda: number in self._items or self.closed)
            if number not in self._items:
                raise self._error or Closed
            self._num_waiting -= 1
            self._changed.notify_all()
            return self._items.pop(number)

    def release(self, num_bytes: int) -> None:
        """Returns the bytes of a taken item that is no longer held."""
        with self._changed:
            self.used_bytes -= num_bytes
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Ends the queue with a worker's error; the consumer gets it when it waits for an item that will not come."""
        with self._changed:
            self._error = self._error or error
            self.closed = True
            self._changed.notify_all()

    def _fits(self, num_bytes: int) -> bool:
        used = self.used_bytes + num_bytes
        open_place = self.most_items is None or self._num_waiting < self.most_items or used <= self._eager_bytes
        return open_place and used <= self.capacity_bytes


class Work(NamedTuple):
    """One phase of a task."""

    # Its name in the time-line.
    phase: str
    # (lane, planned batch, value) -> value. The value of a task's first phase is the result of the task before it, a tuple
    # of results after several, None after none.
    call: Callable[[int, PlannedBatch, Any], Any]


@dataclass(frozen=True, kw_only=True)
class Task:
    """One piece of work for every batch."""

    # The name of its lane in the time-line.
    name: str
    # (planned batch, value) -> bytes of the result; called between `prepare` and `work`.
    num_bytes: Callable[[PlannedBatch, Any], int]
    # The work before the bytes are known; its value waits on the thread, outside the bound.
    prepare: Work | None = None
    # The work that makes the result, inside the bound; without it the prepared value is the result.
    work: Work | None = None
    # Names of the tasks whose results it uses.
    after: tuple[str, ...] = ()
    # Number of threads; 0 for a single thread whose lane has no number.
    lanes: int = 0
    # Bound on the number of results that wait or are made, None for none.
    most_waiting: int | None = None
    # Bytes of results up to which that bound does not hold.
    eager_bytes: int = 0
    # Number of batches by which it may run ahead of the batch that the step asks for; 0 begins when its batch is asked for, that
    # is after the update before it. None for no bound.
    ahead: int | None = None


def flow(
    planned: Sequence[PlannedBatch],
    tasks: Sequence[Task],
    queue_bytes: int,
    timeline: Timeline,
    most_bytes: int | None = None,
    in_turn: bool = False,
    waits: Sequence[Closable] = (),
) -> Generator[tuple[PlannedBatch, tuple[Any, ...]], None, None]:
    """Yields every planned batch with the results of the tasks that no other task takes, in the order of both lists.

    The bytes of the results are released when the next batch is asked for, so no reference to them may outlive that. Closing the generator
    ends all threads and waits for them; a caller that may stop early closes it before it frees what the threads use.

    Args:
        planned: batches in the order of the steps; positions may be left out.
        tasks: the tasks, each after those that it names.
        queue_bytes: bound on all results that wait or are being used.
        timeline: receives the spans of all lanes, and of the step while it waits.
        most_bytes: bound up to which `queue_bytes` grows if a task's part of it does not hold two results; None for no growth.
        in_turn: starts no threads: the first lane of each task works on a batch when it is asked for.
        waits: waits of the step besides that for a batch; they end with the flow, and when a task fails.

    Raises:
        BaseException: the error of a task.
    """
    if planned:
        yield from _Flow(planned, tasks, queue_bytes, timeline, most_bytes, waits).run(in_turn)


class _Flow:
    def __init__(
        self,
        planned: Sequence[PlannedBatch],
        tasks: Sequence[Task],
        queue_bytes: int,
        timeline: Timeline,
        most_bytes: int | None,
        waits: Sequence[Closable],
    ):
        self.planned, self.tasks, self.timeline, self.waits = planned, tasks, timeline, waits
        # Queues and tasks count the batches of the flow from 0; the time-line names each by its position in the epoch.
        self.queues: dict[str, OrderedByteQueue[Any]] = {
            task.name: OrderedByteQueue(
                queue_bytes,
                most_items=task.most_waiting,
                share=len(tasks),
                most_bytes=most_bytes,
                eager_bytes=task.eager_bytes,
            )
            for task in tasks
        }
        self.asked = _Asked()
        taken = {name for task in tasks for name in task.after}
        self.ends = [self.queues[task.name] for task in tasks if task.name not in taken]

    def run(self, in_turn: bool) -> Iterator[tuple[PlannedBatch, tuple[Any, ...]]]:
        lanes = [] if in_turn else [(task, lane) for task in self.tasks for lane in range(max(1, task.lanes))]
        threads = [threading.Thread(target=self._guarded, args=each, daemon=True) for each in lanes]
        for thread in threads:
            thread.start()
        try:
            for place, item in enumerate(self.planned):
                with self.timeline.span(STEP, WAIT, item.position):
                    self.asked.ask(place)
                    for task in self.tasks if in_turn else ():
                        self._prepare(task, 0, place)
                    taken = [queue.take(place) for queue in self.ends]
                sizes = [num_bytes for _, num_bytes in taken]
                results = tuple(result for result, _ in taken)
                del taken
                yield item, results
                del results
                for queue, num_bytes in zip(self.ends, sizes, strict=True):
                    queue.release(num_bytes)
        finally:
            for wait in (self.asked, *self.waits, *self.queues.values()):
                wait.close()
            for thread in threads:
                thread.join()

    def _guarded(self, task: Task, lane: int) -> None:
        try:
            for place in range(lane, len(self.planned), max(1, task.lanes)):
                self._prepare(task, lane, place)
        except Closed:
            pass
        except BaseException as error:  # it belongs to the thread that trains
            for queue in self.queues.values():
                queue.fail(error)
            for wait in self.waits:
                wait.close()

    def _prepare(self, task: Task, lane: int, place: int) -> None:
        """Does a task's work for the batch at a place of the flow, and puts the result in the task's queue."""
        span, name = self.timeline.span, f"{task.name} {lane}" if task.lanes else task.name
        queue, sources = self.queues[task.name], [self.queues[each] for each in task.after]
        item = self.planned[place]
        if task.ahead is not None or sources:
            with span(name, WAIT, item.position):
                if task.ahead is not None:
                    self.asked.wait_for(place - task.ahead)
                taken = [source.take(place) for source in sources]
        else:
            taken = []
        value = tuple(each for each, _ in taken) if len(taken) > 1 else taken[0][0] if taken else None
        sizes = [num_bytes for _, num_bytes in taken]
        del taken
        if task.prepare is not None:
            with span(name, task.prepare.phase, item.position):
                value = task.prepare.call(lane, item, value)
        num_bytes = task.num_bytes(item, value)
        with span(name, WAIT, item.position):
            queue.admit(place, num_bytes)
        if task.work is not None:
            with span(name, task.work.phase, item.position):
                value = task.work.call(lane, item, value)
        for source, size in zip(sources, sizes, strict=True):
            source.release(size)
        queue.put(place, value, num_bytes)


class _Asked(Closable):
    """The place in the flow of the batch that the step asked for last."""

    def __init__(self):
        super().__init__()
        self._place = -1

    def ask(self, place: int) -> None:
        with self._changed:
            self._place = place
            self._changed.notify_all()

    def wait_for(self, place: int) -> None:
        with self._changed:
            self._await(lambda: self._place >= place)
