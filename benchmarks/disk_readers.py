"""How systems get the input rows of a batch from disk, for one loop that is the same for all: `benchmarks.disk_systems`.

    OnDisk      DGL on disk: a pread for each row
    Ginex       a cache by Belady's algorithm; a request of io_uring for each row that misses it
    Resident    MariusGNN: the partitions of an epoch by large reads, then samples among them (`disk_resident`)
    Packed      DiskGNN: one packed chunk of a batch, and the rows on the host

All files are read past the page cache. Rows that a cache holds are taken from a copy of the table in memory, whose bytes are not limited:
what a cache may hold is a number of rows. Each one counts the bytes that it reads and the seconds that it waits for them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.disk_baselines import belady_misses
from benchmarks.disk_inputs import SEED, THREADS, Case
from benchmarks.disk_resident import EDGE_BYTES, ResidentSampler, partition_nodes, resident_graph, resident_parts
from graphmill.assets.packed_chunks.read import PackedChunks
from graphmill.assets.samples.read import open_samples
from graphmill.kernels.rows.direct_io import PageReader, ReadExecution
from graphmill.kernels.rows.gather import gather
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Transposes
from graphmill.kernels.types import Array, Block
from graphmill.trainers.batches.stored import StoredSampler
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.cache import PackedRows
from graphmill.trainers.rows.packed_loader import loader_reading

DEPTH = 64
PIECE_BYTES = 4 << 20


class Loaded(NamedTuple):
    """A batch with its input rows.

    Attributes:
        seeds: ids[b], global.
        blocks: its blocks.
        x: float32[n, F], its input rows.
    """

    seeds: Array
    blocks: tuple[Block, ...]
    x: torch.Tensor


class _Asked(NamedTuple):
    """The request for the rows of a packed batch."""

    input_ids: Array
    slots: Array | None
    staged: Any


class Reader:
    """The part that all systems share: batches, the table in memory, and the clock of the reads.

    Args:
        case: graph, features and stored batches.

    Attributes:
        moved_bytes, seconds: bytes that were read, and seconds of waiting for them, since `begin`.
        transpose: the blocks that get a transpose, as the model's backward pass needs them.
    """

    def __init__(self, case: Case):
        self.case, self.graph = case, case.opened
        self.table = np.array(self.graph.features.open())
        self.samples = StoredSampler(open_samples(case.samples))
        batch_size = case.samples.config["batch_size"]
        self.plan = list(EpochPlan(np.array(self.graph.train_ids), batch_size, seed=SEED, reuse=1).batches(0))
        self.moved_bytes, self.seconds = 0, 0.0
        self.transpose: Transposes = "hidden"

    def begin(self) -> None:
        """Begins an epoch."""
        self.moved_bytes, self.seconds = 0, 0.0

    def load(self, place: int) -> Loaded:
        """Returns the batch at a place of the epoch."""
        item = self.plan[place]
        blocks = self.samples.sample(item.key, item.seeds, transpose=self.transpose)
        return Loaded(item.seeds, blocks, torch.from_numpy(self.rows(item.key.step, blocks[0].src_ids)))

    def rows(self, number: int, ids: Array) -> Array:
        """Returns float32[n, F], the rows of the inputs of the batch of a number."""
        raise NotImplementedError

    def gathered(self, ids: Array) -> Array:
        """Returns rows of the table in memory."""
        out = np.empty((len(ids), self.table.shape[1]), np.float32)
        gather(self.table, ids, out, threads=THREADS)
        return out

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Adds the seconds of what stands in it to those of reads."""
        began = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - began


class Ginex(Reader):
    """Reads the rows that miss an optimal cache, by a request each.

    Args:
        case: graph, features and stored batches.
        share: share of the rows that the cache holds.
    """

    def __init__(self, case: Case, share: float):
        super().__init__(case)
        batches = self._in_order()
        ptr = np.cumsum([0, *map(len, batches)])
        num_nodes = len(self.table)
        missed = belady_misses(ptr, np.concatenate(batches), num_nodes, int(share * num_nodes))
        self._missed = {item.key.step: ids for item, ids in zip(self.plan, missed, strict=True)}
        self._reader = PageReader(self._execution())
        self._file = self._reader.open(self.graph.features.path)

    def _in_order(self) -> list[Array]:
        """Returns the input ids of the batches in the order of the epoch."""
        return [self.samples.sample(item.key, item.seeds, transpose="none")[0].src_ids for item in self.plan]

    def _execution(self) -> ReadExecution:
        return ReadExecution(depth=DEPTH, range_pages=16, fallback="error")

    def rows(self, number: int, ids: Array) -> Array:
        """Returns the rows of a batch: those that miss the cache from disk."""
        features, missed, out = self.graph.features, self._missed[number], self.gathered(ids)
        options: dict[str, Any] = {"row_bytes": features.row_bytes, "offset": features.offset, "merge": False}
        with self.reading():
            rows, moved = self._reader.read_rows(self._file, missed, **options)
        self.moved_bytes += moved.moved_bytes
        place = np.empty(len(self.table), np.int32)
        place[ids] = np.arange(len(ids), dtype=np.int32)
        out[place[missed]] = rows.view(np.float32).reshape(len(missed), -1)
        return out


class OnDisk(Ginex):
    """Reads all rows by a pread each.

    Args:
        case: graph, features and stored batches.
    """

    def __init__(self, case: Case):
        super().__init__(case, 0.0)

    def _execution(self) -> ReadExecution:
        return ReadExecution(method="pread", fallback="error")


class Packed(Reader):
    """Reads a packed chunk for each batch.

    Args:
        case: graph, features and stored batches.
        chunks: the packed chunks.
    """

    def __init__(self, case: Case, chunks: PackedChunks):
        super().__init__(case)
        options: dict[str, Any] = {"device": LogicalDevice(), "reading": loader_reading(fallback="error")}
        self._rows = PackedRows(chunks, self.graph.features, threads=THREADS, **options)

    def rows(self, number: int, ids: Array) -> Array:
        """Returns the rows of a batch: those that are packed from disk."""
        with self.reading():
            staged = self._rows.stage(replace(self.plan[0].key, step=number))
        self.moved_bytes += sum(row["moved_bytes"] for row in staged.ledger.rows()["moves"] if row["kind"] == "feature")
        out = torch.empty((len(ids), self.table.shape[1]))
        self._rows.gather(_Asked(ids, None, staged), out, Ledger())
        staged.release()
        return out.numpy()


class Resident(Reader):
    """Reads the partitions of an epoch, and samples among them.

    The bytes of the edges between them are read from the feature table as well. Building their graph in memory is not part of an epoch
    here, which favours it.

    Args:
        case: graph, features and stored batches; they tell the fan-outs, and the batches' seeds.
        share: share of the nodes that fits into memory.
    """

    def __init__(self, case: Case, share: float):
        super().__init__(case)
        topology = self.graph.topology
        parts = partition_nodes(topology.num_nodes, np.array(self.graph.train_ids), SEED)
        fanouts = tuple(case.samples.config["fanouts"])
        self._sampler = ResidentSampler(topology, parts, share, fanouts, seed=SEED, threads=THREADS)
        self.volume_bytes, self._read = resident_bytes(case, share), 0
        self._reader = PageReader(ReadExecution(piece_bytes=PIECE_BYTES, fallback="error"))
        self._file = self._reader.open(self.graph.features.path)

    def begin(self) -> None:
        """Reads the partitions."""
        super().begin()
        features = self.graph.features
        table_bytes, left = features.num_rows * features.row_bytes, self.volume_bytes
        with self.reading():
            while left > 0:
                num_bytes = min(left, table_bytes // 50)
                _, moved = self._reader.read_chunk(self._file, features.offset, num_bytes)
                self.moved_bytes, left = self.moved_bytes + moved.moved_bytes, left - num_bytes

    def load(self, place: int) -> Loaded:
        """Returns a batch that is sampled now."""
        item = self.plan[place]
        blocks = self._sampler.sample(item.key, item.seeds, transpose=self.transpose)
        return Loaded(item.seeds, blocks, torch.from_numpy(self.gathered(blocks[0].src_ids)))


def resident_bytes(case: Case, share: float, epoch: int = 0) -> int:
    """Returns the bytes of the partitions that an epoch reads: rows, and edges between them.

    Args:
        case: graph and features.
        share: share of the nodes that fits into memory.
        epoch: the epoch, which names the partitions.
    """
    graph = case.opened
    parts = partition_nodes(graph.topology.num_nodes, np.array(graph.train_ids), SEED)
    here = np.isin(parts.part, resident_parts(parts, share, SEED, epoch))
    edges = len(resident_graph(graph.topology, here).indices)
    return int(here.sum()) * graph.features.row_bytes + edges * EDGE_BYTES
