"""Partitioned graphs that the tests of chunks draw, and a count of their volumes that knows nothing of the kernels."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from graphmill.kernels.types import Array, Topology
from tests.kernels.graphs import topologies


class Drawn(NamedTuple):
    """A graph, its parts, and how it is cut."""

    topology: Topology
    part_of: Array
    num_parts: int
    chunks_per_part: int
    order: Array | None
    self_term: bool


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    """Any small multigraph, parts that may be empty or outnumber the nodes, chunks that may be empty, orders."""
    graph = draw(topologies(max_nodes=14))
    num_parts = draw(st.integers(1, 5))
    parts = draw(st.lists(st.integers(0, num_parts - 1), min_size=graph.num_nodes, max_size=graph.num_nodes))
    order = draw(st.none() | st.permutations(range(graph.num_nodes)))
    return Drawn(
        topology=graph,
        part_of=np.array(parts, np.int32),
        num_parts=num_parts,
        chunks_per_part=draw(st.integers(1, 6)),
        order=None if order is None else np.array(order, np.int64),
        self_term=draw(st.booleans()),
    )


class Counted(NamedTuple):
    """Volumes by sets of Python."""

    v_ori: int
    v_p2p: int
    v_ru: int
    distinct: int
    largest_union: int


def count(topology: Topology, chunks_by_step: list[list[Array]], self_term: bool) -> Counted:
    """Counts from the edges alone; chunks_by_step[j][i] are the destinations of device i in step j."""
    unions, v_ori = [], 0
    for step in chunks_by_step:
        union: set[int] = set()
        for nodes in step:
            needed = {int(u) for v in nodes for u in topology.indices[topology.indptr[v] : topology.indptr[int(v) + 1]]}
            needed |= {int(v) for v in nodes} if self_term else set()
            v_ori += len(needed)
            union |= needed
        unions.append(union)
    loaded = [len(now - last) for now, last in zip(unions, [set(), *unions], strict=False)]
    every = set().union(*unions)
    return Counted(v_ori, sum(map(len, unions)), sum(loaded), len(every), max(map(len, unions)))
