"""Cuts parts into chunks, writes them step after step, and computes the numbers of the result.

The files and the peak memory stand in assets/chunks/__init__.py.
"""

from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from graphmill.assets.building.stage import Progress
from graphmill.assets.chunks.config import ChunksConfig
from graphmill.assets.chunks.record import encode
from graphmill.assets.partitions.config import PartitionsConfig
from graphmill.assets.partitions.metis import run_metis
from graphmill.assets.storage.files.arrays import DATA_OFFSET
from graphmill.assets.storage.local.writer import Writer
from graphmill.kernels.chunks.counts import StepCounts, cost, count_step
from graphmill.kernels.chunks.cut import Chunks, cut_again, cut_chunks
from graphmill.kernels.chunks.ldg import count_copies
from graphmill.kernels.chunks.order import part_graphs, rcm_order, sub_part_order
from graphmill.kernels.chunks.schedule import Scheduled
from graphmill.kernels.chunks.steps import iterate_steps
from graphmill.kernels.ranges import Allocate
from graphmill.kernels.types import Array, Topology

MOST_CHUNKS = 512
"""Chunks in all up to which replication is counted (HongTu, Table 3)."""


def cut_in_order(
    topology: Topology,
    part_of: Array,
    num_parts: int,
    config: ChunksConfig,
    folder: Path,
    progress: Progress,
    threads: int,
    allocate: Allocate = np.zeros,
) -> Chunks:
    """Cuts parts into chunks, after sorting the nodes of each in the order that the table names.

    Args:
        topology, part_of, num_parts: the graph, i32[N] part of each node, and the number m of parts.
        allocate: makes the array of the nodes of all chunks.

    Raises:
        InputError: METIS failed.
    """
    table, order = config.table, None
    if table.order == "rcm":
        order = rcm_order(topology.indptr, topology.indices, part_of, num_parts, threads=threads)
    elif table.order == "metis":
        asked = PartitionsConfig(method="metis", parts=table.chunks_per_part, seed=config.seed)
        sub_part_of = np.zeros(len(part_of), np.int32)
        progress.start("sub-parts", num_parts, "parts")
        for nodes, xadj, adjacency in part_graphs(
            topology.indptr, topology.indices, part_of, num_parts, threads=threads
        ):
            weights = 1 + np.asarray(topology.in_degree)[nodes].astype(np.int64)
            more = {"weights": weights, "trained": np.zeros(len(nodes), np.int8)}
            sub_part_of[nodes] = run_metis(xadj, adjacency, more, asked, folder, progress)
            progress.advance(1)
        progress.done()
        order = sub_part_order(part_of, sub_part_of)
    return cut_chunks(topology.indptr, part_of, num_parts, table.chunks_per_part, order, allocate=allocate)


def replication_by_chunks(topology: Topology, chunks: Chunks, progress: Progress) -> dict[int, float]:
    """Returns number of chunks in all -> replication factor, for halves and doubles of the number that was cut (HongTu, Table 3).

    The nodes of a part stay in their order; a node counts once for each chunk that holds it or has an in-edge from it.
    """
    counts = [n for n in (1 << k for k in range(10)) if n * chunks.num_parts <= MOST_CHUNKS]
    progress.start("replication", len(counts), "numbers of chunks")
    found = {}
    for count in counts:
        # Nodes of a chunk are listed by id, so cutting these lists again may move a node or two across a boundary.
        as_cut = count == chunks.chunks_per_part
        cut = chunks if as_cut else cut_again(topology.indptr, chunks, count)
        copies = count_copies(topology.indptr, topology.indices, cut.node_ids, cut.ptr)
        found[chunks.num_parts * count] = copies / max(1, topology.num_nodes)
        progress.advance(1)
    progress.done()
    return found


def schedule_numbers(
    found: Scheduled,
    counts: StepCounts,
    num_distinct: int,
    num_nodes: int,
    rates: tuple[float, float, float] | None = None,
) -> dict[str, Any]:
    """Returns the numbers of the summary; all are exact counts of rows and edges.

    With speeds of the links, in bytes per second, it also names the schedule that loads the fewest rows, and has the nanoseconds that a
    byte of all rows takes by equation 4 with the chosen one and with that one.
    """
    volumes, fewest = found.found[found.chosen], found.fewest_rows()
    timed = {}
    if rates is not None:
        chosen, rows = (1e9 * cost(*each, rates) for each in (volumes, found.found[fewest]))
        timed = {"schedule_of_fewest_rows": fewest, "byte_nanoseconds": chosen, "byte_nanoseconds_of_fewest_rows": rows}
    return timed | {
        "num_nodes": num_nodes,
        "num_parts": int(counts.destinations.shape[1]),
        "chunks_per_part": int(counts.destinations.shape[0]),
        "v_ori": volumes.v_ori,
        "v_p2p": volumes.v_p2p,
        "v_ru": volumes.v_ru,
        "volumes_by_schedule": [{"schedule": name} | each._asdict() for name, each in found.found.items()],
        "schedule": found.chosen,
        "num_distinct": num_distinct,
        "traffic_cut_ratio": 1 - volumes.v_ru / volumes.v_ori if volumes.v_ori else 0.0,
        "replication": volumes.v_ori / max(1, num_nodes),
        "num_fetched": int(counts.fetched.sum()),
        "most_buffer_rows": int(counts.buffer_rows.max(initial=0)),
        "most_batch_rows": int(counts.transition.sum(axis=1).max(initial=0)),
        "most_edges": int(counts.edges.max(initial=0)),
        "most_destinations": int(counts.destinations.max(initial=0)),
    }


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
    with writer.append("steps", np.uint8) as file:
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
