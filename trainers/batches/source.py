"""What the loop needs of a source of mini-batches, what every source needs of its run, and what all of them share.

A source says which tasks prepare a batch, and what the results of their ends are; `PreparedSource` runs them ahead of the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from kernels.rows.aligned import BufferPool
from kernels.sampling.epoch_plan import Plan, PlannedBatch
from kernels.sampling.own_sampling import AnySampler
from kernels.sampling.sample import Transposes
from kernels.types import Array, BatchKey, Block, Topology
from trainers.batches.batch import MiniBatch, attach_weights, planned_batch
from trainers.batches.flow import Task, flow
from trainers.devices.logical import LogicalDevice
from trainers.devices.protocol import Device
from trainers.record.ledger import Ledger
from trainers.record.timeline import Timeline


class BatchSource(Protocol):
    """Whatever supplies mini-batches: an online sampler, stored samples, a queue between machines, a pruner around any of them."""

    def batches(self, epoch: int, start_position: int = 0) -> Iterator[MiniBatch]:
        """Yields the batches of a training epoch in step order, from a position on.

        The bytes of a batch are released when the next one is asked for.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Batching:
    """What every source of mini-batches needs of its run.

    Attributes:
        topology: the graph.
        labels: i32[N].
        plan: which seeds form which batch.
        edge_weight: what the model wants on the edges of blocks, see `attach_weights`; or None.
        transpose: which blocks get a transpose.
        queue_bytes: bound on batches that wait or are being trained on.
        most_queue_bytes: bound up to which that grows where a batch is larger; None for no growth.
        ledger: gets rows, edges and bytes of every batch that the step took.
        timeline: gets the spans of every thread, and of the step while it waits for a batch.
        dtype: NumPy name of the type of gathered input rows.
        device: where the batches are trained on.
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
        """Returns the blocks of a batch, with what the model wants on their edges.

        Args:
            sampler: draws them, or reads them from where they are stored.
            item: names the batch.
            transpose: which blocks get a transpose; None for those that the model needs.
        """
        blocks = sampler.sample(item.key, item.seeds, transpose=transpose or self.transpose)
        attach_weights(blocks, self.topology, self.edge_weight)
        return blocks

    def batch(self, item: PlannedBatch, epoch: int, blocks: tuple[Block, ...], **more: Any) -> MiniBatch:
        """Returns a planned batch of a training epoch with its blocks and labels; `more` are fields that are known by then."""
        return planned_batch(item, epoch, self.labels, blocks, **more)


class PreparedSource(BatchSource):
    """Supplies mini-batches that the tasks of a flow prepare ahead of the step.

    Args:
        batching: of the run.
        pool_bytes: bound on buffers of input rows that are kept for later batches; None for half of the queue's.
    """

    def __init__(self, batching: Batching, pool_bytes: int | None = None):
        self.batching = batching
        self.inputs = BufferPool(batching.queue_bytes // 2 if pool_bytes is None else pool_bytes)

    def batches(self, epoch: int, start_position: int = 0) -> Iterator[MiniBatch]:
        """Yields the batches of a training epoch in step order, from a position on.

        The bytes of a batch are released when the next one is asked for.
        """
        batching = self.batching
        planned = [item for item in batching.plan.batches(epoch, start_position) if self.supplies(item.key)]
        bounds = batching.queue_bytes, batching.timeline, batching.most_queue_bytes
        tasks = self.tasks(planned, epoch)
        # The flow ends before its files close: its threads read them.
        with self.opened(), closing(flow(planned, tasks, *bounds)) as prepared:
            try:
                for _, results in prepared:
                    batch, moved = self.joined(*results)
                    batching.ledger.merge(moved)
                    yield batch
                    del batch, moved, results
            finally:
                self.stop()

    def supplies(self, key: BatchKey) -> bool:
        """Says whether a batch of the plan is one of this source's; the others are left out."""
        return True

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Holds what the tasks of an epoch read."""
        yield

    def tasks(self, planned: Sequence[PlannedBatch], epoch: int) -> Sequence[Task]:
        """Returns the tasks that prepare the planned batches of a training epoch."""
        raise NotImplementedError

    def stop(self) -> None:
        """Ends what tasks wait for besides their queues; called before the flow waits for its threads."""
        return

    def joined(self, *results: Any) -> tuple[MiniBatch, Ledger]:
        """Returns a batch, ready for the step, and what was moved for it, from the results of the flow's ends."""
        ((batch, moved),) = results
        return batch, moved
