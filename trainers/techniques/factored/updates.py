"""Gradients on their way to the update, and updates on their way back to the replicas.

A replica begins a batch of step group g when at least g - k updates of the epoch are made, where k is the bound on staleness: with k = 0 it
sees the weights that one model would have, with k > 0 its gradient may lack up to the last k updates. The main thread takes gradients in
the order of batches, whichever replica computed them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from graphmill.kernels.types import Array
from graphmill.trainers.batches.flow import Closed
from graphmill.trainers.loop.executor import Done, Gradients
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.techniques.factored.watch import Watch


class Result(NamedTuple):
    """The result of a batch on a replica.

    Attributes:
        done: the finished batch.
        input_ids: ids[n], the nodes whose rows it read; on the device if the batch was drawn there.
        moved: the ledger of its preparation.
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


class Updates:
    """Results and updates of one epoch.

    Args:
        made: number of updates of the epoch that are made already.
        group: batches per update.
        staleness: k.
        changed: the epoch's condition, notified of every change.
        watch: checks the roles while the main thread waits.
    """

    def __init__(self, made: int, group: int, staleness: int, changed: threading.Condition, watch: Watch):
        self.made, self.group, self.staleness, self._changed, self._watch = made, group, staleness, changed, watch
        self._results: dict[int, Result] = {}
        self._error: BaseException | None = None
        self._closed = False

    def wait_for_weights(self, position: int) -> int:
        """Waits until a batch may be trained on; returns the number of updates that the weights lack.

        Raises:
            Closed: the epoch has ended.
        """
        group = position // self.group
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self.made >= group - self.staleness)
            if self._closed:
                raise Closed
            return group - self.made

    def report(self, position: int, result: Result) -> None:
        """Hands the result of a batch to the main thread."""
        with self._changed:
            self._results[position] = result
            self._changed.notify_all()

    def take(self, position: int) -> Result:
        """Waits for the result of a batch.

        Raises:
            ExecutorFault: a role is at fault.
            BaseException: the error that ended a role.
        """
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

    def close(self) -> None:
        """Ends all waits: the epoch has ended."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
