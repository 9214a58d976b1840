"""The online mini-batch source: threads sample and gather ahead of the step.

Each worker owns a sampler and works on the batches whose number is its own modulo the number of workers; the ordered queue hands them
on in step order. Every random decision is keyed by the batch, so any number of workers delivers the same bytes.

Memory: the queue's bound, one sampled but not yet admitted batch of blocks a worker, and 8 bytes a node of scratch a worker. Input rows lie
in buffers from a pool, which may be an eighth larger than the rows; of those that have come back it keeps up to half of the queue's bound.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import numpy as np

from assets.sampling.config import open_sampler
from kernels.rows.aligned import BufferPool
from kernels.sampling.epoch_plan import EpochPlan, PlannedBatch
from kernels.sampling.own_sampling import AnySampler
from kernels.sampling.sample import Transposes
from kernels.types import Array, Topology
from trainers.batches.batch import MiniBatch, attach_weights, batch_bytes, count_batch, planned_batch
from trainers.batches.queue import Closed, OrderedByteQueue
from trainers.devices.malloc import lent_rows
from trainers.record.ledger import Ledger
from trainers.record.timeline import STEP, WAIT, Timeline
from trainers.rows.source import FeatureSource


class OnlineSource:
    """Samples and gathers the batches of an epoch on threads.

    Args:
        topology: the graph.
        labels: i32[N].
        features: where rows come from.
        plan: which seeds form which batch.
        fanouts: from the seeds outwards; -1 = all neighbours.
        method: how neighbours are drawn, as in `SamplingConfig`.
        seed: the run's seed.
        edge_weight: what `attach_weights` puts on the edges, or None.
        transpose: which blocks get one.
        ledger: gets rows, edges and bytes of every batch that the step took.
        workers: number of threads.
        queue_bytes: bound on batches that wait or are being trained on.
        samplers: what draws the batches on each worker, None to sample by `method`, `fanouts` and `seed`.
        timeline: gets the spans of every worker, and of the step while it waits for a batch.
    """

    def __init__(
        self,
        *,
        topology: Topology,
        labels: Array,
        features: FeatureSource,
        plan: EpochPlan,
        fanouts: tuple[int, ...],
        seed: int,
        edge_weight: str | None,
        ledger: Ledger,
        workers: int,
        queue_bytes: int,
        method: str = "uniform",
        transpose: Transposes = "hidden",
        timeline: Timeline | None = None,
        samplers: Sequence[AnySampler] | None = None,
    ):
        self.topology, self.labels, self.features, self.plan = topology, labels, features, plan
        self.edge_weight, self.ledger, self.queue_bytes = edge_weight, ledger, queue_bytes
        self.transpose: Transposes = transpose
        self._inputs = BufferPool(queue_bytes // 2)
        self.timeline = timeline or Timeline()
        drawn = samplers or [open_sampler(topology, method, fanouts, seed=seed) for _ in range(workers)]
        self.samplers: list[AnySampler] = list(drawn)

    def batches(self, epoch: int, start_position: int = 0) -> Iterator[MiniBatch]:
        """Yields the batches of a training epoch in step order, from a position on.

        A batch's bytes are released when the next one is asked for.
        """
        planned = list(self.plan.batches(epoch, start_position))
        queue: OrderedByteQueue[tuple[MiniBatch, Ledger]] = OrderedByteQueue(self.queue_bytes, first=start_position)
        threads = [
            threading.Thread(
                target=self._work,
                args=(f"sampler {i}", sampler, planned[i :: len(self.samplers)], epoch, queue),
                daemon=True,
            )
            for i, sampler in enumerate(self.samplers)
        ]
        for thread in threads:
            thread.start()
        try:
            for item in planned:
                with self.timeline.span(STEP, WAIT, item.position):
                    (batch, moved), num_bytes = queue.take(item.position)
                self.ledger.merge(moved)
                yield batch
                del batch
                queue.release(num_bytes)
        finally:
            queue.close()
            for thread in threads:
                thread.join()

    def _work(
        self,
        lane: str,
        sampler: AnySampler,
        planned: list[PlannedBatch],
        epoch: int,
        queue: OrderedByteQueue[tuple[MiniBatch, Ledger]],
    ) -> None:
        span = self.timeline.span
        try:
            for item in planned:
                with span(lane, "sample", item.position):
                    batch = self._sampled(sampler, item, epoch)
                num_bytes = batch_bytes(batch, self.features.width)
                with span(lane, WAIT, item.position):
                    queue.admit(item.position, num_bytes)
                moved = Ledger()
                with span(lane, "gather", item.position):
                    batch.x = lent_rows(self._inputs, len(batch.input_ids), self.features.width)
                    self.features.gather(batch.input_ids, batch.x, moved, batch.slots)
                count_batch(batch, moved)
                queue.put(item.position, (batch, moved), num_bytes)
        except Closed:
            pass
        except BaseException as error:  # a worker's error belongs to the consumer's thread
            queue.fail(error)

    def _sampled(self, sampler: AnySampler, item: PlannedBatch, epoch: int) -> MiniBatch:
        blocks = sampler.sample(item.key, item.seeds, transpose=self.transpose)
        attach_weights(blocks, self.topology, self.edge_weight)
        slots = None
        if self.features.slotted:
            slots = np.empty(blocks[0].num_src, np.int32)
            self.features.mark(blocks[0].src_ids, slots)
        return planned_batch(item, epoch, self.labels, blocks, slots=slots)
