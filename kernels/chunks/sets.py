"""Neighbour sets of chunks, and the sizes of their unions and overlaps (HongTu, sections 5.1 and 5.3).

N_c, the neighbour set of chunk c, is the set of in-neighbours of its destinations, with the destinations themselves if a layer reads them.
A set is a bitmap over the nodes, so unions and overlaps are passes over words, and C sets take C N / 8 bytes whatever their sizes: 1.6 GB
for 128 chunks of 100 million nodes. (Lists of ids would take 4 bytes per entry, alpha N of them; they are smaller below alpha = C / 32 and
cannot be united in place.) Searches of a schedule need only nodes that two or more chunks share: `shared_sets` drops the others, which add
the same to every volume.

Time: one random bit per edge for the sets; a multiplication of bit matrices, C^2 N / 64 words, for all overlaps of C sets.
Results do not depend on the threads.
"""

from typing import Any, NamedTuple

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import check_threads
from graphmill.kernels.chunks.cut import Chunks
from graphmill.kernels.types import Array


class Volumes(NamedTuple):
    """HongTu's volumes in rows: V_ori, V_+p2p, V_+ru; see kernels/chunks/counts.py."""

    v_ori: int
    v_p2p: int
    v_ru: int


def neighbour_sets_reference(indptr: Array, indices: Array, chunks: Chunks, self_term: bool) -> list[set[int]]:
    """Returns the neighbour set of each chunk, by number (the rule)."""
    found = []
    for low, high in zip(chunks.ptr[:-1], chunks.ptr[1:], strict=True):
        nodes = [int(node) for node in chunks.node_ids[low:high]]
        sources = {int(u) for v in nodes for u in indices[indptr[v] : indptr[v + 1]]}
        found.append(sources | set(nodes) if self_term else sources)
    return found


def volumes_reference(sets: list[set[int]], schedule: Array) -> Volumes:
    """Returns the volumes of a schedule (the rule, by set arithmetic)."""
    num_parts, num_steps = schedule.shape
    chosen = [[sets[i * num_steps + int(schedule[i, j])] for i in range(num_parts)] for j in range(num_steps)]
    unions: list[set[int]] = [set().union(*step) for step in chosen]
    return Volumes(
        v_ori=sum(len(each) for step in chosen for each in step),
        v_p2p=sum(map(len, unions)),
        v_ru=sum(len(now - last) for now, last in zip(unions, [set(), *unions], strict=False)),
    )


def neighbour_sets(indptr: Any, indices: Any, chunks: Chunks, *, self_term: bool = True, threads: int = 1) -> Array:
    """Returns u64[C, ceil(N / 64)]: bit v % 64 of word v / 64 says whether node v is in the set; C = m n, by number of the chunk.

    Args:
        indptr, indices: i64[N+1] and ids[E], in-neighbours; may be mapped.

    Raises:
        InputError: an in-neighbour is not a node of the graph.
    """
    out = np.empty((len(chunks.ptr) - 1, -(-(len(indptr) - 1) // 64)), np.uint64)
    nodes = chunks.node_ids.astype(indices.dtype, copy=False)
    _native.neighbour_sets(indptr, indices, nodes, chunks.ptr, bool(self_term), check_threads(threads), out)
    return out


def shared_sets(sets: Array, *, threads: int = 1) -> Array:
    """Returns u64[C, words]: the same sets over those nodes alone that two or more of them hold, renumbered."""
    return _native.shared_sets(sets, check_threads(threads))


def set_sizes(sets: Array, *, threads: int = 1) -> Array:
    """Returns i64[C]: nodes of each set."""
    return _native.set_sizes(sets, check_threads(threads))


def overlaps(left: Array, right: Array, *, threads: int = 1) -> Array:
    """Returns i64[a, b]: nodes that set i of `left` and set j of `right` share."""
    return _native.set_overlaps(left, right, check_threads(threads)).reshape(len(left), len(right))


def unions(sets: Array, numbers: Array, *, threads: int = 1) -> Array:
    """Returns u64[n, words]: for each column of `numbers`, i64[m, n], the union of these sets; -1 stands for an empty one."""
    out = np.empty((numbers.shape[1], sets.shape[1]), np.uint64)
    _native.set_unions(sets, np.ascontiguousarray(numbers, np.int64), check_threads(threads), out)
    return out


def set_numbers(schedule: Array) -> Array:
    """Returns i64[m, n]: the number of the chunk that part i has in step j."""
    num_parts, num_steps = schedule.shape
    return schedule + np.arange(num_parts, dtype=np.int64)[:, None] * num_steps


def volumes(sets: Array, schedule: Array, *, threads: int = 1) -> Volumes:
    """Returns the volumes of a schedule, i32[m, n]: part i computes its chunk schedule[i, j] in step j. `sets` are of `neighbour_sets`."""
    batches = unions(sets, set_numbers(schedule), threads=threads)
    v_p2p = int(set_sizes(batches, threads=threads).sum())
    kept = int(_native.chain_overlaps(batches, check_threads(threads)).sum())
    return Volumes(v_ori=int(set_sizes(sets, threads=threads).sum()), v_p2p=v_p2p, v_ru=v_p2p - kept)


def count_distinct(sets: Array, *, threads: int = 1) -> int:
    """Returns the nodes that some set holds: no schedule loads fewer rows."""
    every = np.arange(len(sets), dtype=np.int64)[:, None]
    return int(set_sizes(unions(sets, every, threads=threads)).sum())
