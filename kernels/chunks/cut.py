"""Two-level partitions: each part is cut into chunks of about equal computation (HongTu, section 4.1).

The first level assigns nodes to parts, one per device. Inside a part nodes stand in an order, and the order is cut into ranges. A chunk is
the destinations of one range with all of their in-edges, so a layer aggregates whole neighbourhoods chunk by chunk.

Computation of a destination = its in-edges + `NODE_COST`, in units of an edge's work: an aggregation moves one row per edge, an update
multiplies one row by a matrix per node. The cuts are those nearest to equal shares, so a chunk costs at most its share plus the cost of
two half destinations: max <= total / n + largest destination. A hub that costs more than a share gets a chunk of its own, and others stay
empty. Chunks are also empty if a part has fewer nodes than chunks.

Time O(N), and O(N log N) to sort the nodes of each chunk if the order is not by id. Memory: the result, which may be a mapped file, and
100 bytes for each node of a range (kernels/ranges.py).
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from graphmill.kernels.arrays import as_ids, as_int32
from graphmill.kernels.errors import InputError
from graphmill.kernels.ranges import Allocate, node_ranges
from graphmill.kernels.types import Array, id_dtype

NODE_COST = 16
"""Computation of a destination beside its edges, in units of an edge's work."""
MOST, MOST_CHUNKS = 4096, 65536
"""Most parts, most chunks per part, and most chunks in all: a schedule compares the chunks of a part pair by pair."""


@dataclass(frozen=True, kw_only=True)
class Chunks:
    """The destinations of every chunk."""

    # m and n.
    num_parts: int
    chunks_per_part: int
    # i64[m * n + 1]; chunk k of part i is number c = i * n + k and holds node_ids[ptr[c]:ptr[c + 1]].
    ptr: Array
    # ids[N], global, each node once; ascending inside a chunk.
    node_ids: Array

    def nodes(self, part: int, chunk: int) -> Array:
        """Returns ids[v]: the destinations of chunk k of part i, ascending."""
        number = part * self.chunks_per_part + chunk
        return self.node_ids[self.ptr[number] : self.ptr[number + 1]]


def cut_chunks_reference(indptr: Array, part_of: Array, num_parts: int, chunks_per_part: int, order: Array) -> Chunks:
    """Returns the same as `cut_chunks` (the rule, node by node)."""
    cuts, nodes = [0], []
    for part in range(num_parts):
        members = [int(v) for v in order if part_of[v] == part]
        sums = [0]
        for v in members:
            sums.append(sums[-1] + int(indptr[v + 1] - indptr[v]) + NODE_COST)
        ends = [0]
        for k in range(1, chunks_per_part + 1):
            ends.append(min(range(len(sums)), key=lambda b: (abs(sums[b] * chunks_per_part - sums[-1] * k), b)))
            nodes += sorted(members[ends[-2] : ends[-1]])
            cuts.append(len(nodes))
    return Chunks(
        num_parts=num_parts,
        chunks_per_part=chunks_per_part,
        ptr=np.array(cuts, np.int64),
        node_ids=np.array(nodes, id_dtype(len(part_of))),
    )


def cut_chunks(
    indptr: Any,
    part_of: Any,
    num_parts: int,
    chunks_per_part: int,
    order: Any = None,
    *,
    allocate: Allocate = np.zeros,
) -> Chunks:
    """Cuts each part into ranges of about equal computation.

    Args:
        indptr: i64[N+1], in-edges of each node.
        part_of: i32[N], part of each node.
        num_parts, chunks_per_part: m and n, 1 or more. Parts and chunks may be empty.
        order: ids[N], every node once: the order in which the nodes of a part stand; None = by id.
        allocate: makes the array of the nodes.
    """
    part_of = check_parts(part_of, num_parts, chunks_per_part)
    num_nodes = len(part_of)
    if len(indptr) != num_nodes + 1:
        raise InputError(f"{num_nodes} nodes have a part, the graph has {len(indptr) - 1}", "partition the same graph")
    order = None if order is None else check_order(order, num_nodes)
    nodes = allocate(num_nodes, id_dtype(num_nodes))
    ends = _by_part(part_of, num_parts, order, nodes)
    chunks = _cut(indptr, nodes, ends, chunks_per_part)
    if order is not None:
        for low, high in pairwise(chunks.ptr):
            nodes[low:high].sort()
    return chunks


def cut_again(indptr: Any, chunks: Chunks, chunks_per_part: int) -> Chunks:
    """Returns other chunks of the same parts, whose nodes stay in the order of the chunks before; none is sorted."""
    return _cut(indptr, chunks.node_ids, chunks.ptr[chunks.chunks_per_part :: chunks.chunks_per_part], chunks_per_part)


def _by_part(part_of: Array, num_parts: int, order: Array | None, out: Array) -> Array:
    """Writes the nodes of part after part, each in the order, and returns i64[m], where those of each part end."""
    counts = np.zeros(num_parts, np.int64)
    for low, high in node_ranges(len(part_of)):
        counts += np.bincount(part_of[low:high], minlength=num_parts)
    ends = np.cumsum(counts)
    begins = ends - counts
    for low, high in node_ranges(len(part_of)):
        nodes = np.arange(low, high) if order is None else order[low:high]
        parts = part_of[nodes]
        sizes = np.bincount(parts, minlength=num_parts)
        places = np.arange(len(nodes)) + np.repeat(begins - (np.cumsum(sizes) - sizes), sizes)
        out[places] = nodes[np.argsort(parts, kind="stable")]
        begins += sizes
    return ends


def _cut(indptr: Any, nodes: Array, part_ends: Array, chunks_per_part: int) -> Chunks:
    """Cuts parts, whose nodes ids[N] stand one after the other, into ranges of about equal computation."""
    indptr, first, ptr = np.asarray(indptr), 0, [np.zeros(1, np.int64)]
    for last in part_ends.tolist():
        ptr.append(first + _ends(indptr, nodes[first:last], chunks_per_part))
        first = last
    return Chunks(num_parts=len(part_ends), chunks_per_part=chunks_per_part, ptr=np.concatenate(ptr), node_ids=nodes)


def _ends(indptr: Array, nodes: Array, count: int) -> Array:
    """Returns i64[count]: the ends of ranges whose sums are nearest to equal shares; ties go to the shorter range."""
    spans = [*node_ranges(len(nodes))]
    targets = sum(int(_costs(indptr, nodes[low:high]).sum()) for low, high in spans) * np.arange(1, count + 1)
    ends, before = np.zeros(count, np.int64), 0
    for low, high in spans:
        sums = before + np.cumsum(_costs(indptr, nodes[low:high]))
        # Numbers are compared after multiplication, so nothing is rounded.
        first, last = np.searchsorted(targets, [before * count, int(sums[-1]) * count], "right")
        above = np.searchsorted(sums * count, targets[first:last])
        below = np.concatenate([[before], sums])[above]
        nearer = targets[first:last] - below * count <= sums[above] * count - targets[first:last]
        ends[first:last] = low + above + ~nearer
        before = int(sums[-1])
    return ends


def _costs(indptr: Array, nodes: Array) -> Array:
    return indptr[nodes + 1] - indptr[nodes] + NODE_COST


def check_parts(part_of: Any, num_parts: int, chunks_per_part: int) -> Array:
    """Returns i32[N] parts after checking that they and the numbers of parts and chunks are in range."""
    if not (1 <= num_parts <= MOST and 1 <= chunks_per_part <= MOST and num_parts * chunks_per_part <= MOST_CHUNKS):
        problem = f"{num_parts} parts of {chunks_per_part} chunks"
        raise InputError(problem, f"give 1 to {MOST} of both, at most {MOST_CHUNKS} chunks in all")
    part_of = as_int32(part_of, "part_of", len(part_of))
    if len(part_of) and not 0 <= part_of.min() <= part_of.max() < num_parts:
        place = int(np.flatnonzero((part_of < 0) | (part_of >= num_parts))[0])
        raise InputError(f"node {place} is in part {part_of[place]} of {num_parts}", "partition the graph again")
    return part_of


def check_order(order: Any, num_nodes: int) -> Array:
    """Returns ids[N] after checking that every node stands in it once."""
    order = as_ids(order, "order")
    seen = np.zeros(num_nodes, bool)
    if len(order) == num_nodes and (num_nodes == 0 or 0 <= order.min() <= order.max() < num_nodes):
        seen[order] = True
    if len(order) != num_nodes or not seen.all():
        raise InputError(f"the order of {num_nodes} nodes is not a permutation", "give every node once")
    return order


def check_edges(indptr: Any, indices: Any) -> Array:
    """Returns ids[E] after checking that `indptr`, i64[N+1], ends with their number and that each leads to a node.

    By ranges, so that edges that are larger than the memory are read once for both ends.
    """
    indices, num_nodes = as_ids(indices, "indices"), len(indptr) - 1
    if num_nodes < 0 or int(indptr[-1]) != len(indices):
        raise InputError("indptr does not fit indices", "give i64[N+1] that ascends from 0 to the number of edges")
    for low, high in node_ranges(len(indices)):
        if not 0 <= indices[low:high].min() <= indices[low:high].max() < num_nodes:
            raise InputError(f"an edge leads to no node of {num_nodes}", "build the graph again")
    return indices
