"""Sources of mini-batches: the base class, which prepares batches ahead of the step, and the online source.

A source defines the tasks that prepare a batch, and joins the results of the last ones; `PreparedSource` runs them ahead of the step.

Online, each thread owns a sampler and works on the batches whose number is its own modulo the number of threads. Every random decision is
keyed by the batch, so any number of threads delivers the same bytes. A device draws on one thread (trainers/batches/on_device.py).

Memory: the queue's bound, one sampled but not yet admitted batch of blocks per thread, and 8 bytes per node of scratch per thread. Input
rows lie in buffers from a pool, which may be an eighth larger than the rows; returned buffers take no memory beyond what was lent at once.
"""

from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

from graphmill.kernels.rows.aligned import BufferPool
from graphmill.kernels.sampling.epoch_plan import EpochPlan, PlannedBatch
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.trainers.batches.batch import (
    Batching,
    Drawer,
    MiniBatch,
    batch_bytes,
    draw_batch,
    extract_batch,
    lanes_of,
    mark_batch,
)
from graphmill.trainers.batches.flow import Closable, Task, Work, flow
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.source import FeatureSource

SAMPLER = "sampler"


class PreparedSource:
    """Supplies mini-batches that the tasks of a flow prepare ahead of the step.

    Attributes:
        num_parts, parts: number of parts of the plan, and those whose batches this source supplies.
        files: context that holds open the files that the tasks of an epoch read.
        shared: number of rows that are held in memory for all batches of an evaluation.
        in_turn: batches are prepared one by one when they are asked for, instead of ahead of the step on threads.
        waits: waits of the step for the tasks of an epoch, besides those for batches (trainers/batches/flow.py).
    """

    num_parts: int = 1
    parts: Collection[int] = (0,)
    waits: Sequence[Closable] = ()

    def __init__(self, batching: Batching):
        self.batching = batching
        self.inputs = BufferPool()
        self.files: AbstractContextManager[Any] = nullcontext()
        self.in_turn, self.shared = False, 0

    def batches(self, epoch: int, start_position: int = 0, every: int = 1) -> Generator[MiniBatch, None, None]:
        """Yields the batches of a training epoch in step order, from a position on; of several, one.

        The bytes of a batch are released when the next one is asked for.

        Args:
            every: number of batches of which the first is yielded.
        """
        batching = self.batching
        planned = [*batching.plan.batches(epoch, start_position)][::every]
        planned = [item for item in planned if item.key.step % self.num_parts in self.parts]
        bounds = batching.queue_bytes, batching.timeline, batching.most_queue_bytes
        tasks = self.tasks(planned, epoch)
        # The flow ends before its files close: its threads read them.
        with self.files, closing(flow(planned, tasks, *bounds, self.in_turn, self.waits)) as prepared:
            try:
                for _, results in prepared:
                    batch, moved = self.joined(*results)
                    batch.join()
                    batching.ledger.merge(moved)
                    yield batch
                    del batch, moved, results
            finally:
                self.stop()

    def tasks(self, planned: Sequence[PlannedBatch], epoch: int) -> Sequence[Task]:
        """Returns the tasks that prepare the planned batches of a training epoch."""
        raise NotImplementedError

    def stop(self) -> None:
        """Ends the waits of tasks besides those for queues; called before the flow waits for its threads."""
        return

    def joined(self, *results: Any) -> tuple[MiniBatch, Ledger]:
        """Returns a batch, ready for the step, and the ledger of its transfers, from the results of the flow's last tasks."""
        ((batch, moved),) = results
        return batch, moved


class OnlineSource(PreparedSource):
    """Samples and gathers the batches of an epoch on threads.

    Args:
        samplers: one sampler per thread, which may read stored samples; or one that draws on the device.
        in_turn: prepares each batch when it is asked for, by the first sampler, see `PreparedSource`.
    """

    def __init__(
        self,
        batching: Batching,
        features: FeatureSource,
        samplers: Sequence[AnySampler | Drawer],
        in_turn: bool = False,
    ):
        super().__init__(batching)
        self.features, self.samplers, self.in_turn = features, list(samplers), in_turn

    def tasks(self, planned: Sequence[PlannedBatch], epoch: int) -> list[Task]:
        """Returns the one task of the threads that sample and gather."""
        pooled = self.batching, self.features, self.batching.device, self.inputs
        lanes = lanes_of(self.samplers)
        return [
            Task(
                name=SAMPLER,
                lanes=lanes,
                **self.batching.waiting(lanes),
                prepare=Work("sample", lambda lane, item, _: self._sampled(lane, item, epoch)),
                num_bytes=lambda item, batch: (
                    batch_bytes(batch, self.features.width, self.batching.dtype) + self.batching.edge_bytes(batch)
                ),
                work=Work("gather", lambda lane, item, batch: extract_batch(*pooled, batch)),
            )
        ]

    def _sampled(self, lane: int, item: PlannedBatch, epoch: int) -> MiniBatch:
        batch = draw_batch(self.batching, self.samplers[lane], item, epoch)
        mark_batch(batch, self.features)
        return batch


EvaluationSource = Callable[[EpochPlan], PreparedSource]
"""A function that returns the source of the batches of an evaluation's plan."""
