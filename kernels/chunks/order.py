"""The order in which the nodes of a part stand before ranges are cut (HongTu 4.1 cuts ranges of ids).

Ranges of an order are good chunks if nodes that stand near each other share neighbours. Ids of many graphs have such locality, those of
shuffled ones do not. Two orders are computed from the graph inside a part (symmetrised, each edge once, without self-loops):

`rcm_order`, reverse Cuthill-McKee: each component from a node at its periphery (George and Liu's search), breadth first, neighbours by
degree, and the whole reversed. It is right for meshes, roads and chains, where a level of the search is small. Hubs spoil it.

`sub_part_order`: nodes stand by sub-part of a partitioner, and by id inside a sub-part. The caller computes the sub-parts.

Time O(E log d) to sort the rows of the graph inside, O(E) per breadth-first search. Memory for a part of v nodes and e edges inside:
8 e bytes for the graph, 24 v bytes, and 4 bytes for each node of the whole graph. Ties go to the lower id everywhere.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import check_threads
from graphmill.kernels.chunks.by_part import nodes_by_part
from graphmill.kernels.types import Array, id_dtype


def part_graph_reference(indptr: Array, indices: Array, nodes: Array) -> list[list[int]]:
    """Returns the neighbours of each node of a part as places in `nodes`, ascending (the rule)."""
    place = {int(v): i for i, v in enumerate(nodes)}
    found: list[set[int]] = [set() for _ in nodes]
    for v, i in place.items():
        for u in indices[indptr[v] : indptr[v + 1]]:
            if int(u) in place and int(u) != v:
                found[i].add(place[int(u)])
                found[place[int(u)]].add(i)
    return [sorted(each) for each in found]


def rcm_reference(neighbours: list[list[int]]) -> list[int]:
    """Returns the reverse Cuthill-McKee order of an undirected graph (the rule)."""

    def rank(v: int) -> tuple[int, int]:
        return len(neighbours[v]), v

    def levels(start: int) -> list[list[int]]:
        seen, found = {start}, [[start]]
        while found[-1]:
            found.append(sorted({u for v in found[-1] for u in neighbours[v]} - seen))
            seen |= set(found[-1])
        return found[:-1]

    order: list[int] = []
    for seed in sorted(range(len(neighbours)), key=rank):
        if seed in order:
            continue
        start, deepest = seed, -1
        while len(found := levels(start)) - 1 > deepest and len(found) > 1:
            start, deepest = min(found[-1], key=rank), len(found) - 1
        component = [start]
        for v in component:
            component += sorted((u for u in neighbours[v] if u not in component), key=rank)
        order += component
    return order[::-1]


def part_graphs(
    indptr: Any, indices: Any, part_of: Array, num_parts: int, *, threads: int = 1
) -> Iterator[tuple[Array, Array, Array]]:
    """Yields for each part (nodes ids[v] ascending, xadj i64[v+1], adjacency i32[..]): the undirected graph inside it.

    Args:
        indptr, indices: in-neighbours; may be mapped.
        part_of: i32[N], part of each node.
    """
    sequence, bounds = nodes_by_part(part_of, num_parts, indices.dtype)
    local = np.full(len(part_of), -1, np.int32)
    for low, high in pairwise(bounds):
        nodes = sequence[low:high]
        local[nodes] = np.arange(len(nodes), dtype=np.int32)
        yield nodes, *_native.part_graph(indptr, indices, nodes, local, check_threads(threads))
        local[nodes] = -1


def rcm_order(indptr: Any, indices: Any, part_of: Array, num_parts: int, *, threads: int = 1) -> Array:
    """Returns ids[N]: parts one after the other, each in reverse Cuthill-McKee order of the graph inside it; args of `part_graphs`."""
    graphs = part_graphs(indptr, indices, part_of, num_parts, threads=threads)
    found = [nodes[_native.reverse_cuthill_mckee(xadj, adjacency)] for nodes, xadj, adjacency in graphs]
    return np.concatenate(found).astype(id_dtype(len(part_of)))


def sub_part_order(part_of: Array, sub_part_of: Array) -> Array:
    """Returns ids[N]: nodes by part i32[N], then by sub-part i32[N], then by id."""
    return np.lexsort([sub_part_of, part_of]).astype(id_dtype(len(part_of)))
