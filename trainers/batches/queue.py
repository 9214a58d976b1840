"""A queue that keeps order and is bounded in bytes.

Workers finish mini-batches in any order; the step takes them in order. A worker asks for the bytes of its batch before it gathers the rows,
and is admitted only in order and only when they fit beside the batches that wait already. So the bound holds at every moment, at any number
of workers, and the batch that the step waits for can never be locked out by later ones. If the bound may grow, it grows
once to two batches of the largest size, so that one can be prepared while another is trained on.
"""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

from graphmill.trainers.devices.protocol import OverBudget

Item = TypeVar("Item")


class Closed(Exception):
    """The consumer has gone; workers stop."""


class OrderedByteQueue(Generic[Item]):
    """Items numbered 0, 1, ... that are delivered in that order.

    Args:
        capacity_bytes: bound on the sum of all admitted and not yet released items, of all queues that share it.
        most_items: bound on the number of items that were admitted and not yet taken, None for no bound.
        share: number of queues that share the capacity in equal parts.
        most_bytes: bound up to which the capacity grows, for two items of the largest size; None for the capacity itself.
    """

    def __init__(
        self,
        capacity_bytes: int,
        most_items: int | None = None,
        share: int = 1,
        most_bytes: int | None = None,
    ):
        self.capacity_bytes, self.most_items, self._share = capacity_bytes // share, most_items, share
        self._most_bytes = max(capacity_bytes, most_bytes or 0) // share
        self._num_waiting = 0
        self.used_bytes = 0
        self.peak_bytes = 0
        self._turn = 0
        self._items: dict[int, tuple[Item, int]] = {}
        self._error: BaseException | None = None
        self._closed = False
        self._changed = threading.Condition()

    def admit(self, number: int, num_bytes: int) -> None:
        """Waits for the item's turn and for its bytes.

        Raises:
            OverBudget: the item alone exceeds what the capacity may grow to.
            Closed: the consumer has gone.
        """
        if num_bytes > self._most_bytes:
            raise OverBudget(num_bytes, self._most_bytes, "a batch in the queue", "lower `batch_size` or `fanouts`")
        with self._changed:
            if num_bytes > self.capacity_bytes:
                self.capacity_bytes = min(2 * num_bytes, self._most_bytes)
            self._changed.wait_for(lambda: self._closed or (number == self._turn and self._fits(num_bytes)))
            if self._closed:
                raise Closed
            self._turn += 1
            self._num_waiting += 1
            self.used_bytes += num_bytes
            self.peak_bytes = max(self.peak_bytes, self.used_bytes)
            self._changed.notify_all()

    def put(self, number: int, item: Item, num_bytes: int) -> None:
        """Delivers an admitted item."""
        with self._changed:
            self._items[number] = (item, num_bytes)
            self._changed.notify_all()

    def take(self, number: int) -> tuple[Item, int]:
        """Waits for item `number` and returns it with its bytes; they stay booked until `release`.

        Raises:
            BaseException: the error of a worker.
            Closed: the consumer has gone, and the caller is a stage before it.
        """
        with self._changed:
            self._changed.wait_for(lambda: number in self._items or self._closed)
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
            self._closed = True
            self._changed.notify_all()

    def close(self) -> None:
        """Tells workers that no more items will be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _fits(self, num_bytes: int) -> bool:
        open_place = self.most_items is None or self._num_waiting < self.most_items
        return open_place and self.used_bytes + num_bytes <= self.capacity_bytes
