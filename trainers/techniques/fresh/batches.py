"""Mini-batches that the history of embeddings makes smaller: sampled ahead, pruned and gathered behind the update (FreshGNN, section 5).

    sampler 0..k    blocks and weights of later batches, drawn or read from stored samples, and sent to the device
    pruner          lookup, pruning, transposes, then the rows of the inputs that are left; begins when its batch is asked for, with
                    `lookahead = 1` when the batch before it is (ahead.py)

A device with memory of its own gets the sampled blocks ahead of the step and does the rest: lookup, pruning, transposes, and finding the
rows of the arena. It sends back the remaining sizes, and with them the ids of inputs whose rows the host finds: the one wait of a batch.
An update's launches are joined by the lookups behind it, and copies for a later batch by the update that may overwrite what they read, so
neither waits.

The nodes that a batch may leave out depend on the update before it, so sampling and sending alone run ahead of the step. The result of a
lookup depends only on the batch's optimiser step: all batches of a step group look up before the group's one update, and the history
changes nowhere else.

Memory: half of the queue's bound for sampled blocks, half for the batch that is trained on and, with lookahead, the next one; 24 MiB at
most for the rows of each on their way (arena_rows.py); as online besides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from graphmill.kernels.cuda.device import on_device
from graphmill.kernels.errors import InputError
from graphmill.kernels.history.csr2 import prune
from graphmill.kernels.rows.aligned import BufferPool
from graphmill.kernels.sampling.epoch_plan import PlannedBatch
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.kernels.types import Block
from graphmill.trainers.batches.batch import (
    Batching,
    Drawer,
    MiniBatch,
    block_bytes,
    count_batch,
    draw_batch,
    gather_edges,
    lanes_of,
    send_batch,
    send_blocks,
)
from graphmill.trainers.batches.edge_rows import place_edges
from graphmill.trainers.batches.flow import Task, Work
from graphmill.trainers.batches.source import SAMPLER, PreparedSource
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.cache import PackedRows
from graphmill.trainers.rows.source import FeatureSource
from graphmill.trainers.techniques.fresh.ahead import Decision, Decisions, with_copies
from graphmill.trainers.techniques.fresh.arena_rows import ArenaRows
from graphmill.trainers.techniques.fresh.history import SENT, SteppedHistory

PRUNER = "pruner"


class PrunedSource(PreparedSource):
    """Samples ahead on threads; prunes and gathers a batch when it is asked for.

    Args:
        histories: part -> the history of rows that need not be computed; batches of other parts are not supplied.
        num_parts: number of parts of all ranks; 1 without parts.
        below: the source of rows that the arenas of the histories do not have.
        samplers: one sampler per thread, which may read stored samples; or one that draws on the device.
        packed: the packed rows, if features are loaded from disk; their files are closed at the end of an epoch. None for a table.
        lookahead: batches by which lookups run ahead of the step, 0 or 1.

    Attributes:
        decisions: the decisions of the present epoch; unused without lookahead.
        restored: the decision of a checkpoint, until the batch that it is about is pruned.
    """

    def __init__(
        self,
        batching: Batching,
        histories: Mapping[int, SteppedHistory],
        num_parts: int,
        below: FeatureSource,
        samplers: Sequence[AnySampler | Drawer],
        packed: PackedRows | None = None,
        lookahead: int = 0,
    ):
        super().__init__(batching)
        self.lookahead, self.decisions = lookahead, Decisions()
        self.restored: Decision | None = None
        self.num_parts, self.parts, self.histories = num_parts, histories.keys(), histories
        self.samplers, self.packed, self.width = list(samplers), packed, below.width
        self.collective, self._before = below.collective, dict[int, int]()
        self.pruners = {
            part: Pruner(batching, history, below, packed is not None) for part, history in histories.items()
        }
        if packed is not None:
            self.files = closing(packed)

    def await_decision(self, position: int) -> None:
        """Waits until the batch at a position is decided: only then may an update change the history, behind the copies of its rows."""
        if self.lookahead and position < self.batching.plan.num_batches:
            self.decisions.wait_for(position)
            self.decisions.launches.join()

    def tasks(self, planned: Sequence[PlannedBatch], epoch: int) -> list[Task]:
        """Returns the samplers, and the pruner behind them, which prunes a batch when it or the one before it is asked for.

        Raises:
            InputError: it begins within an epoch, and the checkpoint has no decision about that batch.
        """
        self._begin(planned, epoch)
        sends = any(on_device(each.memory) for each in self.histories.values())
        send = Work("h2d", lambda lane, item, batch: self._sent(batch))

        def drawn(lane: int, item: PlannedBatch, _: None) -> MiniBatch:
            # Weights are those of the sampled block; transposes are made of the pruned block.
            return draw_batch(self.batching, self.samplers[lane], item, epoch, "none", pruned=True)

        return [
            Task(
                name=SAMPLER,
                lanes=lanes_of(self.samplers),
                prepare=Work("sample", drawn),
                num_bytes=lambda item, batch: block_bytes(batch.blocks),
                work=send if sends and not isinstance(self.samplers[0], Drawer) else None,
            ),
            Task(
                name=PRUNER,
                after=(SAMPLER,),
                # A batch is decided and read while the rows of the one before it still cross to the device.
                lanes=0 if self.collective else 2 * self.lookahead,
                ahead=self.lookahead,
                prepare=Work("prune", lambda lane, item, batch: self._pruned(batch)),
                num_bytes=lambda item, batch: self.batching.num_bytes(batch, self.width),
                work=Work("gather", lambda lane, item, batch: self._pruner(batch).gathered(batch, self.inputs)),
            ),
        ]

    def _pruner(self, batch: MiniBatch) -> Pruner:
        return self.pruners[batch.key.step % self.num_parts]

    def joined(self, *results: Any) -> tuple[MiniBatch, Ledger]:
        """Returns a batch, ready for the step, and the ledger of its transfers."""
        batch, moved = super().joined(*results)
        self.decisions.taken = batch.position
        return batch, moved

    def _begin(self, planned: Sequence[PlannedBatch], epoch: int) -> None:
        """Begins the decisions of an epoch, or of the rest of one."""
        if not self.lookahead:
            return
        self.decisions = Decisions()
        self.waits = (self.decisions,)
        positions = [item.position for item in planned]
        first, self._before = positions[0] if positions else 0, dict(zip(positions[1:], positions, strict=False))
        if self.restored is not None and self.restored.place != (epoch, first):
            self.restored = None
        if first and self.restored is None:
            problem = f"the checkpoint has no decision about batch {first:,} of epoch {epoch + 1:,}"
            raise InputError(problem, "train without --resume")

    def _pruned(self, batch: MiniBatch) -> MiniBatch:
        pruner = self._pruner(batch)
        if not self.lookahead:
            return pruner.pruned(batch)
        if (before := self._before.get(batch.position)) is not None:  # it is decided on the other lane
            self.decisions.wait_for(before)
        restored, self.restored = self.restored, None
        batch, device = pruner.pruned(batch, copies=True, decision=restored), self.batching.device
        with device.launching() as launches:
            batch.join(device)
            decision = Decision.of(batch)
            device.hand_over(decision.tensors)  # the step may write them to a checkpoint
        self.decisions.put(decision, launches)
        return batch

    def _sent(self, batch: MiniBatch) -> MiniBatch:
        """Returns a sampled batch whose blocks are on the device."""
        moved = Ledger()
        with self.batching.device.launching() as launches:
            blocks = send_blocks(batch.blocks, self.batching.device, moved)
        return replace(batch, blocks=blocks, moved=moved, launches=launches)


class Pruner:
    """Prunes batches by a history, and gathers the rows of what is left; belongs to one thread.

    Args:
        history: the history of rows that need not be computed.
        below: the source of rows that the arena of the history does not have.
        stages: whether that source reads by the places that inputs had before the batch was pruned.
    """

    def __init__(self, batching: Batching, history: SteppedHistory, below: FeatureSource, stages: bool):
        self.batching, self.history = batching, history
        arena = history.arena if history.settings.features else None
        threads = history.run.semantic.train.num_threads
        self.rows = ArenaRows(below, arena, batching.device, stages=stages, threads=threads)

    def pruned(self, batch: MiniBatch, copies: bool = False, decision: Decision | None = None) -> MiniBatch:
        """Returns a batch, whose blocks are on the device, without what the history makes unnecessary; `moved` has the counts, too.

        Args:
            copies: whether its splices hold copies of the embeddings that it reads.
            decision: the embeddings that it reads; None looks them up.
        """
        device, blocks, moved, history = self.batching.device, batch.blocks, batch.moved or Ledger(), self.history
        with device.launching() as launches:
            history.updated.join()
            batch.join(device)
            if decision is None:
                step = self.batching.plan.step_of(batch.train_epoch, batch.position)
                slots = history.slots(blocks, step, self.batching.ends_of(batch))
            else:
                slots = decision.slots(blocks, history.arena.num_nodes, device, SENT)
            # If the host finds the rows, it must know the inputs, and how far embeddings have reached into the features.
            beside = history.arena.ring if on_device(history.memory) and self.rows.found_here else None
            pruned = prune(blocks, slots, self.batching.transpose, self.rows.threads, beside)
            left = pruned.blocks
            if copies:
                whole = dict.fromkeys(range(len(left)), history.arena.embeddings)
                left = with_copies(left, whole if decision is None else decision.rows)
        moved.carried(pruned.traffic, "ids")
        _count_pruned(blocks, left, moved)
        changed: dict[str, Any] = {
            "origin": pruned.origin,
            "inputs": pruned.inputs,
            "moved": moved,
            "launches": launches,
        }
        if self.batching.edge_rows is not None:
            changed["edge_ids"] = place_edges(left)
        return replace(batch, blocks=left, **changed)

    def gathered(self, batch: MiniBatch, inputs: BufferPool) -> tuple[MiniBatch, Ledger]:
        """Returns a pruned batch with its rows, ready for the step, and the ledger of its transfers and counts; `inputs` lends memory."""
        device, rows, moved = self.batching.device, self.rows, batch.moved or Ledger()
        with device.launching() as launches:
            batch.join(device)
            batch.x = device.rows(inputs, len(batch.input_ids), rows.width, self.batching.dtype)
            rows.gather(batch, batch.x, moved)
            gather_edges(self.batching, device, batch, moved, inputs)
            count_batch(batch, moved)
            batch = send_batch(batch, device, moved)
        batch.launches = launches
        return batch, moved


def _count_pruned(before: Sequence[Block], after: Sequence[Block], ledger: Ledger) -> None:
    """Counts by layer the rows that come from the history, and the sources and edges that pruning removed."""
    for layer, (old, new) in enumerate(zip(before, after, strict=True)):
        if layer:  # features are not in the history
            ledger.count("history_hits", layer, 0 if new.splice is None else len(new.splice.hist_pos))
        ledger.count("pruned_nodes", layer, old.num_src - new.num_src)
        ledger.count("pruned_edges", layer, len(old.indices) - len(new.indices))
