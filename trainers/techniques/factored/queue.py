"""The global queue between samplers and trainers, in the host's memory (FGNN, section 5.2, Figure 8).

    next_task -> a sampler draws -> admit, put  ==>  take -> a trainer extracts and trains -> finished

Tasks are handed out dynamically on both sides: a sampler gets the next batch that has not been drawn, a trainer the next that has not been
taken. Both go through the batches in their order. So the batch that the next update waits for is always the first to get memory and a
trainer, and the first in that trainer; no bound on the queue and no number of roles can lock it out.

Bound: the bytes of all admitted batches that are not finished; a batch of any size fits alone up to `most_bytes`. With an unbounded queue
all samples of an epoch may wait here, as in FGNN.

Distribution: a trainer has at most `DEPTH` batches, one that it trains on and one that it extracts. The next batch goes to trainers that
have the fewest, and among these to those that took the fewest of its step group: otherwise a trainer that is quick to ask would queue
several batches of a group, while the other trainers idle until the update.

Gradients on their way to the update, and updates on their way back to the replicas.

A replica begins a batch of step group g when at least g - k updates of the epoch are made, where k is the bound on staleness: with k = 0 it
sees the weights that one model would have, with k > 0 its gradient may lack up to the last k updates. The main thread takes gradients in
the order of batches, whichever replica computed them.
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from graphmill.kernels.types import Array
from graphmill.trainers.batches.flow import ByteQueue, Closable, Closed
from graphmill.trainers.loop.executor import Done, Gradients
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.techniques.factored.settings import DEPTH
from graphmill.trainers.techniques.factored.watch import Watch


class GlobalQueue(ByteQueue[Any]):
    """Sampled batches of one epoch.

    Args:
        first, end: position of the first batch that is handed out, and the end of the positions.
        group: batches per update.
        capacity_bytes: bound on the bytes of admitted and unfinished batches.
        most_bytes: bound up to which `capacity_bytes` grows for two batches of the largest size.

    Attributes:
        handed: position of the next batch for a trainer.
        used_bytes, peak_bytes: bytes of admitted and unfinished batches, and their peak.
    """

    def __init__(
        self, first: int, end: int, group: int, capacity_bytes: int, most_bytes: int, changed: threading.Condition
    ):
        super().__init__(capacity_bytes, most_bytes, first, changed)
        self._group, self._took = group, Counter[object]()
        self.end, self._task, self.handed = end, first, first
        self._outstanding: dict[object, int] = {}

    def join(self, trainer: object) -> None:
        """Registers a trainer, which takes batches from now on."""
        with self._changed:
            self._outstanding[trainer] = 0

    def next_task(self) -> int | None:
        """Returns the position of the next batch to draw, None if all are drawn or being drawn."""
        with self._changed:
            if self.closed:
                raise Closed
            if self._task == self.end:
                return None
            self._task += 1
            return self._task - 1

    def admit(self, position: int, num_bytes: int, *, may_switch: bool = False) -> bool:
        """Waits for a batch's turn and bytes.

        Args:
            may_switch: whether the sampler can train instead of waiting if no trainer runs.

        Returns:
            Whether it was admitted; False if the queue is full, no trainer runs and the caller may switch.

        Raises:
            OverBudget: the batch alone exceeds what the queue may grow to.
            Closed: the epoch has ended.
        """
        self._require(num_bytes, f"batch {position} in the queue")
        with self._changed:
            self._grow(num_bytes)

            def fits() -> bool:
                return position == self._turn and self.used_bytes + num_bytes <= self.capacity_bytes

            def idle() -> bool:
                return may_switch and not self._outstanding and self.handed in self._items

            self._await(lambda: fits() or idle())
            if not fits():
                return False
            self._book(num_bytes)
            return True

    def take(self, trainer: object) -> tuple[int, Any, int] | None:
        """Waits until the trainer may take the next batch; returns (position, batch, bytes), None if none is left, or raises `Closed`."""
        with self._changed:
            self._await(lambda: self.handed == self.end or (self.handed in self._items and self._eligible(trainer)))
            return self._next(trainer)

    def take_worthwhile(self, trainer: object, worthwhile: Callable[[int, int], bool]) -> tuple[int, Any, int] | None:
        """Waits like `take` for a standby trainer, which has no batch, as long as taking one pays.

        Args:
            worthwhile: (batches that wait, running trainers) -> whether it should take one.

        Returns:
            (position, batch, bytes), or None if none is left, or if all are drawn and taking one does not pay.
        """

        taking = False

        def decided() -> bool:
            # Evaluated once per wake-up: the times of stages change while others work.
            nonlocal taking
            if self.handed == self.end:
                return True
            worth, drawn = worthwhile(len(self._items), len(self._outstanding)), self._turn == self.end
            taking = worth and self.handed in self._items
            return taking or (drawn and not worth)

        with self._changed:
            self._await(decided)
            return self._next(trainer) if taking else None

    def take_now(self, trainer: object) -> tuple[int, Any, int] | None:
        """Returns the next batch for a standby trainer whose sampler waits for space, or None if another trainer has just taken it."""
        with self._changed:
            return self._next(trainer) if self.handed in self._items else None

    def finished(self, trainer: object, num_bytes: int) -> None:
        """Frees the bytes of a batch that a trainer has finished."""
        with self._changed:
            if trainer in self._outstanding:  # a standby trainer has not joined
                self._outstanding[trainer] -= 1
            self.used_bytes -= num_bytes
            self._changed.notify_all()

    def _next(self, trainer: object) -> tuple[int, Any, int] | None:
        if self.closed:
            raise Closed
        if self.handed == self.end:
            return None
        item, num_bytes = self._items.pop(self.handed)
        if self.handed % self._group == 0:
            self._took.clear()
        self._took[trainer] += 1
        self.handed += 1
        if trainer in self._outstanding:
            self._outstanding[trainer] += 1
        self._changed.notify_all()
        return self.handed - 1, item, num_bytes

    def _eligible(self, trainer: object) -> bool:
        return self._outstanding[trainer] < DEPTH and self._rank(trainer) == min(map(self._rank, self._outstanding))

    def _rank(self, trainer: object) -> tuple[int, int]:
        # At the first batch of a group the counts are still those of the group before.
        took = self._took[trainer] if self.handed % self._group else 0
        return self._outstanding[trainer], took


class Result(NamedTuple):
    """The result of a batch on a replica.

    Attributes:
        input_ids: ids[n], the nodes whose rows it read; on the device if the batch was drawn there.
        norm_inputs: the input rows of each batch normalisation, in the order of the model's modules.
        behind: number of updates that the weights lacked.
        kept: what a technique keeps of the batch besides, for the main thread.
    """

    done: Done
    gradients: Gradients
    input_ids: Array
    moved: Ledger
    norm_inputs: Sequence[Tensor]
    behind: int
    kept: Any = None


class Updates(Closable):
    """Results and updates of one epoch.

    Args:
        made: number of updates of the epoch that are made already.
        group: batches per update.
        staleness: k.
    """

    def __init__(self, made: int, group: int, staleness: int, changed: threading.Condition, watch: Watch):
        super().__init__(changed)
        self.made, self.group, self.staleness, self._watch = made, group, staleness, watch
        self._results: dict[int, Result] = {}
        self._error: BaseException | None = None

    def wait_for_weights(self, position: int) -> int:
        """Waits until a batch may be trained on; returns the number of updates that the weights lack, or raises Closed."""
        group = position // self.group
        with self._changed:
            self._await(lambda: self.made >= group - self.staleness)
            return group - self.made

    def report(self, position: int, result: Result) -> None:
        """Hands the result of a batch to the main thread."""
        with self._changed:
            self._results[position] = result
            self._changed.notify_all()

    def take(self, position: int) -> Result:
        """Waits for the result of a batch; raises the error that ended a role, or ExecutorFault."""
        with self._changed:
            while position not in self._results:
                if self._error is not None:
                    raise self._error
                self._watch.check()
                self._changed.wait(self._watch.tick)
            return self._results.pop(position)

    def update_made(self) -> None:
        """Counts an update that the main thread has made."""
        with self._changed:
            self.made += 1
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Passes the error of a role to the main thread."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()
