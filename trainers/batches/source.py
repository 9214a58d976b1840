"""The interface of a source of mini-batches (`BatchSource`), its run's data (`Batching`), and a base class (`PreparedSource`).

A source defines the tasks that prepare a batch, and joins the results of the last ones; `PreparedSource` runs them ahead of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

from graphmill.kernels.rows.aligned import BufferPool
from graphmill.kernels.sampling.epoch_plan import EpochPlan, Plan, PlannedBatch
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.kernels.sampling.sample import Transposes
from graphmill.kernels.types import Array, BatchKey, Block, Topology
from graphmill.trainers.batches.batch import MiniBatch, attach_weights, planned_batch
from graphmill.trainers.batches.flow import Task, flow
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.record.timeline import Timeline


class BatchSource(Protocol):
    """A supplier of mini-batches: an online sampler, stored samples, a queue between machines, a pruner around any of them."""

    def batches(self, epoch: int, start_position: int = 0) -> Iterator[MiniBatch]:
        """Yields the batches of a training epoch in step order, from a position on.

        The bytes of a batch are released when the next one is asked for.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Batching:
    """The data of a run that every source of mini-batches needs.

    Attributes:
        topology: the graph.
        labels: i32[N].
        plan: the seeds of each batch.
        edge_weight: kind of edge weights that the model needs, see `attach_weights`; or None.
        transpose: the blocks that get a transpose.
        queue_bytes: bound on the bytes of batches that wait or are trained on.
        most_queue_bytes: bound up to which `queue_bytes` grows if a batch is larger; None for no growth.
        ledger: receives rows, edges and bytes of every batch that the step took.
        timeline: receives the spans of every thread, and of the step while it waits for a batch.
        dtype: NumPy name of the type of gathered input rows.
        device: the device that trains on the batches.
    """

    topology: Topology
    labels: Array
    plan: Plan
    edge_weight: str | None
    queue_bytes: int
    most_queue_bytes: int | None = None
    transpose: Transposes = "hidden"
    ledger: Ledger = field(default_factory=Ledger)
    timeline: Timeline = field(default_factory=Timeline)
    dtype: str = "float32"
    device: Device = field(default_factory=LogicalDevice)

    def draw(self, sampler: AnySampler, item: PlannedBatch, transpose: Transposes | None = None) -> tuple[Block, ...]:
        """Returns the blocks of a batch, with the edge weights that the model needs.

        Args:
            sampler: draws the blocks, or reads stored ones.
            item: the planned batch.
            transpose: the blocks that get a transpose; None for those that the model needs.
        """
        blocks = sampler.sample(item.key, item.seeds, transpose=transpose or self.transpose)
        attach_weights(blocks, self.topology, self.edge_weight)
        return blocks

    def batch(self, item: PlannedBatch, epoch: int, blocks: tuple[Block, ...], **more: Any) -> MiniBatch:
        """Returns a planned batch of a training epoch with its blocks and labels; `more` are other fields of the batch."""
        return planned_batch(item, epoch, self.labels, blocks, **more)


class PreparedSource(BatchSource):
    """Supplies mini-batches that the tasks of a flow prepare ahead of the step.

    Args:
        batching: the run's batching.
        pool_bytes: bound on the buffers of input rows that are kept for later batches; None for half of the queue's bound.

    Attributes:
        files: context that holds open the files that the tasks of an epoch read.
        in_turn: batches are prepared one by one when they are asked for, instead of ahead of the step on threads.
    """

    def __init__(self, batching: Batching, pool_bytes: int | None = None):
        self.batching = batching
        self.inputs = BufferPool(batching.queue_bytes // 2 if pool_bytes is None else pool_bytes)
        self.files: AbstractContextManager[Any] = nullcontext()
        self.in_turn = False

    def batches(self, epoch: int, start_position: int = 0) -> Iterator[MiniBatch]:
        """Yields the batches of a training epoch; see `BatchSource`."""
        batching = self.batching
        planned = [item for item in batching.plan.batches(epoch, start_position) if self.supplies(item.key)]
        bounds = batching.queue_bytes, batching.timeline, batching.most_queue_bytes
        tasks = self.tasks(planned, epoch)
        # The flow ends before its files close: its threads read them.
        with self.files, closing(flow(planned, tasks, *bounds, self.in_turn)) as prepared:
            try:
                for _, results in prepared:
                    batch, moved = self.joined(*results)
                    batching.ledger.merge(moved)
                    yield batch
                    del batch, moved, results
            finally:
                self.stop()

    def supplies(self, key: BatchKey) -> bool:
        """Returns whether this source supplies a batch of the plan; the others are left out."""
        return True

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


EvaluationSource = Callable[[EpochPlan], PreparedSource]
"""A function that returns the source of the batches of an evaluation's plan."""
