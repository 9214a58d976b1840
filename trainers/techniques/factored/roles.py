"""Samplers and trainers (FGNN, section 5.2, Figures 8 and 9), and devices that are both in turn.

    SamplerRole   while a batch is left: draw, mark the cached rows or load the packed ones, put into the global queue; then help as a
                  standby trainer
    TrainerRole   one thread takes a batch and extracts its rows, another trains on it: extraction is hidden behind training
    TimeShared    draws, marks, extracts and trains, one after the other: the baseline of FGNN, section 3

Each loop runs on a thread and ends when no batch is left, or with `Closed` if the epoch ends before that.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from graphmill.kernels.cuda.device import on_device
from graphmill.kernels.rows.aligned import BufferPool
from graphmill.kernels.sampling.epoch_plan import PlannedBatch
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.kernels.types import Array
from graphmill.trainers.batches.batch import (
    Batching,
    Drawer,
    MiniBatch,
    batch_bytes,
    draw_batch,
    extract_batch,
    fetch_blocks,
    mark_batch,
)
from graphmill.trainers.batches.flow import Closed
from graphmill.trainers.devices.accelerator import Accelerator
from graphmill.trainers.models.layer import Between
from graphmill.trainers.record.ledger import SYNCHRONISE, TRAIN, WAIT, Ledger
from graphmill.trainers.rows.source import FeatureSource
from graphmill.trainers.techniques.factored.places import TopologyParts
from graphmill.trainers.techniques.factored.queue import GlobalQueue, Result, Updates
from graphmill.trainers.techniques.factored.replica import Replica, Weights
from graphmill.trainers.techniques.factored.watch import Activity

SAMPLE, MARK, COPY, EXTRACT = "sample", "mark", "copy", "extract"
"""Phases besides training: S, M and C of FGNN's Table 5, and E."""
LOAD = "load rows"
"""The phase of packed rows, which a sampler loads from disk behind the batch's place in the queue."""


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """The shared objects of the roles in one epoch.

    Attributes:
        weights: function that returns the weights after the last update.
    """

    number: int
    planned: dict[int, PlannedBatch]
    queue: GlobalQueue
    updates: Updates
    changed: threading.Condition
    weights: Callable[[], Weights]


class BatchDrawer:
    """Draws and marks batches.

    Args:
        sampler: draws the blocks, on the host or on an accelerator, or reads stored ones.
        features: the source of rows, which marks the cached ones of batches on the host; None if rows are found later.
        parts: parts of a topology that is larger than the device, else None.
        leaves: the accelerator that draws if batches go to others, through pinned memory of the host; None if it trains on them itself.
    """

    def __init__(
        self,
        batching: Batching,
        sampler: AnySampler | Drawer,
        features: FeatureSource | None,
        parts: TopologyParts | None = None,
        leaves: Accelerator | None = None,
    ):
        self.batching, self.sampler, self.features, self.parts, self.leaves = batching, sampler, features, parts, leaves

    def __call__(self, activity: Activity, item: PlannedBatch, epoch: int) -> MiniBatch:
        """Returns a batch without rows."""
        with activity.at(SAMPLE, item.position):
            batch = draw_batch(self.batching, self.sampler, item, epoch)
            if self.parts is not None:
                self.parts.load(batch.blocks)
        if self.leaves is not None:
            assert batch.moved is not None
            with activity.at(COPY, item.position), self.leaves.preparing():
                batch.join()
                batch.blocks = fetch_blocks(batch.blocks, self.leaves, batch.moved)
            batch.launches = None  # the blocks are on the host
        if self.features is not None and not on_device(batch.input_ids):
            with activity.at(MARK, item.position):
                mark_batch(batch, self.features)
        return batch

    def num_bytes(self, batch: MiniBatch) -> int:
        """Returns the bytes of a batch in the queue: its blocks, slots and staged rows."""
        return batch_bytes(batch, 0) + (0 if self.features is None else self.features.staged_bytes(batch.key))

    def load(self, activity: Activity, batch: MiniBatch) -> None:
        """Loads the rows of a batch that are on disk, so that trainers find them in memory; a source that stages nothing does nothing."""
        if self.features is not None and self.features.staged_bytes(batch.key):
            with activity.at(LOAD, batch.position):
                batch.staged = self.features.stage(batch.key)


class Ready(NamedTuple):
    """A batch with its rows on the device, the ledger of its transfers, and ids[n], the nodes of the rows."""

    batch: MiniBatch
    moved: Ledger
    input_ids: Array


class ReplicaTraining:
    """Extracts the rows of batches and computes their gradients.

    Args:
        remark: whether the samplers' marks are for another cache, so that rows are marked anew.

    Attributes:
        inputs: lends memory for input rows.
        between: a function between the layers of the replica, or None.
    """

    between: Between | None

    def __init__(self, batching: Batching, replica: Replica, features: FeatureSource, *, remark: bool = False):
        self.batching, self.replica, self.features, self.remark = batching, replica, features, remark
        self.inputs, self.between = BufferPool(), None

    def extract(self, activity: Activity, batch: MiniBatch, epoch: Epoch | None = None) -> Ready:
        """Gathers a batch's rows on the device, for an epoch, or None if it is only measured."""
        with activity.at(EXTRACT, batch.position):
            if self.remark:
                batch.slots = None
            input_ids = batch.input_ids  # where it was drawn; those of the result are on the replica's device
            staged = batch.staged
            batch, moved = extract_batch(self.batching, self.features, self.replica.device, self.inputs, batch)
            if staged is not None:
                staged.release()
            self.replica.device.adopt([batch.x], "inputs")
            return Ready(batch, moved, input_ids)

    def train(self, activity: Activity, epoch: Epoch, ready: Ready) -> None:
        """Waits until the batch may be trained on, and reports its gradients to the main thread."""
        batch = ready.batch
        with activity.timeline.span(activity.name, SYNCHRONISE, batch.position):
            behind = epoch.updates.wait_for_weights(batch.position)
        with activity.at(TRAIN, batch.position):
            batch.join()
            self.replica.follow(epoch.weights())
            done, gradients, norm_inputs = self.replica(batch, self.between)
            kept = self.kept(batch)
        result = Result(done, gradients, ready.input_ids, ready.moved, norm_inputs, behind, kept)
        epoch.updates.report(batch.position, result)

    def kept(self, batch: MiniBatch) -> Any:
        """Returns results besides the gradients of a batch whose backward pass is done, for the main thread; by default there are none."""
        return None


class SamplerRole:
    """Draws batches into the queue, and trains when no batch is left to draw.

    Args:
        standby: its training as a standby trainer; None if it does not switch.
        worthwhile: (batches that wait, running trainers) -> whether switching pays.
    """

    def __init__(
        self,
        activity: Activity,
        drawing: BatchDrawer,
        standby: ReplicaTraining | None,
        worthwhile: Callable[[int, int], bool],
    ):
        self.activity, self.drawing, self.standby, self.worthwhile = activity, drawing, standby, worthwhile

    def loops(self) -> Iterator[tuple[Activity, Callable[[Epoch], None]]]:
        """Yields its thread."""
        yield self.activity, self.run

    def run(self, epoch: Epoch) -> None:
        """Draws as long as a batch is left; then trains as long as that pays."""
        queue = epoch.queue
        while self.draw(epoch):
            pass
        while self.standby is not None and (taken := queue.take_worthwhile(self, self.worthwhile)) is not None:
            self._train(epoch, taken)
            del taken

    def draw(self, epoch: Epoch) -> bool:
        """Draws the next batch into the queue; returns False if none is left."""
        queue = epoch.queue
        if (position := queue.next_task()) is None:
            return False
        batch = self.drawing(self.activity, epoch.planned[position], epoch.number)
        num_bytes = self.drawing.num_bytes(batch)
        while not self._admitted(queue, position, num_bytes):
            # The queue is full and no device trains, so this one must.
            self._train(epoch, queue.take_now(self))
        self.drawing.load(self.activity, batch)
        with self.activity.at(COPY, position):
            queue.put(position, batch, num_bytes)
        return True

    def _admitted(self, queue: GlobalQueue, position: int, num_bytes: int) -> bool:
        with self.activity.timeline.span(self.activity.name, WAIT, position):
            return queue.admit(position, num_bytes, may_switch=self.standby is not None)

    def _train(self, epoch: Epoch, taken: tuple[int, Any, int] | None) -> None:
        if taken is None:
            return
        assert self.standby is not None
        ready, num_bytes = self.standby.extract(self.activity, taken[1], epoch), taken[2]
        del taken
        self.standby.train(self.activity, epoch, ready)
        del ready
        epoch.queue.finished(self, num_bytes)


class TrainerRole:
    """Takes batches from the queue and trains on them, while the rows of the next are extracted."""

    def __init__(self, activity: Activity, extracting: Activity, training: ReplicaTraining):
        self.activity, self.extracting, self.training = activity, extracting, training
        self._ready: deque[Any] = deque()

    def begin(self, epoch: Epoch) -> None:
        """Starts to take batches from the epoch's queue."""
        self._ready.clear()  # an epoch that was ended early may have left some
        epoch.queue.join(self)

    def loops(self) -> Iterator[tuple[Activity, Callable[[Epoch], None]]]:
        """Yields its threads."""
        yield self.extracting, self.extract
        yield self.activity, self.train

    def extract(self, epoch: Epoch) -> None:
        """Extracts the rows of batch after batch."""
        left = True
        while left:
            ready = self._extracted(epoch)
            left = ready is not None
            with epoch.changed:
                self._ready.append(ready)
                epoch.changed.notify_all()
            del ready

    def turn(self, epoch: Epoch) -> None:
        """Extracts the rows of the next batch and trains on it, on one thread."""
        with self.activity.timeline.span(self.activity.name, WAIT, epoch.queue.handed):
            taken = self._extracted(epoch)
        assert taken is not None, "its batch is drawn"
        ready, num_bytes = taken
        del taken
        self.training.train(self.activity, epoch, ready)
        del ready
        epoch.queue.finished(self, num_bytes)

    def _extracted(self, epoch: Epoch) -> tuple[Ready, int] | None:
        """Returns the next batch with its rows, and its bytes in the queue; None if none is left."""
        with self.extracting.timeline.span(self.extracting.name, WAIT, epoch.queue.handed):
            taken = epoch.queue.take(self)
        return None if taken is None else (self.training.extract(self.extracting, taken[1], epoch), taken[2])

    def train(self, epoch: Epoch) -> None:
        """Trains on batch after batch."""
        while True:
            with self.activity.timeline.span(self.activity.name, WAIT, epoch.queue.handed), epoch.changed:
                epoch.changed.wait_for(lambda: self._ready or epoch.queue.closed)
                if epoch.queue.closed:
                    raise Closed
                taken = self._ready.popleft()
            if taken is None:
                return
            ready, num_bytes = taken
            del taken
            self.training.train(self.activity, epoch, ready)
            del ready
            epoch.queue.finished(self, num_bytes)


class TimeShared:
    """Does all stages of its batches on one device, one after the other."""

    def __init__(self, activity: Activity, drawing: BatchDrawer, training: ReplicaTraining):
        self.activity, self.drawing, self.training = activity, drawing, training

    def loops(self) -> Iterator[tuple[Activity, Callable[[Epoch], None]]]:
        """Yields its thread."""
        yield self.activity, self.run

    def run(self, epoch: Epoch) -> None:
        """Draws, extracts and trains as long as a batch is left."""
        while self.turn(epoch):
            pass

    def turn(self, epoch: Epoch) -> bool:
        """Draws, extracts and trains on the next batch; returns False if none is left."""
        if (position := epoch.queue.next_task()) is None:
            return False
        batch = self.drawing(self.activity, epoch.planned[position], epoch.number)
        self.training.train(self.activity, epoch, self.training.extract(self.activity, batch, epoch))
        return True
