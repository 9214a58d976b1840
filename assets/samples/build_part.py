"""One part of stored samples: batches are drawn on threads, tested, encoded, and written in the order of their steps.

assets/samples/__init__.py describes the arrays of a part and its memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import xxhash

from graphmill.assets.building.ordered import in_order
from graphmill.assets.building.stage import Building, Check, Summary
from graphmill.assets.graph.read import Graph, open_graph
from graphmill.assets.partitions.read import open_partitions
from graphmill.assets.samples.config import BatchRange, SamplesConfig, SamplesExecution, stored_batches
from graphmill.assets.samples.record import encode
from graphmill.assets.samples.tally import PartTally
from graphmill.assets.sampling.drawing import open_drawing
from graphmill.assets.sampling.sequential import SequentialDraws
from graphmill.assets.sampling.training_edges import training_edges
from graphmill.assets.storage.files.arrays import DATA_OFFSET
from graphmill.kernels.links.edge_seeds import EdgeSeeds, distinct_as_of
from graphmill.kernels.sampling.epoch_plan import PlannedBatch
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.temporal.sampler import TemporalSampler
from graphmill.kernels.types import Array, Block

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

    def __init__(self, part: _Part, sampler: AnySampler, epoch: int, tally: PartTally):
        self.part, self.sampler, self.epoch, self.tally = part, sampler, epoch, tally
        self.num_nodes = part.graph.topology.num_nodes
        # Only the fused kernel knows the row of a drawn edge in the source table.
        fused = isinstance(self.sampler, Sampler) and part.graph.topology.edge_ids is not None
        self.options: dict[str, Any] = {"edge_ids": True} if fused else {}

    def make(self, item: PlannedBatch) -> _Made:
        """Returns the record of one batch and the results of its tests."""
        links = None if self.part.edges is None else self.part.edges.batch(item.key, item.seeds)
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
        seeds = blocks[-1].dst_ids.copy() if self.part.edges is None else item.seeds.copy()
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
    part = _Part.of(building)
    drawing = open_drawing(building.semantic, building.inputs)
    assert drawing is not None
    threads = min(building.execution.threads_each, len(part.planned))
    samplers = [drawing.sampler(part.graph.topology, seed=building.semantic.seed) for _ in range(threads)]
    return part.write(samplers)


def build_parts(buildings: Sequence[Building[SamplesConfig, SamplesExecution]]) -> Iterator[Summary]:
    """Draws the batches of parts by passes over the edges, and writes part after part; yields their summaries.

    Raises:
        InputError: the topology is not sound, or does not fit the limits (assets/sampling/sequential.py).
    """
    first, parts = buildings[0], list[_Part]()
    for each in buildings:
        parts.append(_Part.of(each, compared=False, like=parts[0] if parts else None))
    drawing = open_drawing(first.semantic, first.inputs, compared=False)
    assert drawing is not None
    # The last writer's folder exists the longest.
    given: dict[str, Any] = {"folder": buildings[-1].writer.scratch(), "threads": first.execution.threads}
    with SequentialDraws(drawing, first.inputs, seed=first.semantic.seed, edges=True, **given) as draws:
        draws.draw([(item.key, part.nodes(item)) for part in parts for item in part.planned], first.progress)
        samplers = draws.samplers()
        for part in parts:
            summary = part.write(samplers)
            if part is parts[-1]:  # it reads the last of the drawn edges
                part.building.writer.note(**draws.facts())
            yield summary


class _Part(NamedTuple):
    """A part in the making: its graph, its batches, and the links that are their seeds."""

    building: Building[SamplesConfig, SamplesExecution]
    graph: Graph
    planned: list[PlannedBatch]
    edges: EdgeSeeds | None

    @staticmethod
    def of(
        building: Building[SamplesConfig, SamplesExecution], *, compared: bool = True, like: _Part | None = None
    ) -> _Part:
        """Returns the part that is built.

        Args:
            compared: as for `open_graph`.
            like: another part of the same artifact, which shares its arrays.
        """
        inputs, semantic = building.inputs, building.semantic
        graph, parts = like.graph if like else open_graph(inputs["graph"], compared=compared), None
        if semantic.plan == "parts":
            parts = open_partitions(inputs["partitions"])
        planned = stored_batches(semantic, graph.seeds, BatchRange.of(building.part), parts)
        edges = like.edges if like else None
        # A part keeps its own seeds, and not those of the whole epoch.
        planned = [item._replace(seeds=item.seeds.copy()) for item in planned]
        if graph.links is not None and edges is None:
            edges = training_edges(graph.links, graph.topology, semantic, semantic.seed, graph.relations)
        return _Part(building, graph, planned, edges)

    def nodes(self, item: PlannedBatch) -> Array:
        """Returns ids[b], the nodes whose neighbours a batch draws first."""
        return item.seeds if self.edges is None else self.edges.batch(item.key, item.seeds).nodes

    def write(self, samplers: Sequence[AnySampler]) -> Summary:
        """Writes the batches that samplers give, each on a thread, and returns the summary."""
        semantic, writer, progress = self.building.semantic, self.building.writer, self.building.progress
        batches, num_nodes = BatchRange.of(self.building.part), self.graph.topology.num_nodes
        progress.start("sample", len(self.planned), "batches")
        bounds, made = [DATA_OFFSET], list[_Made]()
        tally = PartTally(num_nodes, len(semantic.fanouts), batches.epoch < semantic.epochs)
        with writer.append("batches", np.uint8) as file:
            makers = [_Maker(self, sampler, batches.epoch, tally) for sampler in samplers]
            for each in in_order([maker.make for maker in makers], self.planned):
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
            numbers={"epoch": batches.epoch, "first_step": self.planned[0].key.step, "num_batches": len(made)},
            checks=[
                _check("blocks are sound", [not each.sound for each in made], self.planned),
                _check("input ids are unique", [not each.unique for each in made], self.planned),
            ],
            derived=tally.save(samplers, writer),
        )


def _check(name: str, failed: list[bool], planned: Sequence[PlannedBatch]) -> Check:
    where = f", first of step {planned[failed.index(True)].key.step}" if any(failed) else ""
    return Check(
        name=name,
        passed=not any(failed),
        detail=f"{sum(failed):,} of {len(failed):,} batches not{where}",
        numbers={"batches that fail": sum(failed), "batches": len(failed)},
    )
