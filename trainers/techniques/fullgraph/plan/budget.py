"""Checks before the training whether a full-graph pass fits on a device: its predicted bytes against `workspace`.

The prediction uses the counts of the chunks artifact (memory.py). If it does not fit, the parts are cut anew into more chunks, scheduled
and counted as in the stage: so the error names a number of chunks that fits. If METIS ordered the nodes, each number of chunks has an order
of its own, and the number is an estimate.

Nothing is predicted for a user's own layers, whose widths and intermediate results are unknown; the device's bound ends a pass that exceeds
it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from graphmill.assets.chunks.read import StoredChunks
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.kernels.chunks.counts import StepCounts, count_step
from graphmill.kernels.chunks.cut import MOST, MOST_CHUNKS
from graphmill.kernels.chunks.schedule import Schedule
from graphmill.kernels.chunks.steps import chunk_steps
from graphmill.kernels.errors import InputError
from graphmill.trainers.loop.executor import Run
from graphmill.trainers.techniques.fullgraph.plan.memory import ChunkCounts, Way, device_bytes, largest
from graphmill.trainers.techniques.fullgraph.rows.lists import Mode


def require_memory(run: Run, chunks: StoredChunks, settings: Any, way: Way) -> None:
    """Compares the predicted bytes of a pass on a device with `workspace`.

    Args:
        settings: `[train.fullgraph]`.

    Raises:
        InputError: it does not fit; the message names a number of chunks that fits, if there is one.
    """
    bound = run.features.device.work_bytes
    if bound is None or is_reference(run.semantic.train.model):
        return
    counts = largest(chunks.counts, settings.mode)
    needed = needed_bytes(run, counts, way)
    if needed <= bound:
        return
    problem = (
        f"a pass over chunks of up to {counts.nodes:,} nodes and {counts.edges:,} edges holds {format_bytes(needed)} on a "
        f"device, and workspace allows {format_bytes(bound)}"
    )
    more, remedies = chunks_that_fit(run, chunks, settings.mode, way, bound), []
    if more is not None:
        remedies.append(f"set chunks_per_part = {more} in [chunks]")
    if way.overlap and needed_bytes(run, counts, replace(way, overlap=False)) <= bound:
        remedies.append("set overlap = false in [train.fullgraph]")
    raise InputError(problem, ", or ".join([*remedies, "raise `workspace`"]))


def needed_bytes(run: Run, counts: ChunkCounts, way: Way) -> int:
    """Returns the most bytes that a device holds at once when the run's model passes over chunks."""
    num_parameters = sum(parameter.numel() for parameter in run.model.parameters())
    width, classes = run.features.table.width, run.graph.num_classes
    return device_bytes(run.semantic.train, width, classes, num_parameters, counts, way)


def chunks_that_fit(run: Run, chunks: StoredChunks, mode: Mode, way: Way, bound: int) -> int | None:
    """Returns a number of chunks per part with which a pass fits, None if none of up to 4,096 does, or 65,536 in all."""
    more = 2 * chunks.chunks_per_part
    while more <= min(MOST, MOST_CHUNKS // chunks.num_parts):
        # The free schedule excludes most numbers; a number that passes is counted again with the schedule of the stage.
        schedules: tuple[Schedule, ...] = ("identity", chunks.asked_schedule)
        if all(
            needed_bytes(run, largest(cut_counts(run, chunks, more, each), mode), way) <= bound for each in schedules
        ):
            return more
        more *= 2
    return None


def cut_counts(run: Run, chunks: StoredChunks, chunks_per_part: int, schedule: Schedule) -> StepCounts:
    """Returns the counts of the rows that every step would hold and move if the parts were cut into another number of chunks."""
    topology = run.graph.topology
    part_of = np.empty(topology.num_nodes, np.int32)
    for part in range(chunks.num_parts):
        part_of[chunks.nodes_of(part)] = part
    steps = chunk_steps(
        topology.indptr,
        topology.indices,
        part_of,
        chunks.num_parts,
        chunks_per_part=chunks_per_part,
        order=chunks.node_ids,
        schedule=schedule,
        self_term=chunks.self_term,
        threads=run.semantic.train.num_threads,
    )
    return StepCounts.of(np.array([[count_step(each) for each in devices] for devices in steps], np.int64))
