"""One part of stored samples: batches are drawn on threads, tested, encoded, and written in the order of their steps.

assets/samples/__init__.py describes the arrays of a part and its memory.
"""

import queue
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import xxhash

from graphmill.assets.building.stage import Building, Check, Summary
from graphmill.assets.graph.read import open_graph
from graphmill.assets.partitions.read import open_partitions
from graphmill.assets.samples.config import BatchRange, SamplesConfig, SamplesExecution, stored_batches
from graphmill.assets.samples.record import encode
from graphmill.assets.samples.tally import PartTally
from graphmill.assets.sampling.drawing import Drawing, open_drawing
from graphmill.assets.sampling.training_edges import training_edges
from graphmill.assets.storage.files.arrays import DATA_OFFSET, ArrayAppender
from graphmill.kernels.links.edge_seeds import EdgeSeeds, distinct_as_of
from graphmill.kernels.sampling.epoch_plan import PlannedBatch
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.temporal.sampler import TemporalSampler
from graphmill.kernels.types import Array, Block, Topology

NOTHING = np.zeros(0, np.uint8)


class _Made(NamedTuple):
    """A batch on its way to the file."""

    record: Array
    seeds: Array
    digest: int
    num_inputs: int
    num_edges: list[int]
    sound: bool
    unique: bool


class _Maker:
    """Samples, tests, counts and encodes batches of a stored epoch on one thread. Memory: the sampler's, and one batch."""

    def __init__(
        self,
        topology: Topology,
        drawing: Drawing,
        seed: int,
        epoch: int,
        tally: PartTally,
        edges: EdgeSeeds | None = None,
    ):
        self.num_nodes, self.epoch, self.tally, self.edges = topology.num_nodes, epoch, tally, edges
        self.sampler = drawing.sampler(topology, seed=seed)
        # Only the fused kernel knows the row of a drawn edge in the source table.
        fused = isinstance(self.sampler, Sampler) and topology.edge_ids is not None
        self.options: dict[str, Any] = {"edge_ids": True} if fused else {}

    def make(self, item: PlannedBatch) -> _Made:
        """Returns the record of one batch and the results of its tests."""
        links = None if self.edges is None else self.edges.batch(item.key, item.seeds)
        nodes, when = (item.seeds, {}) if links is None else (links.nodes, links.when)
        if isinstance(self.sampler, TemporalSampler):
            as_of = self.sampler.times_of(nodes, **when)
            blocks, times = self.sampler.timed(item.key, nodes, as_of, transpose="none", **self.options)
            ids = distinct_as_of(blocks[0].src_ids, times)[0]
        else:
            blocks = self.sampler.sample(item.key, nodes, transpose="none", **self.options)
            ids = np.unique(blocks[0].src_ids)
        self.tally.visit(self.sampler, blocks)
        inside = bool(len(ids) == 0 or (ids.min() >= 0 and ids.max() < self.num_nodes))
        sound = inside and np.array_equal(blocks[-1].dst_ids, nodes) and all(map(_is_sound, blocks))
        unique = len(ids) == blocks[0].num_src
        # The key of an evaluation's batch draws it and says nothing of where it is stored.
        record = encode(replace(item.key, epoch=self.epoch), blocks)
        edges = [len(block.indices) for block in blocks]
        # A batch of links is stored as one of their ends, and counted as the links.
        seeds = blocks[-1].dst_ids.copy() if self.edges is None else item.seeds.copy()
        digest = xxhash.xxh3_64_intdigest(record.data)
        return _Made(record, seeds, digest, blocks[0].num_src, edges, sound, unique)


def _is_sound(block: Block) -> bool:
    """Tells whether a block's edges lead to its sources."""
    if len(block.indices) == 0:
        return True
    return bool(block.indices.min() >= 0 and block.indices.max() < block.num_src)


def build_part(building: Building[SamplesConfig, SamplesExecution]) -> Summary:
    """Draws and writes the batches of the part; returns its summary.

    Raises:
        InputError: the topology is not sound, or a user's function failed.
    """
    inputs, semantic, writer, progress = building.inputs, building.semantic, building.writer, building.progress
    opened, drawing, batches = open_graph(inputs["graph"]), open_drawing(semantic, inputs), BatchRange.of(building.part)
    assert drawing is not None
    parts = open_partitions(inputs["partitions"]) if semantic.plan == "parts" else None
    planned = stored_batches(semantic, opened.seeds, batches, parts)
    edges = None
    if opened.links is not None:
        edges = training_edges(opened.links, opened.topology, semantic, semantic.seed, opened.relations)
    threads = min(building.execution.threads_each, len(planned))
    progress.start("sample", len(planned), "batches")
    bounds, made = [DATA_OFFSET], []
    trained = batches.epoch < semantic.epochs
    tally = PartTally(opened.topology.num_nodes, len(semantic.fanouts), trained)
    with ArrayAppender(writer.path("batches.npy"), np.uint8) as file:
        made_by = opened.topology, drawing, semantic.seed, batches.epoch, tally, edges
        makers = [_Maker(*made_by) for _ in range(threads)]
        for each in _in_order(makers, planned):
            file.append(each.record)
            bounds.append(bounds[-1] + len(each.record))
            tally.append_seeds(each.seeds)
            made.append(each._replace(record=NOTHING, seeds=NOTHING))  # a slice would keep the record alive
            progress.advance(1)
    progress.done()
    writer.save("bounds", np.array(bounds, np.int64))
    writer.save("digests", np.array([each.digest for each in made], np.uint64))
    writer.save("num_inputs", np.array([each.num_inputs for each in made], np.int64))
    writer.save("num_edges", np.array([each.num_edges for each in made], np.int64))
    return Summary(
        numbers={"epoch": batches.epoch, "first_step": planned[0].key.step, "num_batches": len(made)},
        checks=[
            _check("blocks are sound", [not each.sound for each in made], planned),
            _check("input ids are unique", [not each.unique for each in made], planned),
        ],
        derived=tally.save([maker.sampler for maker in makers], writer),
    )


def _check(name: str, failed: list[bool], planned: Sequence[PlannedBatch]) -> Check:
    where = f", first of step {planned[failed.index(True)].key.step}" if any(failed) else ""
    return Check(
        name=name,
        passed=not any(failed),
        detail=f"{sum(failed):,} of {len(failed):,} batches not{where}",
        numbers={"batches that fail": sum(failed), "batches": len(failed)},
    )


def _in_order(makers: Sequence[_Maker], planned: Sequence[PlannedBatch]) -> Iterator[_Made]:
    """Yields the batches in the order of the plan; at most two per maker, each on a thread, are sampled ahead."""
    idle: queue.SimpleQueue[_Maker] = queue.SimpleQueue()
    for maker in makers:
        idle.put(maker)

    def make(item: PlannedBatch) -> _Made:
        maker = idle.get()
        try:
            return maker.make(item)
        finally:
            idle.put(maker)

    pool, ahead = ThreadPoolExecutor(len(makers)), deque()
    try:
        for item in planned:
            ahead.append(pool.submit(make, item))
            if len(ahead) >= 2 * len(makers):
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
