"""What stored samples take of the machine, and the most that their batches can hold before they are drawn."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from graphmill.assets.costs.needs import DRAWING, LIBRARIES, WORKER_BYTES, Need, Sizes, Term
from graphmill.assets.partitions.read import open_partitions
from graphmill.assets.samples.config import PARTS_AT_ONCE, epoch_size
from graphmill.assets.samples.read import StoredOrder
from graphmill.assets.sampling.bounds import batch_bound
from graphmill.assets.sampling.passes import likely_passes, pass_terms, plans_passes, spilled_bytes
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.sampling.sample import Sampler


class StoredBatches(NamedTuple):
    """The batches of all stored epochs, or the most that they can be.

    Attributes:
        inputs, edges, num_bytes: inputs, edges and bytes of the records of all of them.
        most_inputs, most_bytes: inputs and bytes of the record of the largest one.
        exact: whether they are counted.
        parts: parts of the graph whose batches stand together; 1 without.
        layers: blocks of a batch.
    """

    count: int
    inputs: int
    edges: int
    num_bytes: int
    most_inputs: int
    most_bytes: int
    exact: bool
    parts: int = 1
    layers: int = 1

    def of_edges(self, num_rows: int) -> StoredBatches:
        """Returns the same with the edges of batches in place of their inputs, which are rows of a table of `num_rows` rows of edges."""
        most = min(num_rows, self.most_bytes // EDGE_BYTES)
        return self._replace(inputs=self.edges, most_inputs=most, exact=False)


EDGE_BYTES = 12
"""Bytes of an edge with its id in a record."""


def batches_read(sizes: Sizes) -> StoredBatches | None:
    """Returns the batches of the samples that a step reads, counted if they exist; None if it reads none."""
    if "samples" in sizes.artifacts:
        found = sizes.artifacts["samples"].summary["numbers"]
        count = sizes.artifacts["samples"].files["offsets.npy"]["shape"][0]
        edges = round(found["edges_a_batch"]["mean"] * count)
        most = found["inputs_a_batch"]["max"], found["largest_batch_bytes"]
        shape = StoredOrder.of(sizes.artifacts["samples"]).num_parts, len(sizes.artifacts["samples"].config["fanouts"])
        return StoredBatches(count, found["num_accesses"], edges, found["sample_bytes"], *most, True, *shape)
    config = sizes.configs.get("samples")
    return None if config is None else likely_batches(config, sizes)


def likely_batches(config: Any, sizes: Sizes) -> StoredBatches:
    """Returns the most that batches of a config hold."""
    splits, most = (sizes.num_train, sizes.num_valid, sizes.num_test), (0, 0)
    total, inputs, edges, num_bytes = 0, 0, 0, 0
    num_parts, largest = _likely_parts(sizes) if config.plan == "parts" else (1, 0)
    # The epochs of training are alike; behind them stands one for each split that is evaluated.
    alike = [(0, config.epochs * num_parts), *((epoch, 1) for epoch in range(config.epochs, config.num_stored))]
    for epoch, times in alike:
        count, seeds = epoch_size(config, splits, epoch, largest)
        count *= times
        each = batch_bound(config, seeds, sizes)
        total, inputs, edges = total + count, inputs + count * each.inputs, edges + count * each.num_edges
        num_bytes += count * each.record_bytes
        most = max(most, (each.inputs, each.record_bytes))
    return StoredBatches(total, inputs, edges, num_bytes, *most, False, num_parts, len(config.fanouts))


def part_seeds(graph: Artifact, partitions: Artifact) -> tuple[int, int]:
    """Returns (number of parts, training nodes of the part that has most of them)."""
    parts = open_partitions(partitions)
    counts = np.bincount(parts.part_of[np.asarray(graph.array("train_ids"))], minlength=parts.num_parts)
    return parts.num_parts, int(counts.max())


def _likely_parts(sizes: Sizes) -> tuple[int, int]:
    """Returns the result of `part_seeds`, with equal parts if they do not exist yet."""
    artifacts = sizes.artifacts
    if {"graph", "partitions"} <= artifacts.keys():
        return part_seeds(artifacts["graph"], artifacts["partitions"])
    num_parts = sizes.configs["partitions"].parts
    return num_parts, ceil(sizes.num_train / num_parts)


def sampler_bytes(sizes: Sizes, most_inputs: int) -> int:
    """Returns the memory of one sampler's map and list of nodes."""
    return (
        8 * sizes.num_nodes if sizes.num_nodes <= Sampler.MOST_DIRECT_NODES else 32 * most_inputs
    ) + sizes.id_bytes * most_inputs


def samples_need(semantic: Any, execution: Any, sizes: Sizes) -> Need:
    """Returns the need of the samples stage: that of drawing the parts, or of counting the accesses afterwards."""
    found, nodes = likely_batches(semantic, sizes), sizes.num_nodes
    num_parts = max(1, min(found.count, -(-found.num_bytes // semantic.part_bytes)))
    workers, threads = min(execution.workers, num_parts), min(execution.threads, max(1, found.count))
    if plans_passes(semantic, sizes):
        each = batch_bound(semantic, semantic.batch_size, sizes)
        drawing = (
            LIBRARIES,
            *pass_terms(semantic, threads, each),
            Term("visits of a part", 4 * nodes),
            Term("batches ahead", 3 * threads * found.most_bytes, "[sampling] batch_size", bound=True),
        )
        spilled = spilled_bytes(sizes, found.edges, found.inputs)
        rounds = -(-max(num_parts, semantic.num_stored) // PARTS_AT_ONCE)
        passes = likely_passes(semantic, sizes, -(-found.count // rounds), each).times(rounds)
        return replace(_need(semantic, sizes, found, num_parts, threads, drawing, spilled), passes=passes)
    processes = (
        [LIBRARIES] if workers == 1 else [LIBRARIES, Term(f"{workers} processes that draw", workers * WORKER_BYTES)]
    )
    drawing = (
        *processes,
        Term(
            "samplers",
            threads * sampler_bytes(sizes, found.most_inputs),
            "[sampling] batch_size",
            bound=nodes > Sampler.MOST_DIRECT_NODES,
        ),
        Term("visits of each process's part", 4 * nodes * workers),
        Term("batches ahead", 3 * threads * found.most_bytes, "[sampling] batch_size", bound=True),
    )
    return _need(semantic, sizes, found, num_parts, threads, drawing, 0)


def _need(
    semantic: Any,
    sizes: Sizes,
    found: StoredBatches,
    num_parts: int,
    threads: int,
    drawing: tuple[Term, ...],
    scratch: int,
) -> Need:
    """Returns the need of the stage from that of drawing the parts."""
    nodes = sizes.num_nodes
    visits = Term("visits of nodes", 4 * nodes)
    seeds = 2 * sizes.id_bytes * max(sizes.num_train, sizes.num_valid, sizes.num_test)
    sums_read = Term("sums of parts that are read", threads * 12 * nodes + seeds, bound=True)
    drawn = (DRAWING, visits, sums_read)
    sums = (
        min(num_parts * nodes, found.inputs) * (sizes.id_bytes + 4) + found.count * semantic.batch_size * sizes.id_bytes
    )
    stored = found.num_bytes + sums + 4 * nodes
    return Need(
        name="samples", phases=(drawing, drawn), stored=stored, stored_at_most=True, scratch=scratch, work=found.edges
    )
