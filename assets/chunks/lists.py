"""The neighbour sets of chunks where a bit for every node and chunk does not fit: lists on the disk, and bits for some nodes at a time.

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

from graphmill.assets.building.stage import Progress
from graphmill.assets.graph.edge_sort import EdgePolicy, sort_edges
from graphmill.assets.sources.spool import SORT_BYTES, EdgeColumns, EdgeSpool, range_edges
from graphmill.assets.storage.files.arrays import ArrayAppender, create_array, scratch_arrays
from graphmill.assets.storage.system.control_group import free_bytes
from graphmill.kernels.chunks.cut import Chunks
from graphmill.kernels.chunks.sets import SharedSets, listed_sets, neighbour_sets, shared_sets
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.sample_layer import rows_in_order
from graphmill.kernels.types import Array, Topology

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
