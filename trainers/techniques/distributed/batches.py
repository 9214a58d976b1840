"""The mini-batches of one rank: sampled here from the whole topology or stored before, with rows that one thread exchanges in order.

    sampler threads: sample, mark, request  -->  exchanger: request and reply, gather  -->  step

Hybrid partitioning (FastSample, section 3.3) copies the topology to every rank, so sampling needs no other rank. The exchange of batch n +
1 runs while batch n is trained on. A reply also carries the number of rows that its sender will request next, so the exchanger waits until
the following batch is sampled, too; a sampler thread samples a batch before it asks for space in the queue, so this wait ends.

A batch may be empty if a part has fewer batches than the epoch has rounds. It still takes part in the exchange.

Memory: as online, with the fetched rows of one batch beside it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import cast

import numpy as np
import torch

from graphmill.kernels.cuda.device import on_device
from graphmill.kernels.sampling.epoch_plan import PlannedBatch
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.kernels.types import Array
from graphmill.trainers.batches.batch import (
    Batching,
    Drawer,
    MiniBatch,
    attach_weights,
    block_bytes,
    draw_batch,
    extract_batch,
    lanes_of,
)
from graphmill.trainers.batches.flow import OrderedByteQueue, Task, Work
from graphmill.trainers.batches.source import SAMPLER, PreparedSource
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.source import COUNTS
from graphmill.trainers.techniques.distributed.exchange import Request
from graphmill.trainers.techniques.distributed.sharded import ShardedSource
from graphmill.trainers.techniques.distributed.vanilla import VanillaSampler

EXCHANGER = "exchanger"


class RankSource(PreparedSource):
    """Samples, exchanges and gathers the batches of this rank's parts.

    Args:
        batching: the run's batching; its plan lists the batches of all parts.
        samplers: one sampler per thread; one that draws on the device; or one that draws with the other ranks, on the exchanging thread.
    """

    def __init__(
        self, batching: Batching, features: ShardedSource, samplers: Sequence[AnySampler | Drawer] | VanillaSampler
    ):
        super().__init__(batching)
        self.features, self.samplers, self.in_turn = features, samplers, features.at_hand
        self.num_parts, self.parts = features.owned.num_parts, features.owned.parts

    def stop(self) -> None:
        """Ends the exchanger's wait for the batch that follows."""
        self._ahead.close()

    def tasks(self, planned: Sequence[PlannedBatch], epoch: int) -> list[Task]:
        """Returns the samplers and the exchanger; or the exchanger alone, which makes all calls in order, if it samples, too."""
        # Counts of the rows that sampled batches will request from other ranks, by position.
        ahead = self._ahead = OrderedByteQueue[Array](0)
        following = {item.position: after.position for item, after in self._pairs(planned)}
        samplers = self.samplers

        def sampled(lane: int, item: PlannedBatch, _: None) -> tuple[MiniBatch, Request]:
            try:
                assert not isinstance(samplers, VanillaSampler)
                batch, request = self._marked(draw_batch(self.batching, samplers[lane], item, epoch))
            except BaseException as error:  # the exchanger may wait for this batch
                ahead.fail(error)
                raise
            if following:
                ahead.put(item.position, request.counts, 0)
            return batch, request

        def exchanged(lane: int, item: PlannedBatch, drawn: tuple[MiniBatch, Request] | None) -> MiniBatch:
            moved, counts = Ledger(), None
            if isinstance(samplers, VanillaSampler):
                blocks = samplers.sample(item.key, item.seeds, self.batching.transpose, moved)
                attach_weights(blocks, self.batching.topology, self.batching.edge_weight)
                drawn = self._marked(self.batching.batch(item, epoch, blocks))
            elif item.position in following:
                counts, _ = ahead.take(following[item.position])
            assert drawn is not None
            batch, request = drawn
            assert batch.slots is not None
            batch.moved = moved if batch.moved is None else batch.moved
            batch.staged = self.features.fetch(batch.slots, request, counts, batch.moved)
            return batch

        pooled = self.batching, self.features, self.batching.device, self.inputs
        exchanger = Task(
            name=EXCHANGER,
            prepare=Work("exchange", exchanged),
            num_bytes=lambda item, batch: self.batching.num_bytes(batch, self.features.width),
            work=Work("gather", lambda lane, item, batch: extract_batch(*pooled, batch)),
            **self.batching.waiting(1),
        )
        if isinstance(samplers, VanillaSampler):
            return [exchanger]
        sampler = Task(
            name=SAMPLER,
            lanes=lanes_of(samplers),
            prepare=Work("sample", sampled),
            num_bytes=lambda item, drawn: block_bytes(drawn[0].blocks) + 16 * len(drawn[0].input_ids),
        )
        return [sampler, replace(exchanger, after=(SAMPLER,))]

    def _pairs(self, planned: Sequence[PlannedBatch]) -> Iterable[tuple[PlannedBatch, PlannedBatch]]:
        """Returns each batch with the one whose request is told beside its rows; none for a rank alone, which requests nothing."""
        return pairwise(planned) if self.features.exchange.lane.world > 1 else ()

    def _marked(self, batch: MiniBatch) -> tuple[MiniBatch, Request]:
        """Returns a drawn batch with the slots of its rows, and its request to other ranks."""
        node_ids = batch.input_ids
        if on_device(node_ids):  # rows are exchanged through the host
            assert batch.moved is not None
            with self.batching.device.launching():
                batch.join()
                node_ids = self.batching.device.fetch(cast(torch.Tensor, node_ids), COUNTS, batch.moved).numpy()
        batch.slots = np.empty(len(node_ids), np.int32)
        self.features.mark(node_ids, batch.slots)
        return batch, self.features.request(node_ids, batch.slots)
