"""What the loop needs of a source of mini-batches, and what every source needs of its run."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kernels.sampling.epoch_plan import Plan, PlannedBatch
from kernels.sampling.sample import Transposes
from kernels.types import Array, Topology
from trainers.batches.batch import MiniBatch
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

    def flow(
        self, planned: Sequence[PlannedBatch], tasks: Sequence[Task]
    ) -> Generator[tuple[PlannedBatch, tuple[Any, ...]], None, None]:
        """Yields planned batches with the results of their tasks, within the run's bounds; see `trainers.batches.flow.flow`."""
        return flow(planned, tasks, self.queue_bytes, self.timeline, self.most_queue_bytes)
