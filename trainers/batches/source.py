"""Sources of mini-batches: the base class, which prepares batches ahead of the step, the online source, and that of packed rows.

A source defines the tasks that prepare a batch, and joins the results of the last ones; `PreparedSource` runs them ahead of the step.

Online, each thread owns a sampler and works on the batches whose number is its own modulo the number of threads. Every random decision is
keyed by the batch, so any number of threads delivers the same bytes. A device draws on one thread (trainers/batches/on_device.py).

Memory: the queue's bound, one sampled but not yet admitted batch of blocks per thread, and 8 bytes per node of scratch per thread. Input
rows lie in buffers from a pool, which may be an eighth larger than the rows; returned buffers take no memory beyond what was lent at once.

Stored batches whose rows come from packed chunks, in overlapping tasks (DiskGNN, section 5.3, Figure 7).

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

from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

import numpy as np
import torch

from graphmill.assets.samples.read import Samples
from graphmill.kernels.rows.aligned import BufferPool, space_for
from graphmill.kernels.sampling.epoch_plan import EpochPlan, PlannedBatch
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.trainers.batches.batch import (
    Batching,
    Drawer,
    MiniBatch,
    block_bytes,
    count_batch,
    draw_batch,
    extract_batch,
    gather_edges,
    lanes_of,
    mark_batch,
    send_batch,
)
from graphmill.trainers.batches.edge_rows import give_rows
from graphmill.trainers.batches.flow import Closable, Task, Work, flow
from graphmill.trainers.record.ledger import Ledger, Line
from graphmill.trainers.rows.cache import PackedRows
from graphmill.trainers.rows.packed_loader import MOST_WAITING, NUM_LOADERS, Staged
from graphmill.trainers.rows.source import FeatureSource, RowIds, linked

SAMPLER = "sampler"


class PreparedSource:
    """Supplies mini-batches that the tasks of a flow prepare ahead of the step.

    Attributes:
        num_parts, parts: number of parts of the plan, and those whose batches this source supplies.
        files: context that holds open the files that the tasks of an epoch read.
        shared: number of rows that are held in memory for all batches of an evaluation.
        in_turn: batches are prepared one by one when they are asked for, instead of ahead of the step on threads.
        waits: waits of the step for the tasks of an epoch, besides those for batches (trainers/batches/flow.py).
    """

    num_parts: int = 1
    parts: Collection[int] = (0,)
    waits: Sequence[Closable] = ()

    def __init__(self, batching: Batching):
        self.batching = batching
        self.inputs = BufferPool()
        self.files: AbstractContextManager[Any] = nullcontext()
        self.in_turn, self.shared = False, 0

    def batches(self, epoch: int, start_position: int = 0, every: int = 1) -> Generator[MiniBatch, None, None]:
        """Yields the batches of a training epoch in step order, from a position on; of several, one.

        The bytes of a batch are released when the next one is asked for.

        Args:
            every: number of batches of which the first is yielded.
        """
        batching = self.batching
        planned = [*batching.plan.batches(epoch, start_position)][::every]
        planned = [item for item in planned if item.key.step % self.num_parts in self.parts]
        bounds = batching.queue_bytes, batching.timeline, batching.most_queue_bytes
        tasks = self.tasks(planned, epoch)
        # The flow ends before its files close: its threads read them.
        with self.files, closing(flow(planned, tasks, *bounds, self.in_turn, self.waits)) as prepared:
            try:
                for _, results in prepared:
                    batch, moved = self.joined(*results)
                    batch.join()
                    batching.ledger.merge(moved)
                    yield batch
                    del batch, moved, results
            finally:
                self.stop()

    def tasks(self, planned: Sequence[PlannedBatch], epoch: int) -> Sequence[Task]:
        """Returns the tasks that prepare the planned batches of a training epoch."""
        raise NotImplementedError

    def stop(self) -> None:
        """Ends the waits of tasks besides those for queues; called before the flow waits for its threads."""
        return

    def joined(self, *results: Any) -> tuple[MiniBatch, Ledger]:
        """Returns a batch, ready for the step, and the ledger of its transfers, from the results of the flow's last tasks."""
        ((batch, moved),) = results
        return batch, moved


class OnlineSource(PreparedSource):
    """Samples and gathers the batches of an epoch on threads.

    Args:
        samplers: one sampler per thread, which may read stored samples; or one that draws on the device.
        in_turn: prepares each batch when it is asked for, by the first sampler, see `PreparedSource`.
    """

    def __init__(
        self,
        batching: Batching,
        features: FeatureSource,
        samplers: Sequence[AnySampler | Drawer],
        in_turn: bool = False,
    ):
        super().__init__(batching)
        self.features, self.samplers, self.in_turn = features, list(samplers), in_turn

    def tasks(self, planned: Sequence[PlannedBatch], epoch: int) -> list[Task]:
        """Returns the one task of the threads that sample and gather."""
        pooled = self.batching, self.features, self.batching.device, self.inputs
        lanes = lanes_of(self.samplers)
        return [
            Task(
                name=SAMPLER,
                lanes=lanes,
                **self.batching.waiting(lanes),
                prepare=Work("sample", lambda lane, item, _: self._sampled(lane, item, epoch)),
                num_bytes=lambda item, batch: self.batching.num_bytes(batch, self.features.width),
                work=Work("gather", lambda lane, item, batch: extract_batch(*pooled, batch)),
            )
        ]

    def _sampled(self, lane: int, item: PlannedBatch, epoch: int) -> MiniBatch:
        batch = draw_batch(self.batching, self.samplers[lane], item, epoch)
        mark_batch(batch, self.features)
        return batch


EvaluationSource = Callable[[EpochPlan], PreparedSource]
"""A function that returns the source of the batches of an evaluation's plan."""


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
