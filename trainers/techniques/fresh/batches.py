"""Mini-batches that the history of embeddings makes smaller: sampled ahead, pruned and gathered behind the update (FreshGNN, section 5).

    sampler 0..k    blocks and weights of later batches, drawn or read from stored samples, and sent to the device
    pruner          lookup, pruning, transposes, then the rows of the inputs that are left; begins when its batch is asked for

A device with memory of its own gets the sampled blocks ahead of the step and does the rest: lookup, pruning, transposes, and finding the
rows of the arena. It sends back the remaining sizes, and the ids of rows that it does not find by itself.

The nodes that a batch may leave out depend on the update before it, so sampling and sending alone run ahead of the step. The result of a
lookup depends only on the batch's optimiser step: all batches of a step group look up before the group's one update, and the history
changes nowhere else.

Memory: half of the queue's bound for sampled blocks, half for the batch that is trained on; 32 MiB at most for rows on their way
(arena_rows.py); as online besides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np

from graphmill.kernels.history.csr2 import prune
from graphmill.kernels.history.csr2_cuda import SIZE_BYTES
from graphmill.kernels.rows.aligned import BufferPool
from graphmill.kernels.sampling.epoch_plan import PlannedBatch
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.kernels.types import BatchKey, Block
from graphmill.trainers.batches.batch import MiniBatch, batch_bytes, block_bytes, count_batch, tensors_of
from graphmill.trainers.batches.flow import Task, Work
from graphmill.trainers.batches.on_device import DeviceDrawer
from graphmill.trainers.batches.online import SAMPLER
from graphmill.trainers.batches.send import LABELS, send_blocks
from graphmill.trainers.batches.source import Batching, PreparedSource
from graphmill.trainers.devices.malloc import input_space
from graphmill.trainers.record.ledger import Ledger, Line
from graphmill.trainers.rows.packed import PackedRows
from graphmill.trainers.rows.source import FeatureSource
from graphmill.trainers.techniques.fresh.arena_rows import ArenaRows
from graphmill.trainers.techniques.fresh.history import SteppedHistory

PRUNER = "pruner"
SIZES = Line("d2h", "ids")


class PrunedSource(PreparedSource):
    """Samples ahead on threads; prunes and gathers a batch when it is asked for.

    Args:
        batching: the run's batching.
        histories: part -> the history of rows that need not be computed; batches of other parts are not supplied.
        num_parts: number of parts of all ranks; 1 without parts.
        below: the source of rows that the arenas of the histories do not have.
        samplers: one sampler per thread; they may read stored samples.
        draw: draws the blocks on the device, in the place of samplers; None if they are drawn on the host.
        packed: the packed rows, if features are loaded from disk; their files are closed at the end of an epoch. None for a table.
    """

    def __init__(
        self,
        batching: Batching,
        histories: Mapping[int, SteppedHistory],
        num_parts: int,
        below: FeatureSource,
        samplers: Sequence[AnySampler],
        packed: PackedRows | None = None,
        draw: DeviceDrawer | None = None,
    ):
        super().__init__(batching)
        self.histories, self.num_parts, self.samplers, self.packed = histories, num_parts, list(samplers), packed
        self.draw = draw
        self.width = below.width
        self.below = below
        self.pruners = {
            part: Pruner(batching, history, below, packed is not None) for part, history in histories.items()
        }
        if packed is not None:
            self.files = closing(packed)

    def supplies(self, key: BatchKey) -> bool:
        """Returns whether a batch belongs to a part of this rank."""
        return key.step % self.num_parts in self.histories

    def tasks(self, planned: Sequence[PlannedBatch], epoch: int) -> list[Task]:
        """Returns the samplers, and the pruner behind them, which prunes a batch when it is asked for."""
        send = Work("h2d", lambda lane, item, drawn: self._sent(*drawn))
        return [
            Task(
                name=SAMPLER,
                lanes=len(self.samplers),
                # Weights are those of the sampled block; transposes are made of the pruned block.
                prepare=Work("sample", lambda lane, item, _: self._drawn(lane, item)),
                num_bytes=lambda item, drawn: block_bytes(drawn[0]),
                work=send if self.batching.device.remote and self.draw is None else None,
            ),
            Task(
                name=PRUNER,
                after=(SAMPLER,),
                ahead=0,
                prepare=Work("prune", lambda lane, item, sent: self._pruned(item, sent, epoch)),
                num_bytes=lambda item, made: self._num_bytes(made[0]),
                work=Work("gather", lambda lane, item, made: self._gathered(*made)),
            ),
        ]

    def _num_bytes(self, batch: MiniBatch) -> int:
        return batch_bytes(batch, self.width, self.batching.dtype)

    def _drawn(self, lane: int, item: PlannedBatch) -> tuple[tuple[Block, ...], Ledger]:
        if self.draw is not None:
            return self.draw(item, "none")
        return self.batching.draw(self.samplers[lane], item, "none"), Ledger()

    def _sent(self, blocks: tuple[Block, ...], moved: Ledger) -> tuple[tuple[Block, ...], Ledger]:
        """Returns sampled blocks on the device, and the ledger of the transfer."""
        with self.batching.device.preparing():
            return send_blocks(blocks, self.batching.device, moved), moved

    def _pruned(
        self, item: PlannedBatch, sent: tuple[tuple[Block, ...], Ledger], epoch: int
    ) -> tuple[MiniBatch, Ledger]:
        blocks, moved = sent
        pruner = self.pruners[item.key.step % self.num_parts]
        return pruner.pruned(self.batching.batch(item, epoch, blocks), moved), moved

    def _gathered(self, batch: MiniBatch, moved: Ledger) -> tuple[MiniBatch, Ledger]:
        self.pruners[batch.key.step % self.num_parts].gather(batch, self.inputs, moved)
        return batch, moved


class Pruner:
    """Prunes batches by a history, and gathers the rows of what is left; belongs to one thread.

    Args:
        batching: the run's batching.
        history: the history of rows that need not be computed.
        below: the source of rows that the arena of the history does not have.
        stages: whether that source reads by the places that inputs had before the batch was pruned.
    """

    def __init__(self, batching: Batching, history: SteppedHistory, below: FeatureSource, stages: bool):
        self.batching, self.history = batching, history
        arena = history.arena if history.settings.features else None
        threads = history.run.semantic.train.num_threads
        self.rows = ArenaRows(below, arena, batching.device, stages=stages, threads=threads)

    def pruned(self, batch: MiniBatch, moved: Ledger) -> MiniBatch:
        """Returns a batch without what the history makes unnecessary; its blocks are on the device, and `moved` receives counts."""
        device, blocks = self.batching.device, batch.blocks
        with device.preparing():
            slots = self.history.slots(blocks, self.batching.plan.step_of(batch.train_epoch, batch.position))
            pruned = prune(blocks, slots, self.batching.transpose)
        if device.remote:
            moved.crossed(SIZES, SIZE_BYTES * len(blocks))
        _count_pruned(blocks, pruned.blocks, moved)
        return replace(batch, blocks=pruned.blocks, origin=pruned.origin)

    def gather(self, batch: MiniBatch, inputs: BufferPool, moved: Ledger) -> None:
        """Gathers the rows of a pruned batch, and hands it over to the step; `inputs` lends memory, `moved` receives the transfers."""
        device, rows = self.batching.device, self.rows
        with device.preparing():
            batch.x = input_space(device, inputs, len(batch.input_ids), rows.width, self.batching.dtype)
            rows.gather(batch.key, batch.input_ids, batch.origin, batch.x, moved)
            count_batch(batch, moved)
            if device.remote:
                (batch.labels,) = device.send([batch.labels.astype(np.int64)], LABELS, moved)
                device.hand_over(tensors_of(batch))


def _count_pruned(before: Sequence[Block], after: Sequence[Block], ledger: Ledger) -> None:
    """Counts by layer the rows that come from the history, and the sources and edges that pruning removed."""
    for layer, (old, new) in enumerate(zip(before, after, strict=True)):
        if layer:  # features are not in the history
            ledger.count("history_hits", layer, 0 if new.splice is None else len(new.splice.hist_pos))
        ledger.count("pruned_nodes", layer, old.num_src - new.num_src)
        ledger.count("pruned_edges", layer, len(old.indices) - len(new.indices))
