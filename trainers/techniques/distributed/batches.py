"""The mini-batches of one rank: sampled here from the whole topology or stored before, with rows that one thread exchanges in order.

    sampler threads: sample, mark, request  -->  exchanger: request and reply, gather  -->  step

Hybrid partitioning (FastSample, section 3.3) copies the topology to every rank, so sampling needs no other rank. The exchange of batch n +
1 runs while batch n is trained on. A reply also carries the number of rows that its sender will request next, so the exchanger waits until
the following batch is sampled, too; a sampler thread samples a batch before it asks for space in the queue, so this wait ends.

A batch may be empty if a part has fewer batches than the epoch has rounds. It still takes part in the exchange.

Memory: as online, with the fetched rows of one batch beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import cast

import numpy as np
import torch

from graphmill.kernels.sampling.epoch_plan import PlannedBatch
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.kernels.types import Array, BatchKey, Block
from graphmill.trainers.batches.batch import MiniBatch, attach_weights, batch_bytes, block_bytes
from graphmill.trainers.batches.flow import Task, Work
from graphmill.trainers.batches.on_device import DRAWN_IDS, DeviceDrawer, gather_drawn
from graphmill.trainers.batches.online import SAMPLER, extract_batch
from graphmill.trainers.batches.queue import OrderedByteQueue
from graphmill.trainers.batches.source import Batching, PreparedSource
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.techniques.distributed.exchange import Request
from graphmill.trainers.techniques.distributed.sharded import ShardedSource
from graphmill.trainers.techniques.distributed.vanilla import VanillaSampler

EXCHANGER = "exchanger"


class RankSource(PreparedSource):
    """Samples, exchanges and gathers the batches of this rank's parts.

    Args:
        batching: the run's batching; its plan lists the batches of all parts.
        features: the source of rows.
        samplers: one sampler per thread; or one that draws with the other ranks, on the exchanging thread.
        num_parts: P, number of parts.
        draw: draws the blocks on the device, in the place of samplers; None if they are drawn on the host.
    """

    def __init__(
        self,
        batching: Batching,
        features: ShardedSource,
        samplers: Sequence[AnySampler] | VanillaSampler,
        num_parts: int,
        draw: DeviceDrawer | None = None,
    ):
        super().__init__(batching)
        self.features, self.samplers, self.num_parts, self.draw = features, samplers, num_parts, draw

    def supplies(self, key: BatchKey) -> bool:
        """Returns whether a batch belongs to a part of this rank."""
        return key.step % self.num_parts in self.features.owned.parts

    def stop(self) -> None:
        """Ends the exchanger's wait for the batch that follows."""
        self._ahead.close()

    def tasks(self, planned: Sequence[PlannedBatch], epoch: int) -> list[Task]:
        """Returns the samplers and the exchanger; or the exchanger alone, which makes all calls in order, if it samples, too."""
        # Counts of the rows that sampled batches will request from other ranks, by position.
        ahead = self._ahead = OrderedByteQueue[Array](0)
        following = {item.position: after.position for item, after in pairwise(planned)}
        samplers = self.samplers

        def sampled(lane: int, item: PlannedBatch, _: None) -> tuple[MiniBatch, Request]:
            try:
                batch, request = self._sampled(lane, item, epoch)
            except BaseException as error:  # the exchanger may wait for this batch
                ahead.fail(error)
                raise
            ahead.put(item.position, request.counts, 0)
            return batch, request

        def exchanged(
            lane: int, item: PlannedBatch, drawn: tuple[MiniBatch, Request] | None
        ) -> tuple[MiniBatch, Ledger]:
            moved, counts = Ledger(), None
            if isinstance(samplers, VanillaSampler):
                blocks = samplers.sample(item.key, item.seeds, self.batching.transpose, moved)
                attach_weights(blocks, self.batching.topology, self.batching.edge_weight)
                drawn = self._drawn(blocks, item, epoch)
            elif item.position in following:
                counts, _ = ahead.take(following[item.position])
            assert drawn is not None
            batch, request = drawn
            assert batch.slots is not None
            moved = batch.moved or moved
            batch.staged = self.features.fetch(batch.slots, request, counts, moved)
            return batch, moved

        exchanger = Task(
            name=EXCHANGER,
            prepare=Work("exchange", exchanged),
            num_bytes=lambda item, found: batch_bytes(found[0], self.features.width, self.batching.dtype),
            work=Work("gather", lambda lane, item, found: self._gathered(*found)),
        )
        if isinstance(samplers, VanillaSampler):
            return [exchanger]
        sampler = Task(
            name=SAMPLER,
            lanes=len(samplers),  # 0 for the one thread of a device
            prepare=Work("sample", sampled),
            num_bytes=lambda item, drawn: block_bytes(drawn[0].blocks) + 16 * len(drawn[0].input_ids),
        )
        return [sampler, replace(exchanger, after=(SAMPLER,))]

    def _sampled(self, lane: int, item: PlannedBatch, epoch: int) -> tuple[MiniBatch, Request]:
        """Returns a batch that a thread or the device draws, and its request to other ranks."""
        assert not isinstance(self.samplers, VanillaSampler)
        if self.draw is None:
            return self._drawn(self.batching.draw(self.samplers[lane], item), item, epoch)
        blocks, moved = self.draw(item, self.batching.transpose)
        return self._drawn(blocks, item, epoch, moved)

    def _drawn(
        self, blocks: tuple[Block, ...], item: PlannedBatch, epoch: int, moved: Ledger | None = None
    ) -> tuple[MiniBatch, Request]:
        """Returns a batch and its request to other ranks; `moved` has the transfers of blocks that the device drew."""
        slots, node_ids = np.empty(blocks[0].num_src, np.int32), blocks[0].src_ids
        if moved is not None:  # rows are exchanged through the host
            node_ids = self.batching.device.fetch(cast(torch.Tensor, node_ids), DRAWN_IDS, moved).numpy()
        self.features.mark(node_ids, slots)
        batch = self.batching.batch(item, epoch, blocks, slots=slots, moved=moved)
        return batch, self.features.request(node_ids, slots)

    def _gathered(self, batch: MiniBatch, moved: Ledger) -> tuple[MiniBatch, Ledger]:
        if batch.moved is not None:
            return gather_drawn(self.batching, self.features, batch)
        batch, gathered = extract_batch(self.batching, self.features, self.batching.device, self.inputs, batch)
        moved.merge(gathered)
        return batch, moved
