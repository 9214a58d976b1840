"""The mini-batches of one rank: sampled here from the whole topology, with rows that are exchanged by one thread in order.

    sampler threads: sample, mark, request  -->  exchanger: request and reply, gather  -->  step

Hybrid partitioning (FastSample, section 3.3) copies the topology to every rank, so sampling needs no other rank. The exchange of batch n +
1 runs while batch n is trained on. A reply also carries the number of rows that its sender will request next, so the exchanger waits until
the following batch is sampled, too; a sampler thread samples a batch before it asks for space in the queue, so this wait ends.

A batch may be empty if a part has fewer batches than the epoch has rounds. It still takes part in the exchange.

Memory: as online, with the fetched rows of one batch beside it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from kernels.sampling.epoch_plan import PlannedBatch
from kernels.sampling.own_sampling import AnySampler
from kernels.types import Array, BatchKey, Block
from trainers.batches.batch import MiniBatch, attach_weights, batch_bytes, block_bytes, count_batch
from trainers.batches.flow import Task, Work
from trainers.batches.online import SAMPLER
from trainers.batches.queue import Closed
from trainers.batches.send import send_batch
from trainers.batches.source import Batching, PreparedSource
from trainers.devices.malloc import input_space
from trainers.record.ledger import Ledger
from trainers.techniques.distributed.exchange import Request
from trainers.techniques.distributed.sharded import ShardedSource
from trainers.techniques.distributed.vanilla import VanillaSampler

EXCHANGER = "exchanger"


class _Drawn(NamedTuple):
    """A sampled batch and its request to other ranks."""

    batch: MiniBatch
    request: Request


class RankSource(PreparedSource):
    """Samples, exchanges and gathers the batches of this rank's parts.

    Args:
        batching: the run's batching; its plan lists the batches of all parts.
        features: the source of rows.
        samplers: one sampler per thread; or one that draws with the other ranks, on the exchanging thread.
        num_parts: P, number of parts.
    """

    def __init__(
        self,
        batching: Batching,
        features: ShardedSource,
        samplers: Sequence[AnySampler] | VanillaSampler,
        num_parts: int,
    ):
        super().__init__(batching)
        self.features, self.samplers, self.num_parts = features, samplers, num_parts
        self._ahead = _Ahead()

    def supplies(self, key: BatchKey) -> bool:
        """Returns whether a batch belongs to a part of this rank."""
        return key.step % self.num_parts in self.features.owned.parts

    def stop(self) -> None:
        """Ends the exchanger's wait for the batch that follows."""
        self._ahead.close()

    def tasks(self, planned: Sequence[PlannedBatch], epoch: int) -> list[Task]:
        """Returns the samplers and the exchanger, or one task if sampling needs the other ranks, too."""
        if isinstance(self.samplers, VanillaSampler):
            return [self._alone(self.samplers, epoch)]
        ahead = self._ahead = _Ahead()
        following = {item.position: after.position for item, after in pairwise(planned)}
        samplers = list(self.samplers)

        def sampled(lane: int, item: PlannedBatch, _: None) -> _Drawn:
            with ahead.failing():
                drawn = self._drawn(self.batching.draw(samplers[lane], item), item, epoch)
            ahead.put(item.position, drawn.request.counts)
            return drawn

        def exchanged(lane: int, item: PlannedBatch, drawn: _Drawn) -> tuple[MiniBatch, Ledger]:
            after = following.get(item.position)
            return self._fetched(drawn, None if after is None else ahead.get(after))

        return [
            Task(
                name=SAMPLER,
                lanes=len(samplers),
                prepare=Work("sample", sampled),
                num_bytes=lambda item, drawn: block_bytes(drawn.batch.blocks) + 16 * len(drawn.batch.input_ids),
            ),
            Task(
                name=EXCHANGER,
                after=(SAMPLER,),
                prepare=Work("exchange", exchanged),
                num_bytes=lambda item, found: batch_bytes(found[0], self.features.width, self.batching.dtype),
                work=Work("gather", lambda lane, item, found: self._gathered(*found)),
            ),
        ]

    def _alone(self, sampler: VanillaSampler, epoch: int) -> Task:
        """Returns the one task of a sampler that needs the other ranks: all calls are made by one thread in order."""

        def exchanged(lane: int, item: PlannedBatch, _: None) -> tuple[MiniBatch, Ledger]:
            batching, moved = self.batching, Ledger()
            blocks = sampler.sample(item.key, item.seeds, batching.transpose, moved)
            attach_weights(blocks, batching.topology, batching.edge_weight)
            batch, rest = self._fetched(self._drawn(blocks, item, epoch), None)
            rest.merge(moved)
            return batch, rest

        return Task(
            name=EXCHANGER,
            prepare=Work("exchange", exchanged),
            num_bytes=lambda item, found: batch_bytes(found[0], self.features.width, self.batching.dtype),
            work=Work("gather", lambda lane, item, found: self._gathered(*found)),
        )

    def _drawn(self, blocks: tuple[Block, ...], item: PlannedBatch, epoch: int) -> _Drawn:
        slots = np.empty(blocks[0].num_src, np.int32)
        self.features.mark(blocks[0].src_ids, slots)
        batch = self.batching.batch(item, epoch, blocks, slots=slots)
        return _Drawn(batch, self.features.request(blocks[0].src_ids, slots))

    def _fetched(self, drawn: _Drawn, following: Array | None) -> tuple[MiniBatch, Ledger]:
        moved, batch = Ledger(), drawn.batch
        assert batch.slots is not None
        batch.staged = self.features.fetch(batch.slots, drawn.request, following, moved)
        return batch, moved

    def _gathered(self, batch: MiniBatch, moved: Ledger) -> tuple[MiniBatch, Ledger]:
        device = self.batching.device
        with device.preparing():
            rows = len(batch.input_ids)
            batch.x = input_space(device, self.inputs, rows, self.features.width, self.batching.dtype)
            self.features.gather(batch, batch.x, moved)
            batch.staged = None
            count_batch(batch, moved)
            return send_batch(batch, device, moved), moved


class _Ahead:
    """Counts of the rows that sampled batches will request from other ranks, by position."""

    def __init__(self):
        self._counts: dict[int, Array] = {}
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def put(self, position: int, counts: Array) -> None:
        """Adds the counts of a batch."""
        with self._changed:
            self._counts[position] = counts
            self._changed.notify_all()

    def get(self, position: int) -> Array:
        """Returns the counts of a batch when it is sampled, and removes them.

        Raises:
            BaseException: the error of sampling; `Closed` if sampling has ended.
        """
        with self._changed:
            self._changed.wait_for(lambda: position in self._counts or self._error is not None)
            if self._error is not None:
                raise self._error
            return self._counts.pop(position)

    def failing(self) -> _Failing:
        """Returns a context whose error reaches the threads that wait here."""
        return _Failing(self)

    def fail(self, error: BaseException) -> None:
        """Ends every wait with an error."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def close(self) -> None:
        """Ends every wait."""
        self.fail(Closed())


class _Failing:
    def __init__(self, ahead: _Ahead):
        self.ahead = ahead

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.ahead.fail(error)
