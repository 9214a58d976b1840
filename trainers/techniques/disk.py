"""The disk trainer's source: stored batches whose rows come from packed chunks, in overlapping stages (DiskGNN, section 5.3, Figure 7).

    graph loader     stored batch, checked; transposes, weights, labels       ->  graphs   ----------------+
    feature loaders  chunk and cache pages from disk, checked                 ->  staged                    |
    assembler        one gather from device, host and staged rows             ->  ready    -> training step +

A thread a stage, but six that load features, in turn: while one compares its chunk with the digest or takes rows out of cache pages the
others read, which leaves the disk no pause. Pieces of one chunk would not do: where a device reports all reads that it was given
together at once, as a virtual disk was seen to do, the first piece is there no earlier than the last one. A loader asks for the graph of
its batch as well, for a read that is asked for later waits behind all the rows that are under way.

Between two stages is a queue of two batches, bounded in bytes as well. All stages take the batches in the same order, so
the heads of both paths that end at the step are the same batch. The longest stage decides how long an epoch takes.

The batches are those of the online sampler, byte for byte, and a row is the same wherever it was stored: losses equal those of `minibatch`.
Memory: a third of `queue` for each queue; the images of the static tiers; kept buffers of staging and of inputs, each no more than
their queue; for each loader room for `io_depth` runs of 256 KiB.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from assets.packed_chunks.read import Chunks
from assets.storage.read_verified import read_rows, read_table
from kernels.rows.aligned import BufferPool, room
from kernels.rows.direct_io import ReadExecution
from kernels.rows.gather import gather_tiered
from kernels.rows.slots import DEVICE, HOST, ROW_BITS, Tiers
from kernels.sampling.epoch_plan import EpochPlan, PlannedBatch
from kernels.sampling.sample import Transposes
from kernels.types import Array, Block, Topology
from trainers.batches.batch import MiniBatch, attach_weights, block_bytes, count_batch, planned_batch
from trainers.batches.queue import Closed, OrderedByteQueue
from trainers.batches.stored import StoredSampler
from trainers.devices.link import Link
from trainers.devices.logical import LogicalDevice
from trainers.devices.malloc import lent_rows
from trainers.record.ledger import Ledger, Line
from trainers.record.timeline import STEP, WAIT, Timeline
from trainers.rows.cache import D2D
from trainers.rows.packed import ChunkLoader, Staged
from trainers.rows.source import H2D

MOST_WAITING = 2
"""Batches in a queue (DiskGNN, section 6)."""

NUM_LOADERS = 6
"""Threads that load features."""

TOPOLOGY = Line("disk", "topology")
GRAPH, FEATURE, ASSEMBLE = "graph loader", "feature loader", "assembler"


class DiskSource:
    """Supplies the batches of an epoch from disk.

    Args:
        sampler: reads the stored batches.
        chunks: has their rows.
        width, dtype, row_bytes: of the feature table.
        topology, labels: of the graph, for coefficients and losses.
        plan: which batch comes when.
        edge_weight, transpose: what the model asks for on blocks.
        ledger: gets what every batch that the step took has moved.
        queue_bytes: bound on everything that waits.
        reading: how files are read.
        device: holds the device image.
        link: between host and device, None for none.
        threads: of the assembling gather.
        timeline: gets the spans of every stage.
    """

    def __init__(
        self,
        *,
        sampler: StoredSampler,
        chunks: Chunks,
        width: int,
        dtype: str,
        row_bytes: int,
        topology: Topology,
        labels: Array,
        plan: EpochPlan,
        edge_weight: str | None,
        transpose: Transposes,
        ledger: Ledger,
        queue_bytes: int,
        reading: ReadExecution,
        device: LogicalDevice,
        link: Link | None = None,
        threads: int = 1,
        timeline: Timeline | None = None,
    ):
        self.sampler, self.chunks, self.topology, self.labels, self.plan = sampler, chunks, topology, labels, plan
        self.width, self.dtype, self.row_bytes = width, dtype, row_bytes
        self.transpose: Transposes = transpose
        self.edge_weight, self.ledger, self.queue_bytes = edge_weight, ledger, queue_bytes
        self.reading, self.link, self.threads, self.timeline = reading, link, threads, timeline or Timeline()
        image = chunks.device_image
        self.device_rows = device.alloc_rows(image.num_rows, width, np.dtype(image.dtype))
        read_rows(image, [(np.arange(image.num_rows), self.device_rows.numpy())])
        self.host_rows = read_table(chunks.host_image)
        self._pool, self._inputs = BufferPool(queue_bytes // 3), BufferPool(queue_bytes // 3)

    def batches(self, epoch: int, start_position: int = 0) -> Iterator[MiniBatch]:
        """Yields the batches of a training epoch in step order, from a position on.

        A batch's bytes are released when the next one is asked for.
        """
        planned = list(self.plan.batches(epoch, start_position))
        graphs: OrderedByteQueue[tuple[MiniBatch, Ledger]] = self._queue(start_position)
        staged: OrderedByteQueue[Staged] = self._queue(start_position, MOST_WAITING + NUM_LOADERS)
        ready: OrderedByteQueue[tuple[torch.Tensor, Ledger]] = self._queue(start_position)
        queues = graphs, staged, ready
        loaders = [partial(self._load_rows, number, planned, staged) for number in range(NUM_LOADERS)]
        works: tuple[Callable[[], None], ...] = (
            *loaders,
            lambda: self._load_graphs(epoch, planned, graphs),
            lambda: self._assemble(planned, staged, ready),
        )
        threads = [threading.Thread(target=_guarded, args=(work, queues), daemon=True) for work in works]
        for thread in threads:
            thread.start()
        try:
            for item in planned:
                with self.timeline.span(STEP, WAIT, item.position):
                    (batch, read), graph_bytes = graphs.take(item.position)
                    (batch.x, moved), x_bytes = ready.take(item.position)
                self.ledger.merge(read)
                self.ledger.merge(moved)
                yield batch
                del batch
                graphs.release(graph_bytes)
                ready.release(x_bytes)
        finally:
            for each in queues:
                each.close()
            for thread in threads:
                thread.join()

    def _queue(self, first: int, most_items: int = MOST_WAITING) -> OrderedByteQueue[Any]:
        return OrderedByteQueue(self.queue_bytes, first=first, most_items=most_items, share=3)

    def number(self, item: PlannedBatch) -> int:
        """Returns a batch's number among all stored ones."""
        return item.key.epoch * self.plan.num_batches + item.key.step

    def open_loader(self) -> ChunkLoader:
        """Returns what loads rows, for one thread; close it."""
        return ChunkLoader(self.chunks, self.width, self.dtype, self.row_bytes, self._pool, self.reading)

    def load_graph(self, item: PlannedBatch) -> tuple[tuple[Block, ...], Ledger]:
        """Returns the blocks of a batch with transposes and weights, and what reading them moved.

        Raises:
            InputError: the batch is damaged, or another run's.
        """
        ledger = Ledger()
        blocks = self.sampler.sample(item.key, item.seeds, transpose=self.transpose)
        attach_weights(blocks, self.topology, self.edge_weight)
        num_read = self.sampler.samples.record_bytes(item.key.epoch, item.key.step)
        ledger.move(TOPOLOGY, requests=1, asked_bytes=num_read, moved_bytes=num_read)
        return blocks, ledger

    def _load_graphs(
        self, epoch: int, planned: list[PlannedBatch], graphs: OrderedByteQueue[tuple[MiniBatch, Ledger]]
    ) -> None:
        for item in planned:
            with self.timeline.span(GRAPH, "load graph", item.position):
                blocks, ledger = self.load_graph(item)
                # Labels and counts here: between two steps each of these small operations may wait for the interpreter's lock.
                batch = planned_batch(item, epoch, self.labels, blocks)
                count_batch(batch, ledger)
            num_bytes = block_bytes(blocks)
            with self.timeline.span(GRAPH, WAIT, item.position):
                graphs.admit(item.position, num_bytes)
            graphs.put(item.position, (batch, ledger), num_bytes)
            del batch, blocks, ledger

    def _load_rows(self, which: int, planned: list[PlannedBatch], staged: OrderedByteQueue[Staged]) -> None:
        loader, lane = self.open_loader(), f"{FEATURE} {which}"
        try:
            for item in planned[which::NUM_LOADERS]:
                num_bytes = loader.num_bytes(self.number(item))
                with self.timeline.span(lane, WAIT, item.position):
                    staged.admit(item.position, num_bytes)
                with self.timeline.span(lane, "load rows", item.position):
                    # Asked for now, the batch's graph does not wait behind the rows of later batches.
                    self.sampler.samples.will_read(item.key.epoch, item.key.step)
                    rows = loader.load(self.number(item))
                staged.put(item.position, rows, num_bytes)
        finally:
            loader.close()

    def _assemble(
        self,
        planned: list[PlannedBatch],
        staged: OrderedByteQueue[Staged],
        ready: OrderedByteQueue[tuple[torch.Tensor, Ledger]],
    ) -> None:
        for item in planned:
            with self.timeline.span(ASSEMBLE, WAIT, item.position):
                rows, staged_bytes = staged.take(item.position)
                x_bytes = room(4 * len(rows.slots) * self.width)
                ready.admit(item.position, x_bytes)
            with self.timeline.span(ASSEMBLE, "assemble", item.position):
                x = self.gather(rows)
                ledger = rows.ledger
                rows.release()
                del rows
            staged.release(staged_bytes)
            ready.put(item.position, (x, ledger), x_bytes)

    def gather(self, staged: Staged) -> torch.Tensor:
        """Returns f32[n, F], the inputs of a batch from all tiers; its ledger gets what crossed the link."""
        since = self.link.now() if self.link else 0
        x = lent_rows(self._inputs, len(staged.slots), self.width)
        tiers = Tiers(device=self.device_rows.numpy(), host=self.host_rows, staged=staged.rows)
        gather_tiered(staged.slots, tiers, x.numpy(), threads=self.threads)
        tier = staged.slots >> ROW_BITS
        device, host = (int(np.count_nonzero(tier == each)) for each in (DEVICE, HOST))
        ledger, crossed = staged.ledger, (host + len(staged.rows)) * self.row_bytes
        ledger.count("hits_device", 0, device)
        ledger.count("hits_host", 0, host)
        for line, num_bytes in ((D2D, device * self.row_bytes), (H2D, crossed)):
            if num_bytes:
                ledger.move(line, requests=1, asked_bytes=num_bytes, moved_bytes=num_bytes)
        if self.link:
            self.link.carry(crossed, since)
        return x


def _guarded(work: Callable[[], None], queues: tuple[OrderedByteQueue[Any], ...]) -> None:
    """Runs a stage; its error ends all queues, and reaches the step."""
    try:
        work()
    except Closed:
        pass
    except BaseException as error:
        for queue in queues:
            queue.fail(error)
