"""Two-level partitions: each part is cut into chunks of about equal computation (HongTu, section 4.1).

The first level assigns nodes to parts, one per device. Inside a part nodes stand in an order, and the order is cut into ranges. A chunk is
the destinations of one range with all of their in-edges, so a layer aggregates whole neighbourhoods chunk by chunk.

Computation of a destination = its in-edges + `NODE_COST`, in units of an edge's work: an aggregation moves one row per edge, an update
multiplies one row by a matrix per node. The cuts are those nearest to equal shares, so a chunk costs at most its share plus the cost of
two half destinations: max <= total / n + largest destination. A hub that costs more than a share gets a chunk of its own, and others stay
empty. Chunks are also empty if a part has fewer nodes than chunks.

Time O(N), and O(N log N) to sort the nodes of each chunk if the order is not by id. Memory: 16 bytes per node beside the result.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphmill.kernels.arrays import as_ids, as_int32
from graphmill.kernels.errors import InputError
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


def cut_chunks(indptr: Any, part_of: Any, num_parts: int, chunks_per_part: int, order: Any = None) -> Chunks:
    """Cuts each part into ranges of about equal computation.

    Args:
        indptr: i64[N+1], in-edges of each node.
        part_of: i32[N], part of each node.
        num_parts, chunks_per_part: m and n, 1 or more. Parts and chunks may be empty.
        order: ids[N], every node once: the order in which the nodes of a part stand; None = by id.
    """
    part_of = check_parts(part_of, num_parts, chunks_per_part)
    num_nodes = len(part_of)
    ids = id_dtype(num_nodes)
    if len(indptr) != num_nodes + 1:
        raise InputError(f"{num_nodes} nodes have a part, the graph has {len(indptr) - 1}", "partition the same graph")
    sequence = np.arange(num_nodes, dtype=ids) if order is None else check_order(order, num_nodes).astype(ids)
    sequence = sequence[np.argsort(part_of[sequence], kind="stable")]
    counts = np.bincount(part_of, minlength=num_parts)
    firsts = np.concatenate([[0], np.cumsum(counts)])
    degrees: Array = np.diff(np.asarray(indptr, np.int64))
    ptr = np.zeros(num_parts * chunks_per_part + 1, np.int64)
    for part in range(num_parts):
        members = sequence[firsts[part] : firsts[part + 1]]
        ends = firsts[part] + _cuts(degrees[members] + NODE_COST, chunks_per_part)
        ptr[part * chunks_per_part + 1 : (part + 1) * chunks_per_part + 1] = ends
        if order is not None:
            for low, high in zip([firsts[part], *ends[:-1]], ends, strict=True):
                sequence[low:high].sort()
    return Chunks(num_parts=num_parts, chunks_per_part=chunks_per_part, ptr=ptr, node_ids=sequence)


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


def _cuts(costs: Array, count: int) -> Array:
    """Returns i64[count]: the ends of ranges whose sums are nearest to equal shares; ties go to the shorter range."""
    sums = np.concatenate([[0], np.cumsum(costs, dtype=np.int64)])
    targets = sums[-1] * np.arange(1, count + 1, dtype=np.int64)
    # Numbers are compared after multiplication, so nothing is rounded.
    above = np.minimum(np.searchsorted(sums * count, targets), len(costs))
    below = np.maximum(above - 1, 0)
    return np.where(targets - sums[below] * count <= sums[above] * count - targets, below, above)


def check_order(order: Any, num_nodes: int) -> Array:
    """Returns ids[N] after checking that every node stands in it once."""
    order = as_ids(order, "order")
    seen = np.zeros(num_nodes, bool)
    if len(order) == num_nodes and (num_nodes == 0 or 0 <= order.min() <= order.max() < num_nodes):
        seen[order] = True
    if len(order) != num_nodes or not seen.all():
        raise InputError(f"the order of {num_nodes} nodes is not a permutation", "give every node once")
    return order
