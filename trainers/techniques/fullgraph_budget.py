"""Whether a full-graph pass fits on a device, asked before the training: its prediction against `workspace`.

The prediction takes what the chunks artifact counts (trainers/chunks/memory.py). Where it does not fit, the chunks are cut further, as
many times as it takes, and counted anew: so the answer names a number of chunks that does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from assets.chunks.read import StoredChunks
from assets.sizes import format_bytes
from kernels.errors import InputError
from kernels.types import Array
from trainers.chunks.memory import ChunkCounts, Way, device_bytes, largest
from trainers.executor import Run

MOST_CHUNKS = 4096
"""Chunks per part up to which a remedy is looked for."""


def require_memory(run: Run, chunks: StoredChunks, settings: Any, way: Way) -> None:
    """Compares what a pass will hold on a device with `workspace`.

    Args:
        run: the run.
        chunks: the chunk steps.
        settings: `[train.fullgraph]`.
        way: of carrying the passes out.

    Raises:
        InputError: it does not fit; says how many chunks would do, where any number does.
    """
    bound = run.features.device.work_bytes
    counts = largest(chunks.counts, settings.mode)
    needed = needed_bytes(run, counts, way)
    if bound is None or needed <= bound:
        return
    problem = (
        f"a pass over chunks of up to {counts.nodes:,} nodes and {counts.edges:,} edges holds {format_bytes(needed)} on a "
        f"device, and workspace allows {format_bytes(bound)}"
    )
    more, remedies = chunks_that_fit(run, chunks, way, bound), []
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


def chunks_that_fit(run: Run, chunks: StoredChunks, way: Way, bound: int) -> int | None:
    """Returns a number of chunks per part with which a pass fits, None where none of up to 4,096 does.

    Chunks are cut into equal pieces here, so their buffers are counted and not guessed; the schedule can only lower what a buffer holds.
    """
    dst_ids = [
        [np.array(chunks.step(part, step).dst_ids) for step in range(chunks.chunks_per_part)]
        for part in range(chunks.num_parts)
    ]
    pieces = 2
    while chunks.chunks_per_part * pieces <= MOST_CHUNKS:
        if needed_bytes(run, _cut_further(run, dst_ids, pieces), way) <= bound:
            return chunks.chunks_per_part * pieces
        pieces *= 2
    return None


def _cut_further(run: Run, dst_ids: list[list[Array]], pieces: int) -> ChunkCounts:
    """Returns the largest counts when every chunk is cut into equal pieces."""
    indptr, indices = (np.asarray(getattr(run.graph.topology, name)) for name in ("indptr", "indices"))
    nodes = edges = rows = loaded = 0
    for of_part in dst_ids:
        before = 0
        for ids in of_part:
            for piece in np.array_split(ids, pieces):
                sources = [indices[indptr[v] : indptr[v + 1]] for v in piece]
                held = len(np.unique(np.concatenate([*sources, piece]))) if len(piece) else 0
                nodes, edges, loaded = max(nodes, len(piece)), max(edges, sum(map(len, sources))), max(loaded, held)
                # A row that stays keeps its place, so a buffer may have as many rows as two steps together.
                rows, before = max(rows, held + before // 2), held
    return ChunkCounts(nodes=nodes, edges=edges, rows=rows, loaded=loaded)
