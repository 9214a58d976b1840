"""The online mini-batch source: threads sample and gather ahead of the step.

Each thread owns a sampler and works on the batches whose number is its own modulo the number of threads. Every random decision is keyed
by the batch, so any number of threads delivers the same bytes.

Memory: the queue's bound, one sampled but not yet admitted batch of blocks per thread, and 8 bytes per node of scratch per thread. Input
rows lie in buffers from a pool, which may be an eighth larger than the rows; the pool keeps up to half of the queue's bound in returned
buffers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphmill.kernels.rows.aligned import BufferPool
from graphmill.kernels.sampling.epoch_plan import PlannedBatch
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.trainers.batches.batch import MiniBatch, batch_bytes, count_batch
from graphmill.trainers.batches.flow import Task, Work
from graphmill.trainers.batches.send import send_batch
from graphmill.trainers.batches.source import Batching, PreparedSource
from graphmill.trainers.devices.malloc import input_space
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.source import FeatureSource

SAMPLER = "sampler"


class OnlineSource(PreparedSource):
    """Samples and gathers the batches of an epoch on threads.

    Args:
        batching: the run's batching.
        features: the source of rows.
        samplers: one sampler per thread; they may read stored samples.
        in_turn: prepares each batch when it is asked for, by the first sampler, see `PreparedSource`.
    """

    def __init__(
        self, batching: Batching, features: FeatureSource, samplers: Sequence[AnySampler], in_turn: bool = False
    ):
        super().__init__(batching)
        self.features, self.samplers, self.in_turn = features, list(samplers), in_turn

    def tasks(self, planned: Sequence[PlannedBatch], epoch: int) -> list[Task]:
        """Returns the one task of the threads that sample and gather."""
        sample = Work("sample", lambda lane, item, _: self._sampled(lane, item, epoch))
        pooled = self.batching, self.features, self.batching.device, self.inputs
        gather = Work("gather", lambda lane, item, batch: extract_batch(*pooled, batch))
        lanes = len(self.samplers)
        return [Task(name=SAMPLER, lanes=lanes, prepare=sample, num_bytes=self._num_bytes, work=gather)]

    def _num_bytes(self, item: PlannedBatch, batch: MiniBatch) -> int:
        return batch_bytes(batch, self.features.width, self.batching.dtype)

    def _sampled(self, lane: int, item: PlannedBatch, epoch: int) -> MiniBatch:
        batch = draw_batch(self.batching, self.samplers[lane], item, epoch)
        mark_batch(batch, self.features)
        return batch


def draw_batch(batching: Batching, sampler: AnySampler, item: PlannedBatch, epoch: int) -> MiniBatch:
    """Returns a batch with blocks and their weights, without rows.

    Args:
        batching: the run's batching.
        sampler: draws the batch, or reads it if it is stored.
        item: the planned batch.
        epoch: the training epoch.
    """
    return batching.batch(item, epoch, batching.draw(sampler, item))


def mark_batch(batch: MiniBatch, features: FeatureSource) -> None:
    """Writes the slot of each input row of a batch, for a source that finds rows by slot."""
    if features.slotted:
        batch.slots = np.empty(batch.blocks[0].num_src, np.int32)
        features.mark(batch.blocks[0].src_ids, batch.slots)


def extract_batch(
    batching: Batching, features: FeatureSource, device: Device, pool: BufferPool, batch: MiniBatch
) -> tuple[MiniBatch, Ledger]:
    """Returns a batch with its input rows on the device that trains, and the ledger of its transfers and counts.

    Args:
        batching: the run's batching.
        features: the source of rows.
        device: the device that trains.
        pool: lends memory for the rows, on a device without memory of its own.
        batch: the batch on the host, drawn and marked; its rows are staged here if they are not. `moved` has its transfers so far, if a
            device drew it.
    """
    moved = batch.moved or Ledger()
    with device.preparing():
        staged = None
        if batch.staged is None:
            batch.staged = staged = features.stage(batch.key)
        batch.x = input_space(device, pool, len(batch.input_ids), features.width, batching.dtype)
        features.gather(batch, batch.x, moved)
        batch.staged = None
        if staged is not None:
            staged.release()
        count_batch(batch, moved)
        return send_batch(batch, device, moved), moved
