"""The work of the chunks stage: chunks are cut, scheduled, and written step after step.

The files and the peak memory stand in assets/chunks/__init__.py.
"""

import numpy as np
import xxhash

from graphmill.assets.building.stage import Progress
from graphmill.assets.chunks.record import encode
from graphmill.assets.storage.files.arrays import DATA_OFFSET, ArrayAppender
from graphmill.assets.storage.local.writer import Writer
from graphmill.kernels.chunks.counts import StepCounts, count_step
from graphmill.kernels.chunks.cut import Chunks
from graphmill.kernels.chunks.steps import iterate_steps
from graphmill.kernels.types import Array, Topology


def write_steps(
    topology: Topology,
    part_of: Array,
    chunks: Chunks,
    schedule: Array,
    self_term: bool,
    threads: int,
    writer: Writer,
    progress: Progress,
) -> StepCounts:
    """Writes `steps`, `bounds`, `digests` and `counts`; returns the counts.

    Args:
        part_of: i32[N], part of each node.
        chunks, schedule: destinations of every chunk, and their order.
        self_term: whether destinations are read with their neighbours.
    """
    progress.start("write steps", chunks.chunks_per_part, "steps")
    bounds, digests, counts = [DATA_OFFSET], [], []
    steps = iterate_steps(
        topology.indptr, topology.indices, part_of, chunks, schedule, self_term=self_term, threads=threads
    )
    with ArrayAppender(writer.path("steps.npy"), np.uint8) as file:
        for devices in steps:
            for each in devices:
                record = encode(each)
                file.append(record)
                bounds.append(bounds[-1] + len(record))
                digests.append(xxhash.xxh3_64_intdigest(record.data))
            counts.append([count_step(each) for each in devices])
            progress.advance(1)
    progress.done()
    writer.save("bounds", np.array(bounds, np.int64))
    writer.save("digests", np.array(digests, np.uint64))
    writer.save("counts", np.array(counts, np.int64))
    return StepCounts.of(np.array(counts, np.int64))
