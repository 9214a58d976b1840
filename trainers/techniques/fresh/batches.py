"""Mini-batches that the history of embeddings makes smaller: sampled ahead, pruned and gathered behind the update (FreshGNN, section 5).

    sampler 0..k    blocks and weights of later batches, drawn or read from stored samples
    pruner          lookup, pruning, transposes, then the rows of the inputs that are left; begins when its batch is asked for

A device with memory of its own gets the sampled blocks and does the rest: lookup, pruning, transposes, and finding the rows of the arena.
It sends back the remaining sizes, and the ids of rows that it does not find by itself.

The nodes that a batch may leave out depend on the update before it, so only sampling runs ahead of the step. The result of a lookup depends
only on the batch's optimiser step: all batches of a step group look up before the group's one update, and the history changes nowhere else.

Memory: half of the queue's bound for sampled blocks, half for the batch that is trained on; as online besides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from typing import Any, NamedTuple, Protocol

import numpy as np

from kernels.history.csr2 import prune
from kernels.history.csr2_cuda import SIZE_BYTES
from kernels.sampling.epoch_plan import PlannedBatch
from kernels.sampling.own_sampling import AnySampler
from kernels.types import BatchKey, Block
from trainers.batches.batch import (
    MiniBatch,
    batch_bytes,
    block_bytes,
    count_batch,
    tensors_of,
)
from trainers.batches.flow import Task, Work
from trainers.batches.online import SAMPLER
from trainers.batches.send import LABELS, send_blocks
from trainers.batches.source import Batching, PreparedSource
from trainers.devices.malloc import input_space
from trainers.record.ledger import Ledger, Line
from trainers.rows.packed import PackedRows
from trainers.techniques.fresh.arena_rows import ArenaRows

PRUNER = "pruner"
SIZES = Line("d2h", "ids")


class Lookup(Protocol):
    """The history's interface for pruning."""

    def slots(self, blocks: Sequence[Block], step: int) -> list[Any]:
        """Returns i32[num_src] for each of blocks[1:]: the slot of each source's row in the history, negative for none.

        Args:
            blocks: blocks of a mini-batch, on the device that computes.
            step: the optimiser step of the run that the batch belongs to.
        """
        ...


class Kept(NamedTuple):
    """The state for the batches of a part: the source of their rows, and the history of rows that need not be computed."""

    features: ArenaRows
    history: Lookup


class PrunedSource(PreparedSource):
    """Samples ahead on threads; prunes and gathers a batch when it is asked for.

    Args:
        batching: the run's batching.
        kept: the state of each part; None for the parts of other ranks, whose batches are not yielded. A single one without parts.
        samplers: one sampler per thread; they may read stored samples.
        packed: the packed rows, if features are loaded from disk; their files are closed at the end of an epoch. None for a table.
    """

    def __init__(
        self,
        batching: Batching,
        kept: Sequence[Kept | None],
        samplers: Sequence[AnySampler],
        packed: PackedRows | None = None,
    ):
        super().__init__(batching)
        self.kept, self.samplers, self.packed = list(kept), list(samplers), packed

    def supplies(self, key: BatchKey) -> bool:
        """Returns whether a batch belongs to a part of this rank."""
        return self._part(key) is not None

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Holds the files of packed rows open."""
        with nullcontext() if self.packed is None else closing(self.packed):
            yield

    def _part(self, key: BatchKey) -> Kept | None:
        return self.kept[key.step % len(self.kept)]

    def _of(self, key: BatchKey) -> Kept:
        found = self._part(key)
        assert found is not None, "the batches of other ranks were left out"
        return found

    def tasks(self, planned: Sequence[PlannedBatch], epoch: int) -> list[Task]:
        """Returns the samplers, and the pruner behind them, which prunes a batch when it is asked for."""
        return [
            Task(
                name=SAMPLER,
                lanes=len(self.samplers),
                # Weights are those of the sampled block; transposes are made of the pruned block.
                prepare=Work("sample", lambda lane, item, _: self.batching.draw(self.samplers[lane], item, "none")),
                num_bytes=lambda item, blocks: block_bytes(blocks),
            ),
            Task(
                name=PRUNER,
                after=(SAMPLER,),
                ahead=0,
                prepare=Work("prune", lambda lane, item, blocks: self._pruned(item, blocks, epoch)),
                num_bytes=lambda item, made: self._num_bytes(made[0]),
                work=Work("gather", lambda lane, item, made: self._gathered(*made)),
            ),
        ]

    def _num_bytes(self, batch: MiniBatch) -> int:
        staged = 0 if self.packed is None else self.packed.some_bytes(len(batch.input_ids))
        return staged + batch_bytes(batch, self._of(batch.key).features.width, self.batching.dtype)

    def _pruned(self, item: PlannedBatch, blocks: tuple[Block, ...], epoch: int) -> tuple[MiniBatch, Ledger]:
        device, moved = self.batching.device, Ledger()
        with device.preparing():
            there = send_blocks(blocks, device, moved)
            slots = self._of(item.key).history.slots(there, self.batching.plan.step_of(epoch, item.position))
            pruned = prune(there, slots, self.batching.transpose)
        if device.remote:
            sizes = SIZE_BYTES * len(blocks)
            moved.crossed(SIZES, sizes)
        _count_pruned(blocks, pruned.blocks, moved)
        return self.batching.batch(item, epoch, pruned.blocks, origin=pruned.origin), moved

    def _gathered(self, batch: MiniBatch, moved: Ledger) -> tuple[MiniBatch, Ledger]:
        device, rows, features = self.batching.device, len(batch.input_ids), self._of(batch.key).features
        with device.preparing():
            batch.x = input_space(device, self.inputs, rows, features.width, self.batching.dtype)
            features.gather(batch.key, batch.input_ids, batch.origin, batch.x, moved)
            count_batch(batch, moved)
            if device.remote:
                (batch.labels,) = device.send([batch.labels.astype(np.int64)], LABELS, moved)
                device.hand_over(tensors_of(batch))
        return batch, moved


def _count_pruned(before: Sequence[Block], after: Sequence[Block], ledger: Ledger) -> None:
    """Counts by layer the rows that come from the history, and the sources and edges that pruning removed."""
    for layer, (old, new) in enumerate(zip(before, after, strict=True)):
        if layer:  # features are not in the history
            ledger.count("history_hits", layer, 0 if new.splice is None else len(new.splice.hist_pos))
        ledger.count("pruned_nodes", layer, old.num_src - new.num_src)
        ledger.count("pruned_edges", layer, len(old.indices) - len(new.indices))
