"""Stored batches whose rows come from packed chunks, in overlapping tasks (DiskGNN, section 5.3, Figure 7).

    graph loader     stored batch, checked; transposes, weights, labels       ->  graphs -------------------+
    feature loaders  packed chunk and cache pages from disk, checked          ->  staged                    |
    assembler        one gather from device, host and staged rows             ->  ready    -> training step +

Each task has one thread, except that six threads load features, in turn: while one compares its packed chunk with the digest or takes rows
out of cache pages, the others read, so the disk never pauses. Pieces of one packed chunk would not be enough: if a device reports all reads
of a group at once, as a virtual disk did, the first piece arrives no earlier than the last. A loader also requests the graph of its batch,
since a later request would wait behind all rows that are being read.

Rows of edges come the same way if they are packed: a feature loader stages the rows of inputs and of edges of a batch one after the other,
and the assembler gathers both. If they are not, the graph loader gathers them from their table, each edge's row once.

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
from graphmill.trainers.batches.edge_rows import give_rows
from graphmill.trainers.batches.flow import Task, Work
from graphmill.trainers.batches.source import PreparedSource
from graphmill.trainers.record.ledger import Ledger, Line
from graphmill.trainers.rows.cache import PackedRows
from graphmill.trainers.rows.packed_loader import MOST_WAITING, NUM_LOADERS, Staged
from graphmill.trainers.rows.source import RowIds, linked

TOPOLOGY = Line("disk", "topology")
GRAPH, FEATURE, ASSEMBLE = "graph loader", "feature loader", "assembler"


Loaded = tuple[Staged, Staged | None]
"""Staged rows of a batch's inputs, and of its edges if these are packed."""
Ready = tuple[torch.Tensor, torch.Tensor | None, Ledger]
"""Inputs of a batch, float[n, F], the rows of its edges, float[U, Fe], if these are packed, and the ledger of their transfers."""


class DiskSource(PreparedSource):
    """Supplies the batches of an epoch from disk, where `sampler` reads the stored `samples`."""

    def __init__(self, batching: Batching, rows: PackedRows, sampler: AnySampler, samples: Samples):
        super().__init__(batching)
        self.rows, self.sampler, self.samples, self.files = rows, sampler, samples, closing(self)
        edges = batching.edge_rows
        self.edges = edges if edges is not None and edges.packed is not None else None
        self.features = linked(rows, rows.device)
        self._x_row_bytes = rows.width * np.dtype(batching.dtype).itemsize

    def close(self) -> None:
        """Closes the files of rows; no thread may stage meanwhile."""
        self.rows.close()
        if self.edges is not None:
            self.edges.close()

    def joined(self, *results: Any) -> tuple[MiniBatch, Ledger]:
        """Returns a batch from its graph and its rows."""
        (batch, read), (batch.x, edge_rows, moved) = results
        if edge_rows is not None:
            assert len(edge_rows) == len(batch.edge_ids), "rows are packed in the order of the edges of a batch"
            give_rows(batch.blocks, edge_rows)
        read.merge(moved)
        return batch, read

    def tasks(self, planned: Sequence[PlannedBatch], epoch: int) -> list[Task]:
        """Returns the loader of graphs, and beside it the loaders of rows with the assembler behind them."""
        return [
            Task(
                name=GRAPH,
                prepare=Work("load graph", lambda lane, item, _: self._graph(item, epoch)),
                num_bytes=lambda item, graph: block_bytes(graph[0].blocks) + self._own_edge_bytes(graph[0]),
                most_waiting=MOST_WAITING,
            ),
            Task(
                name=FEATURE,
                lanes=NUM_LOADERS,
                num_bytes=lambda item, _: self.rows.staged_bytes(item.key) + self._staged_edge_bytes(item),
                work=Work("load rows", lambda lane, item, _: self._staged(item)),
                most_waiting=MOST_WAITING + NUM_LOADERS,
            ),
            Task(
                name=ASSEMBLE,
                after=(FEATURE,),
                num_bytes=lambda item, loaded: self._ready_bytes(*loaded),
                work=Work("assemble", lambda lane, item, loaded: self.assemble(*loaded)),
                most_waiting=MOST_WAITING,
            ),
        ]

    def load_graph(self, item: PlannedBatch, epoch: int = 0) -> tuple[MiniBatch, Ledger]:
        """Returns a batch with all but its rows, and the ledger of the reads; raises InputError if it is damaged, or another run's."""
        ledger, batch = Ledger(), draw_batch(self.batching, self.sampler, item, epoch)
        if self.edges is None:
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

    def _staged(self, item: PlannedBatch) -> Loaded:
        # Requested now, so that the batch's graph does not wait behind the rows of later batches.
        self.samples.will_read(item.key.epoch, item.key.step)
        staged = self.features.stage(item.key)
        try:
            return staged, None if self.edges is None else self.edges.stage(item.key)
        except BaseException:
            staged.release()
            raise

    def assemble(self, staged: Staged, edges: Staged | None = None) -> Ready:
        """Returns the inputs of a batch and the rows of its edges, from all tiers; releases the staged rows."""
        ledger, device, edge_rows = Ledger(), self.batching.device, None
        # The gather waits for the rows, since the memory of staged ones is lent again: the step need not join anything.
        with device.launching():
            x = device.rows(self.inputs, len(staged.slots), self.rows.width, self.batching.dtype)
            self.features.gather(RowIds(None, staged=staged), x, ledger)
            staged.release()
            if self.edges is not None and edges is not None:
                wanted = RowIds(None, staged=edges)
                edge_rows = self.edges.gather(wanted, len(edges.slots), device, ledger, self.inputs)
            device.hand_over([x])
        return x, edge_rows, ledger

    def _own_edge_bytes(self, batch: MiniBatch) -> int:
        """Returns the bytes of the rows of edges that the graph loader gathers."""
        return self.batching.edge_bytes(batch) if self.edges is None else 0

    def _staged_edge_bytes(self, item: PlannedBatch) -> int:
        return 0 if self.edges is None else self.edges.staged_bytes(item.key)

    def _ready_bytes(self, staged: Staged, edges: Staged | None) -> int:
        inputs = space_for(len(staged.slots) * self._x_row_bytes)
        return inputs + (space_for(self.edges.num_bytes(len(edges.slots))) if self.edges and edges else 0)
