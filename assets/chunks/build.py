"""Cuts parts into chunks, writes them step after step, and computes the numbers of the result.

The files and the peak memory stand in assets/chunks/__init__.py.

If a bit for every node and chunk does not fit, the neighbour sets of chunks are lists on the disk, and bits for some nodes at a time.
One pass over the edges in order says of each in-neighbour in which chunk its destination is. The pairs are sorted by the node, each kept
once, by the sort of the graph stage (assets/graph/edge_sort.py). The rows are the lists of chunks whose sets hold a node, and a search
reads them in order (kernels/chunks/sets.py). The sets, and so the schedule, are those of the bits in memory.

Memory: bits of a range and the working memory of the sort within `LISTS_BYTES`, or an eighth of the free memory if that is more; 8 bytes
per node while the sort counts rows, and what it takes for a 256th of all pairs. Disk: two records of 8 bytes per edge and node, 16 from
2^31 nodes on; 4 bytes per node for the chunk of each, and 8 where its list begins.
"""

from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from graphmill.assets.building.stage import Progress
from graphmill.assets.chunks.config import ChunksConfig
from graphmill.assets.chunks.record import encode
from graphmill.assets.graph.edge_sort import EdgePolicy, sort_edges
from graphmill.assets.partitions.config import PartitionsConfig
from graphmill.assets.partitions.metis import run_metis
from graphmill.assets.sources.spool import SORT_BYTES, EdgeColumns, EdgeSpool, range_edges
from graphmill.assets.storage.files.arrays import DATA_OFFSET, ArrayAppender, create_array, scratch_arrays
from graphmill.assets.storage.local.writer import Writer
from graphmill.assets.storage.system.control_group import free_bytes
from graphmill.kernels.chunks.counts import StepCounts, cost, count_step
from graphmill.kernels.chunks.cut import Chunks, cut_again, cut_chunks
from graphmill.kernels.chunks.ldg import count_copies
from graphmill.kernels.chunks.order import part_graphs, rcm_order, sub_part_order
from graphmill.kernels.chunks.schedule import Scheduled
from graphmill.kernels.chunks.sets import SharedSets, listed_sets, neighbour_sets, shared_sets
from graphmill.kernels.chunks.steps import iterate_steps
from graphmill.kernels.errors import InputError
from graphmill.kernels.ranges import Allocate
from graphmill.kernels.sampling.sample_layer import rows_in_order
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


LISTS_BYTES = 1 << 30
"""Memory for bits of a range of nodes, and for the sort, at least."""


def sets_of(
    topology: Topology, chunks: Chunks, self_term: bool, folder: Path, threads: int, progress: Progress
) -> SharedSets:
    """Returns the neighbour sets of chunks: as bits if these take at most half of the free memory, else from lists.

    Args:
        self_term: whether destinations belong to the sets.
        folder: empty folder for working files.

    Raises:
        InputError: an in-neighbour is not a node of the graph, or the disk is full.
    """
    free, num_chunks = free_bytes(), len(chunks.ptr) - 1
    if free is None or bits_bytes(topology.num_nodes, num_chunks) <= free // 2:
        bits = neighbour_sets(topology.indptr, topology.indices, chunks, self_term=self_term, threads=threads)
        return shared_sets(bits, threads=threads)
    memory = max(LISTS_BYTES, free // 8)
    lists = _sorted(_spooled(topology, chunks, self_term, folder, progress), memory, folder, threads, progress)
    return listed_sets(lists.indptr[: topology.num_nodes + 1], lists.indices, num_chunks, memory // 2)


def bits_bytes(num_nodes: int, num_chunks: int) -> int:
    """Returns the bytes of the sets as bits: of all nodes, and of those that sets share while they are numbered."""
    return 2 * num_chunks * (num_nodes // 8 + 8)


def lists_bytes(num_nodes: int, num_edges: int) -> int:
    """Returns the memory that lists take at least."""
    pairs = num_nodes + num_edges
    return 8 * num_nodes + max(LISTS_BYTES, SORT_BYTES * range_edges(LISTS_BYTES, pairs))


def _spooled(topology: Topology, chunks: Chunks, self_term: bool, folder: Path, progress: Progress) -> EdgeSpool:
    """Returns the pairs (node of a set, number of the set), in the order of the edges."""
    num_nodes, num_chunks = topology.num_nodes, len(chunks.ptr) - 1
    chunk_of = scratch_arrays(folder)(num_nodes, np.int32)
    for number, (low, high) in enumerate(zip(chunks.ptr[:-1], chunks.ptr[1:], strict=True)):
        chunk_of[chunks.node_ids[low:high]] = number
    # The sort counts the rows of both ends.
    spool = EdgeSpool(folder, max(num_nodes, num_chunks), EdgeColumns(), undirected=False)
    progress.start("list chunks", topology.num_edges, "edges")
    for rows in rows_in_order(topology):
        if len(rows.indices) and not 0 <= rows.indices.min() <= rows.indices.max() < num_nodes:
            raise InputError(f"an edge leads to no node of {num_nodes}", "build the graph again")
        own = chunk_of[rows.first_node : rows.first_node + len(rows.indptr) - 1]
        if self_term:
            spool.append(own, np.arange(rows.first_node, rows.first_node + len(own)))
        spool.append(np.repeat(own, np.diff(rows.indptr)), rows.indices)
        progress.advance(len(rows.indices))
    progress.done()
    return spool


def _sorted(spool: EdgeSpool, memory: int, folder: Path, threads: int, progress: Progress) -> Topology:
    """Returns the lists: the in-neighbours of a node are the chunks whose sets hold it."""
    policy = EdgePolicy(undirected=False, merge=True, drop_loops=False)
    return sort_edges(spool, policy, memory, threads, _Folder(folder), progress)[0]


class _Folder:
    """The place of the lists, as the sort writes them."""

    def __init__(self, folder: Path):
        self._folder = folder

    def path(self, name: str) -> Path:
        """Returns the place of a file."""
        return self._folder / name

    def create(self, name: str, shape: Any, dtype: Any) -> Array:
        """Returns a new mapped array of zeros."""
        return create_array(self.path(f"{name}.npy"), shape, dtype)

    def append(self, name: str, dtype: Any) -> ArrayAppender:
        """Makes an array whose length is known at the end of the context that this is."""
        return ArrayAppender(self.path(f"{name}.npy"), dtype)
