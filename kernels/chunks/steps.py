"""The steps of a full-graph pass: which chunk every device computes, and which rows it loads, fetches and keeps (HongTu 4.1, 5.1, 5.2, 6).

For chunk j of part i, N_ij are the in-neighbours of its destinations, and the destinations themselves with `self_term`. U_j is the union
of N_ij over the parts i of step j, and the transition set T_ij of device i are the nodes of U_j in part i. Device i holds T_ij, and copies
R_ij = N_ij minus part i. In a forward pass it

    loads    T_ij minus T_i(j-1)   from the host: over all steps and devices this is V_+ru rows
    fetches  R_ij minus R_i(j-1)   from the peers that own them; each has the row, since N_ij is part of U_j

and everything else of step j is in its buffer already.

A backward pass walks the steps downwards. The rows that leave a device's buffer after step j are those that step j - 1 does not have, and
these are exactly the rows that a forward pass brought in at step j. So no list of flushes is stored: after step j the gradients of the
fetched rows go to their owners, then those of the loaded rows go to the host, and both become zero. Algorithm 3 as printed walks upwards
and sends N^cpu_ij = N_ij minus N_i(j-1), too; upwards, that sends rows whose gradients are still to grow and loses those of rows that
leave. Walking downwards it is right as it stands, and the rows are V_+ru again. A copy that stays over several steps implies that its
owner's row stays over the same steps, so a gradient that is sent late finds its row.

A node that leaves the buffer and comes back is loaded and sent again, so the host adds gradients; it does not set them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import as_ids, check_threads
from graphmill.kernels.chunks.cut import Chunks, check_parts, cut_chunks
from graphmill.kernels.chunks.schedule import Schedule, choose_schedule, identity_schedule
from graphmill.kernels.chunks.sets import neighbour_sets, shared_sets
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array, Block, ChunkStep


def chunk_steps(
    indptr: Any,
    indices: Any,
    part_of: Any,
    num_parts: int,
    *,
    chunks_per_part: int,
    order: Any = None,
    schedule: Schedule = "best",
    self_term: bool = True,
    threads: int = 1,
) -> list[tuple[ChunkStep, ...]]:
    """Returns all steps of a full-graph pass over a topology in memory: `steps[j][i]` is the work of device i in step j.

    Args:
        indptr, indices: i64[N+1] and ids[E], in-neighbours of every node; duplicate edges and self-loops are kept as they are.
        part_of: i32[N], part of each node.
        num_parts: m, the number of devices. Parts may be empty.
        chunks_per_part: n, the number of steps. Chunks may be empty.
        order: ids[N], the order in which the nodes of a part stand before ranges are cut; None = by id.
        schedule: rule that assigns the chunks of a part to steps; see `graphmill.kernels.chunks.schedule`.
    """
    indptr, indices = check_topology(indptr, indices)
    part_of = check_parts(part_of, num_parts, chunks_per_part)
    chunks = cut_chunks(indptr, part_of, num_parts, chunks_per_part, order)
    chosen = identity_schedule(num_parts, chunks_per_part)
    if schedule != "identity":
        bits = neighbour_sets(indptr, indices, chunks, self_term=self_term, threads=threads)
        chosen = choose_schedule(shared_sets(bits, threads=threads), num_parts, schedule, threads=threads).schedule
    return list(iterate_steps(indptr, indices, part_of, chunks, chosen, self_term=self_term, threads=threads))


def check_topology(indptr: Any, indices: Any) -> tuple[Array, Array]:
    """Returns i64[N+1] and ids[E]; raises InputError unless rows lie one after the other. Sources are checked where they are read."""
    indptr, indices = as_ids(indptr, "indptr"), as_ids(indices, "indices")
    if len(indptr) == 0 or indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
        raise InputError("indptr does not fit indices", "give i64[N+1] that ascends from 0 to the number of edges")
    return indptr.astype(np.int64, copy=False), indices


def iterate_steps(
    indptr: Array, indices: Array, part_of: Array, chunks: Chunks, schedule: Array, *, self_term: bool, threads: int = 1
) -> Iterator[tuple[ChunkStep, ...]]:
    """Yields the steps one after the other; each is the tuple of all devices' `ChunkStep`s.

    Args:
        indptr, indices: the topology, which may be mapped; see `chunk_steps`.
        part_of: i32[N], part of each node.
        schedule: i32[m, n]; device i computes chunk schedule[i, j] of its part in step j.

    Memory: the steps of all devices for one j, and for each device two bitmaps with running counts, 3 N / 8 bytes, and the rows of two
    steps, 4 bytes each.

    Raises:
        InputError: an in-neighbour is not a node of the graph, or a chunk has 2^31 edges or more.
    """
    num_parts = chunks.num_parts
    maker_class = _native.StepMaker32 if indices.dtype == np.int32 else _native.StepMaker64
    maker = maker_class(indptr, indices, part_of, num_parts, bool(self_term), check_threads(threads))
    for step in range(chunks.chunks_per_part):
        chosen = [chunks.nodes(part, int(schedule[part, step])) for part in range(num_parts)]
        dst = [nodes.astype(indices.dtype, copy=False) for nodes in chosen]
        made = maker.next(dst)
        yield tuple(_step(part, step, dst[part], made[part], num_parts) for part in range(num_parts))


def _step(part: int, step: int, dst_ids: Array, made: tuple[Any, ...], num_parts: int) -> ChunkStep:
    start, end, indices, src_ids, dst_pos, load_ids, load_rows, fetch, num_transition = made
    return ChunkStep(
        part=part,
        step=step,
        dst_ids=dst_ids,
        block=Block(
            num_dst=len(dst_ids),
            num_src=len(src_ids),
            start=start,
            end=end,
            indices=indices,
            src_ids=src_ids,
            dst_pos=dst_pos,
        ),
        load_ids=load_ids,
        load_rows=load_rows,
        fetch=tuple(((part + hop) % num_parts, theirs, own) for hop, theirs, own in fetch),
        num_transition=num_transition,
    )


def iterate_steps_reference(
    indptr: Array, indices: Array, part_of: Array, chunks: Chunks, schedule: Array, *, self_term: bool
) -> Iterator[tuple[ChunkStep, ...]]:
    """Yields the same as `iterate_steps` (the rule in NumPy)."""
    num_parts = chunks.num_parts
    buffers = [BufferRows() for _ in range(num_parts)]
    for step in range(chunks.chunks_per_part):
        dst = [chunks.nodes(part, int(schedule[part, step])).astype(indices.dtype) for part in range(num_parts)]
        edges = [_edges(indptr, indices, each) for each in dst]
        needed = [
            np.unique(np.concatenate([sources, nodes] if self_term else [sources])).astype(indices.dtype)
            for nodes, (_, sources) in zip(dst, edges, strict=True)
        ]
        union = np.unique(np.concatenate(needed))
        owned = [union[part_of[union] == part] for part in range(num_parts)]
        groups = [_groups(needed[part], owned[part], part_of, part, num_parts) for part in range(num_parts)]
        moved = [buffer.advance(group) for buffer, group in zip(buffers, groups, strict=True)]
        yield tuple(
            _step_reference(part, step, dst[part], edges[part], groups[part], moved[part], buffers, self_term)
            for part in range(num_parts)
        )


def _edges(indptr: Array, indices: Array, dst_ids: Array) -> tuple[Array, Array]:
    """Returns (i64[v+1] starts, ids[edges] sources) of the destinations' edges, in the topology's order."""
    first = indptr[dst_ids]
    starts = np.concatenate([[0], np.cumsum(indptr[dst_ids + 1] - first)])
    place = np.arange(starts[-1]) + np.repeat(first - starts[:-1], np.diff(starts))
    return starts, indices[place]


def _groups(needed: Array, owned: Array, part_of: Array, part: int, num_parts: int) -> list[Array]:
    """Returns the nodes of a device's buffer: its transition nodes, then the copies of peers part + 1, part + 2, ..."""
    owner = part_of[needed]
    return [owned, *(needed[owner == (part + hop) % num_parts] for hop in range(1, num_parts))]


def _step_reference(
    part: int,
    step: int,
    dst_ids: Array,
    edges: tuple[Array, Array],
    groups: list[Array],
    moved: tuple[list[Array], list[Array]],
    buffers: list[BufferRows],
    self_term: bool,
) -> ChunkStep:
    (rows, new), (starts, sources), buffer = moved, edges, buffers[part]
    src_ids = np.full(int(buffer.rows.max(initial=-1)) + 1, -1, sources.dtype)
    src_ids[buffer.rows] = buffer.nodes
    fetch = []
    for hop in range(1, len(buffers)):
        wanted = groups[hop][new[hop]]
        if len(wanted):
            peer = (part + hop) % len(buffers)
            fetch.append((peer, buffers[peer].find(wanted), rows[hop][new[hop]]))
    starts = starts.astype(np.int32)
    block = Block(
        num_dst=len(dst_ids),
        num_src=len(src_ids),
        start=starts[:-1],
        end=starts[1:].copy(),
        indices=buffer.find(sources),
        src_ids=src_ids,
        dst_pos=buffer.find(dst_ids) if self_term else None,
    )
    return ChunkStep(
        part=part,
        step=step,
        dst_ids=dst_ids,
        block=block,
        load_ids=groups[0][new[0]],
        load_rows=rows[0][new[0]],
        fetch=tuple(fetch),
        num_transition=len(groups[0]),
    )


class BufferRows:
    """The rows of one device's buffer, from step to step: a node that stays in two successive steps keeps its row (HongTu, section 6).

    The paper describes two buffers per device, one for transition rows and one for neighbours, each updated in place, and then merges them,
    because a device's own neighbours are transition rows, too. Here there is one buffer from the beginning. A node's row is a transition
    row if the node belongs to the device's part and a copy otherwise, so no row ever changes its kind while its node stays.

    In every step, nodes that were in the buffer keep their rows; the rows of nodes that left are free. New transition nodes take the lowest
    free rows in ascending order, then come the copies, peer by peer. A buffer never needs more rows than its largest step has nodes: a step
    with b nodes finds its new ones b - kept free rows among the first b, unless a row above was in use already.

    Memory: 12 or 16 bytes per node of the buffer, and as much again during a step. Not checked: that the sets are ascending and disjoint.
    """

    def __init__(self):
        self.nodes = np.empty(0, np.int64)  # of the step before, ascending
        self.rows = np.empty(0, np.int32)

    def advance(self, groups: list[Array]) -> tuple[list[Array], list[Array]]:
        """Goes to the next step.

        Args:
            groups: ids[.] each, ascending and disjoint: the nodes of the step, first the transition nodes, then the copies of each peer.

        Returns:
            For each group, i32[.] the rows of its nodes and bool[.] which of them are new in this step.
        """
        nodes = np.concatenate([*groups, self.nodes[:0]])
        place = np.searchsorted(self.nodes, nodes)
        inside = place < len(self.nodes)
        kept = inside.copy()
        kept[inside] = self.nodes[place[inside]] == nodes[inside]
        rows = np.empty(len(nodes), np.int32)
        rows[kept] = self.rows[place[kept]]
        taken = np.zeros(int(rows[kept].max(initial=-1)) + 1 + len(nodes), bool)
        taken[rows[kept]] = True
        rows[~kept] = np.flatnonzero(~taken)[: np.count_nonzero(~kept)]
        order = np.argsort(nodes, kind="stable")
        self.nodes, self.rows = nodes[order], rows[order]
        ends = np.cumsum([len(group) for group in groups])[:-1]
        return np.split(rows, ends), np.split(~kept, ends)

    def find(self, node_ids: Array) -> Array:
        """Returns i32[n], the rows of nodes that are in the buffer now."""
        return self.rows[np.searchsorted(self.nodes, node_ids)]
