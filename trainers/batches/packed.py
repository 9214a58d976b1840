"""Stored batches whose rows come from packed chunks, in overlapping tasks (DiskGNN, section 5.3, Figure 7).

    graph loader     stored batch, checked; transposes, weights, labels, rows of edges -> graphs ----------+
    feature loaders  packed chunk and cache pages from disk, checked          ->  staged                    |
    assembler        one gather from device, host and staged rows             ->  ready    -> training step +

Each task has one thread, except that six threads load features, in turn: while one compares its packed chunk with the digest or takes rows
out of cache pages, the others read, so the disk never pauses. Pieces of one packed chunk would not be enough: if a device reports all reads
of a group at once, as a virtual disk did, the first piece arrives no earlier than the last. A loader also requests the graph of its batch,
since a later request would wait behind all rows that are being read.

Rows of edges are not packed: the graph loader gathers them from their table, each edge's row once.

Between two tasks is a queue of two batches, also bounded in bytes (trainers/batches/flow.py). The slowest task decides the time of an
epoch.

Memory: a third of `queue` for each queue; the images of the static tiers; reused buffers of staging and of inputs, each no more than their
queue; for each loader space for `io_depth` ranges of 256 KiB.
"""

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np
import torch

from graphmill.assets.samples.read import Samples
from graphmill.kernels.rows.aligned import space_for
from graphmill.kernels.sampling.epoch_plan import PlannedBatch
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.trainers.batches.batch import (
    Batching,
    MiniBatch,
    block_bytes,
    count_batch,
    draw_batch,
    gather_edges,
    send_batch,
)
from graphmill.trainers.batches.flow import Task, Work
from graphmill.trainers.batches.source import PreparedSource
from graphmill.trainers.record.ledger import Ledger, Line
from graphmill.trainers.rows.cache import PackedRows
from graphmill.trainers.rows.packed_loader import MOST_WAITING, NUM_LOADERS, NUM_QUEUES, Staged
from graphmill.trainers.rows.source import RowIds, linked

TOPOLOGY = Line("disk", "topology")
GRAPH, FEATURE, ASSEMBLE = "graph loader", "feature loader", "assembler"


class DiskSource(PreparedSource):
    """Supplies the batches of an epoch from disk, where `sampler` reads the stored `samples`."""

    def __init__(self, batching: Batching, rows: PackedRows, sampler: AnySampler, samples: Samples):
        super().__init__(batching, batching.queue_bytes // NUM_QUEUES)
        self.rows, self.sampler, self.samples, self.files = rows, sampler, samples, closing(rows)
        self.features = linked(rows, rows.device)
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
                num_bytes=lambda item, graph: block_bytes(graph[0].blocks) + self.batching.edge_bytes(graph[0]),
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

    def load_graph(self, item: PlannedBatch, epoch: int = 0) -> tuple[MiniBatch, Ledger]:
        """Returns a batch with all but its rows, and the ledger of the reads; raises InputError if it is damaged, or another run's."""
        ledger, batch = Ledger(), draw_batch(self.batching, self.sampler, item, epoch)
        gather_edges(self.batching, self.batching.device, batch, ledger)
        ledger.crossed(TOPOLOGY, self.samples.record_bytes(item.key.epoch, item.key.step))
        # Counted here: between two steps each of these small operations might wait for the interpreter's lock.
        count_batch(batch, ledger)
        return batch, ledger

    def _graph(self, item: PlannedBatch, epoch: int) -> tuple[MiniBatch, Ledger]:
        batch, ledger = self.load_graph(item, epoch)
        with self.batching.device.launching() as launches:
            batch = send_batch(batch, self.batching.device, ledger)
        batch.launches = launches
        return batch, ledger

    def _staged(self, item: PlannedBatch) -> Staged:
        # Requested now, so that the batch's graph does not wait behind the rows of later batches.
        self.samples.will_read(item.key.epoch, item.key.step)
        return self.features.stage(item.key)

    def assemble(self, staged: Staged) -> tuple[torch.Tensor, Ledger]:
        """Returns float[n, F], the inputs of a batch from all tiers, and the ledger of the transfers; releases the staged rows."""
        ledger, device = Ledger(), self.batching.device
        # The gather waits for the rows, since the memory of staged ones is lent again: the step need not join anything.
        with device.launching():
            x = device.rows(self.inputs, len(staged.slots), self.rows.width, self.batching.dtype)
            self.features.gather(RowIds(None, staged=staged), x, ledger)
            device.hand_over([x])
        staged.release()
        return x, ledger
