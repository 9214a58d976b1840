"""Neighbour sets of chunks, and the sizes of their unions and overlaps (HongTu, sections 5.1 and 5.3).

N_c, the neighbour set of chunk c, is the set of in-neighbours of its destinations, with the destinations themselves if a layer reads them.
A set is a bitmap over the nodes, so unions and overlaps are passes over words, and C sets take C N / 8 bytes whatever their sizes: 1.6 GB
for 128 chunks of 100 million nodes. Sizes of unions and overlaps are sums over ranges of nodes, so bits that do not fit exist for one range
at a time and are made anew from lists: for each node the chunks whose sets hold it, 4 or 8 bytes each, alpha N of them, in a file that is
read in order (assets/chunks/build.py).

Searches of a schedule need only nodes that two or more chunks share, which have bits in `SharedSets`: the others add the same to every
volume.

Time: one random bit per edge for the sets; a multiplication of bit matrices, C^2 N / 64 words, for all overlaps of C sets.
Results do not depend on the threads.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import check_threads
from graphmill.kernels.chunks.cut import Chunks
from graphmill.kernels.errors import InputError
from graphmill.kernels.ranges import node_ranges
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


@dataclass(frozen=True, kw_only=True)
class SharedSets:
    """The neighbour sets of chunks over those nodes alone that two or more of them hold."""

    # Function that goes through ranges of these nodes anew, and yields unions of sets: for each argument, i64[., n] numbers of sets, the
    # u64[n, words] of `unions`. No column has a number of another one.
    unions: Callable[..., Iterator[tuple[Array, ...]]]
    # Whether there is one range, which stays in memory.
    held: bool
    # Nodes of each set, those included that no other set holds, i64[C].
    sizes: Array
    # Nodes that some set holds: no schedule loads fewer rows.
    num_distinct: int
    # Nodes that two or more sets hold.
    num_shared: int

    @property
    def words(self) -> int:
        """Words of the bits of one set."""
        return -(-self.num_shared // 64)


def shared_sets(sets: Array, *, threads: int = 1) -> SharedSets:
    """Returns the same sets over those nodes alone that two or more of them hold, renumbered; `sets` are of `neighbour_sets`."""
    bits, every = _native.shared_sets(sets, check_threads(threads)), np.arange(len(sets), dtype=np.int64)[:, None]
    distinct, shared = (int(set_sizes(unions(each, every, threads=threads)).sum()) for each in (sets, bits))

    def made(*numbers: Array) -> Iterator[tuple[Array, ...]]:
        yield tuple(unions(bits, each, threads=threads) for each in numbers)

    sizes = set_sizes(sets, threads=threads)
    return SharedSets(unions=made, held=True, sizes=sizes, num_distinct=distinct, num_shared=shared)


def listed_sets(indptr: Any, numbers: Any, num_sets: int, memory_bytes: int) -> SharedSets:
    """Returns the same sets from lists, with bits for some nodes at a time.

    Args:
        indptr, numbers: i64[N+1] and integers[..], for each node the numbers of the sets that hold it, each once; may be mapped.
        memory_bytes: bytes of the bits of a range.

    Raises:
        InputError: a number is not that of a set.
    """
    num_nodes, sizes, distinct, shared = len(indptr) - 1, np.zeros(num_sets, np.int64), 0, 0
    for low, high in node_ranges(num_nodes):
        counts = np.diff(indptr[low : high + 1])
        distinct, shared = distinct + int(np.count_nonzero(counts)), shared + int(np.count_nonzero(counts > 1))
        found = np.bincount(numbers[indptr[low] : indptr[high]], minlength=num_sets)
        if len(found) > num_sets:
            raise InputError(f"a node is in set {len(found) - 1} of {num_sets}", "cut the parts into chunks again")
        sizes += found

    def made(*chosen: Array) -> Iterator[tuple[Array, ...]]:
        columns = [_column_of(each, num_sets) for each in chosen]
        step = max(1, 8 * memory_bytes // sum(each.shape[1] for each in chosen))
        for low in range(0, num_nodes, step):
            ends = np.asarray(indptr[low : min(low + step, num_nodes) + 1])
            held_by, count = np.asarray(numbers[ends[0] : ends[-1]]), int(np.count_nonzero(np.diff(ends) > 1))
            if count:
                out = [np.zeros((each.shape[1], -(-count // 64)), np.uint64) for each in chosen]
                for column_of, bits in zip(columns, out, strict=True):
                    _native.listed_unions(ends - ends[0], held_by, column_of, bits)
                yield tuple(out)

    return SharedSets(unions=made, held=False, sizes=sizes, num_distinct=distinct, num_shared=shared)


def _column_of(numbers: Array, num_sets: int) -> Array:
    """Returns i32[C]: the column of `numbers`, i64[., n], that has each set, -1 if none has it."""
    column_of = np.full(num_sets, -1, np.int32)
    rows, columns = np.nonzero(numbers >= 0)
    column_of[numbers[rows, columns]] = columns
    return column_of


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


def volumes(sets: SharedSets, schedule: Array, *, threads: int = 1) -> Volumes:
    """Returns the volumes of a schedule, i32[m, n]: part i computes its chunk schedule[i, j] in step j."""
    v_p2p, kept = sets.num_distinct - sets.num_shared, 0
    for (batches,) in sets.unions(set_numbers(schedule)):
        v_p2p += int(set_sizes(batches, threads=threads).sum())
        kept += int(_native.chain_overlaps(batches, check_threads(threads)).sum())
    return Volumes(v_ori=int(sets.sizes.sum()), v_p2p=v_p2p, v_ru=v_p2p - kept)
