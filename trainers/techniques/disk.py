"""The technique `disk`: stored batches whose rows come from packed chunks, in overlapping tasks (DiskGNN, section 5.3, Figure 7).

    graph loader     stored batch, checked; transposes, weights, labels       ->  graphs   ----------------+
    feature loaders  packed chunk and cache pages from disk, checked          ->  staged                    |
    assembler        one gather from device, host and staged rows             ->  ready    -> training step +

Each task has one thread, except that six threads load features, in turn: while one compares its packed chunk with the digest or takes rows
out of cache pages, the others read, so the disk never pauses. Pieces of one packed chunk would not be enough: if a device reports all reads
of a group at once, as a virtual disk did, the first piece arrives no earlier than the last. A loader also requests the graph of its batch,
since a later request would wait behind all rows that are being read.

Between two tasks is a queue of two batches, also bounded in bytes (trainers/batches/flow.py). The slowest task decides the time of an
epoch.

The batches are those of the online sampler, byte for byte, and a row is the same in every tier: losses equal those of `minibatch`. Memory:
a third of `queue` for each queue; the images of the static tiers; reused buffers of staging and of inputs, each no more than their queue;
for each loader space for `io_depth` ranges of 256 KiB.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing
from copy import copy
from typing import Any

import numpy as np
import torch

from graphmill.assets.packed_chunks.read import PackedChunks
from graphmill.assets.samples.read import Samples
from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.require import require
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.aligned import space_for
from graphmill.kernels.sampling.epoch_plan import EpochPlan, PlannedBatch
from graphmill.kernels.types import Block
from graphmill.trainers.batches.batch import MiniBatch, block_bytes, count_batch
from graphmill.trainers.batches.flow import Task, Work
from graphmill.trainers.batches.online import OnlineSource
from graphmill.trainers.batches.send import send_batch
from graphmill.trainers.batches.source import Batching, PreparedSource
from graphmill.trainers.batches.stored import StoredPlan, StoredSampler, batch_uses, planned_counts
from graphmill.trainers.devices.malloc import input_space
from graphmill.trainers.loop.executor import BatchExecutor, Run
from graphmill.trainers.record.checks import INPUTS, TO_DEVICE, count_name, move_name
from graphmill.trainers.record.ledger import Ledger, Line
from graphmill.trainers.rows.linked import LinkedSource
from graphmill.trainers.rows.packed import PackedRows
from graphmill.trainers.rows.packed_loader import MOST_WAITING, NUM_LOADERS, NUM_QUEUES, Staged, loader_reading
from graphmill.trainers.rows.source import FeatureSource, RowIds
from graphmill.trainers.techniques.disk_volumes import stored_volumes
from graphmill.trainers.techniques.minibatch import open_stored

TOPOLOGY = Line("disk", "topology")
GRAPH, FEATURE, ASSEMBLE = "graph loader", "feature loader", "assembler"


def open_executor(run: Run) -> DiskExecutor:
    """Returns the executor that trains the run's model on stored batches, one after the other.

    Raises:
        InputError: samples or packed chunks are missing, or are another run's.
    """
    sampler = open_stored(run)
    rows = open_packed(run, run.batching.queue_bytes // NUM_QUEUES)
    return DiskExecutor(run, DiskSource(run.batching, rows, sampler))


def open_packed(run: Run, pool_bytes: int, parts: Collection[int] | None = None) -> PackedRows:
    """Returns the rows of the run's stored batches, from packed chunks.

    Args:
        run: the run.
        pool_bytes: bound on the bytes of staging buffers that are kept for the next batch.
        parts: parts of the graph whose batches this process reads; None for all batches.

    Raises:
        InputError: packed chunks are missing, or are of other features.
    """
    execution = run.execution
    missing = {"cache_plan", "packed_chunks"} - run.reads.keys()
    if missing:
        asked = f'trainer = "{run.semantic.train.trainer}"'
        raise InputError(
            f"{asked}, but no {' and '.join(sorted(missing))} were given", "add tables [memory] and [cache_plan]"
        )
    # Only this check separates rows of other features from those of this run, since both name the same nodes. Of several ranks only the
    # first has the table itself; the others have shards that were made of it.
    features = run.inputs.get("features") or run.reads["shards"].inputs["features"]["version"]
    require(run.reads["packed_chunks"], {"inputs": {"features": features}})
    return PackedRows(
        PackedChunks(run.reads["packed_chunks"], run.reads["cache_plan"], run.reads["samples"], parts),
        run.features.stored,
        device=run.features.device,
        pool_bytes=pool_bytes,
        reading=loader_reading(
            parse_size(execution.io_window),
            method=execution.io,
            fallback=execution.io_fallback,
            depth=execution.io_depth,
        ),
    )


def from_packed(made: PreparedSource, rows: FeatureSource, packed: PackedRows | None) -> PreparedSource:
    """Returns the source of an evaluation's batches, which has packed rows if the batches are stored and so packed.

    Args:
        made: the source of the evaluation, with rows of the table.
        rows: the packed rows, behind the link of the device if it has one.
        packed: the same rows, whose files are closed when the evaluation ends; None if the run has none.
    """
    if packed is not None and isinstance(made, OnlineSource) and isinstance(made.batching.plan, StoredPlan):
        made.features, made.files = rows, closing(packed)
    return made


class DiskExecutor(BatchExecutor):
    """Trains on stored batches, one after the other; every number of its ledger is known before the training."""

    source: DiskSource

    def evaluation_source(self, plan: EpochPlan) -> PreparedSource:
        """Returns the source of an evaluation's batches: from disk as those of training, if they are stored and so packed."""
        made = super().evaluation_source(plan)
        if isinstance(made.batching.plan, StoredPlan):
            packed = copy(self.source)
            packed.batching = made.batching
            return packed
        return made

    def planned(self, epochs: int) -> dict[str, int]:
        """Returns the numbers of the cache plan and the samples."""
        return planned_reads(self.run, open_stored(self.run).samples, epochs)


def planned_reads(run: Run, samples: Samples, epochs: int) -> dict[str, int]:
    """Returns the numbers that the ledger of all ranks has after training epochs on packed rows, from the cache plan and the samples.

    Args:
        run: the run.
        samples: its stored batches.
        epochs: number of training epochs.
    """
    counts = planned_counts(run.plan, epochs, samples)
    times = batch_uses(run.plan, epochs, samples)
    found = stored_volumes(
        samples, run.reads["cache_plan"], run.reads["packed_chunks"], times, run.features.stored.row_bytes
    )
    moved = {move_name("disk", kind): num_bytes for kind, num_bytes in found.disk.items()}
    return {
        INPUTS: counts[INPUTS],
        **moved,
        **counts,
        **{count_name(name, 0): n for name, n in found.rows.items()},
        move_name("disk", "feature", "asked"): found.read_bytes,
        TO_DEVICE: found.to_device,
    }


class DiskSource(PreparedSource):
    """Supplies the batches of an epoch from disk.

    Args:
        batching: the run's batching.
        rows: the source of the stored batches' rows.
        sampler: the sampler that reads the stored batches.
    """

    def __init__(self, batching: Batching, rows: PackedRows, sampler: StoredSampler):
        super().__init__(batching, batching.queue_bytes // NUM_QUEUES)
        self.rows, self.sampler, self.files = rows, sampler, closing(rows)
        link = rows.device.link("h2d")
        self.features = rows if link is None else LinkedSource(rows, link)
        self._x_row_bytes = rows.width * np.dtype(batching.dtype).itemsize

    def joined(self, *results: Any) -> tuple[MiniBatch, Ledger]:
        """Returns a batch from its graph and its rows."""
        (batch, read), (batch.x, moved) = results
        read.merge(moved)
        return batch, read

    def tasks(self, planned: Sequence[PlannedBatch], epoch: int) -> list[Task]:
        """Returns the loader of graphs, and beside it the loaders of rows with the assembler behind them."""
        return [
            Task(
                name=GRAPH,
                prepare=Work("load graph", lambda lane, item, _: self._graph(item, epoch)),
                num_bytes=lambda item, graph: block_bytes(graph[0].blocks),
                most_waiting=MOST_WAITING,
            ),
            Task(
                name=FEATURE,
                lanes=NUM_LOADERS,
                num_bytes=lambda item, _: self.rows.staged_bytes(item.key),
                work=Work("load rows", lambda lane, item, _: self._staged(item)),
                most_waiting=MOST_WAITING + NUM_LOADERS,
            ),
            Task(
                name=ASSEMBLE,
                after=(FEATURE,),
                num_bytes=lambda item, staged: space_for(len(staged.slots) * self._x_row_bytes),
                work=Work("assemble", lambda lane, item, staged: self.assemble(staged)),
                most_waiting=MOST_WAITING,
            ),
        ]

    def load_graph(self, item: PlannedBatch) -> tuple[tuple[Block, ...], Ledger]:
        """Returns the blocks of a batch with transposes and weights, and the ledger of the reads.

        Raises:
            InputError: the batch is damaged, or another run's.
        """
        ledger, blocks = Ledger(), self.batching.draw(self.sampler, item)
        num_read = self.sampler.samples.record_bytes(item.key.epoch, item.key.step)
        ledger.crossed(TOPOLOGY, num_read)
        return blocks, ledger

    def _graph(self, item: PlannedBatch, epoch: int) -> tuple[MiniBatch, Ledger]:
        blocks, ledger = self.load_graph(item)
        # Labels and counts are made here: between two steps each of these small operations might wait for the interpreter's lock.
        batch = self.batching.batch(item, epoch, blocks)
        count_batch(batch, ledger)
        with self.batching.device.preparing():
            return send_batch(batch, self.batching.device, ledger), ledger

    def _staged(self, item: PlannedBatch) -> Staged:
        # Requested now, so that the batch's graph does not wait behind the rows of later batches.
        self.sampler.samples.will_read(item.key.epoch, item.key.step)
        return self.features.stage(item.key)

    def assemble(self, staged: Staged) -> tuple[torch.Tensor, Ledger]:
        """Returns float[n, F], the inputs of a batch from all tiers, and the ledger of the transfers; releases the staged rows."""
        ledger = Ledger()
        device = self.batching.device
        with device.preparing():
            x = input_space(device, self.inputs, len(staged.slots), self.rows.width, self.batching.dtype)
            self.features.gather(RowIds(None, staged=staged), x, ledger)
            device.hand_over([x])
        staged.release()
        return x, ledger
