"""Sampled blocks without the edges that their batch predicts.

A model that aggregates over the edge which it is asked to predict learns to recognise the edge instead of what makes it likely, and finds
none of it at the edges that it is tested on. So an edge of a block that is a target of the batch, or the reverse of one, is taken out:
by source, target and relation, hence every copy of it, in every block.

Both ends of such an edge are ends of the batch's edges, and these are the first nodes of every sampled block. So only rows of the first
nodes are read, their edges are compared with one number, and the few edges among the first nodes are searched for in the batch's sorted
targets. No node leaves a block with an edge: both ends are seeds.

It comes before edge weights and transposes, as a row's mean is one of the edges that are left. Shares of a row are divided by the sum
of those that are left. Degrees of the whole graph keep counting the edges, so GCN coefficients and sums of a row of which k edges are left
are d_in / k times those of its edges.

Cost: one comparison per edge of the ends' rows, one search per edge between ends, and a copy of a block that changes. For 1,024 edges of
a graph of 300,000 nodes: 0.8 ms beside the 4 ms of sampling with fan-outs 10 and 10, 1.5 ms beside 16 ms with 15, 10 and 5.

Not for walks: a walk that passes a target on its way to another node is not noticed.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graphmill.kernels.blocks.transpose import transpose
from graphmill.kernels.errors import InputError
from graphmill.kernels.links.triples import Triples, contains
from graphmill.kernels.types import Array, Block

BY_EDGE = ("indices", "weight", "share", "edge_type", "edge_id")


def exclude_reference(
    blocks: Sequence[Block], pairs: Array, relation: Array | None = None, reverse_of: tuple[int, ...] = (0,)
) -> tuple[Block, ...]:
    """Returns the same as `exclude`, without shares and transposes (the rule in plain Python)."""
    seeds, wanted = blocks[-1].src_ids, set()
    for i, (source, target) in enumerate(pairs.tolist()):
        own = 0 if relation is None else int(relation[i])
        wanted.add((int(seeds[source]), own, int(seeds[target])))
        if reverse_of[own] >= 0:
            wanted.add((int(seeds[target]), reverse_of[own], int(seeds[source])))
    made = []
    for block in blocks:
        rows = [[] for _ in range(block.num_dst)]
        for i, row in enumerate(rows):
            for edge in range(block.start[i], block.end[i]):
                own = 0 if block.edge_type is None or relation is None else int(block.edge_type[edge])
                if (int(block.src_ids[block.indices[edge]]), own, int(block.dst_ids[i])) not in wanted:
                    row.append(edge)
        end = np.cumsum([0, *map(len, rows)]).astype(np.int32)
        edges = np.array([edge for row in rows for edge in row], np.int64)
        by_edge = {name: getattr(block, name)[edges] for name in BY_EDGE if getattr(block, name) is not None}
        made.append(replace(block, start=end[:-1], end=end[1:], **by_edge))
    return tuple(made)


def exclude(
    blocks: Sequence[Block], pairs: Array, relation: Array | None = None, reverse_of: tuple[int, ...] = (0,)
) -> tuple[Block, ...]:
    """Takes the edges that a batch predicts, and their reverses, out of its blocks.

    Args:
        blocks: sampled blocks, before edge weights are computed; they are not changed. Data's weights move with their edges.
        pairs: i32[p, 2], places of source and target of the batch's edges among the seeds; their ends are the first seeds.
        relation: u8[p], or None if edges have no relations or all relations count as one.
        reverse_of: relation of the reverse of each relation's edges, -1 for none (`graphmill.kernels.links.triples.Triples`).

    Returns:
        The blocks; one that has none of these edges is returned as it is. A transpose is built again if there was one.

    Raises:
        InputError: the pairs have relations, and the edges of a block have none.
    """
    num_ends = int(pairs.max(initial=-1)) + 1
    if not num_ends:
        return tuple(blocks)
    local = Triples(num_nodes=num_ends, reverse_of=reverse_of)
    reverse, has_reverse = local.reverses(pairs[:, 0], pairs[:, 1], relation)
    targets = np.unique(np.concatenate([local.numbers(pairs[:, 0], pairs[:, 1], relation), reverse[has_reverse]]))
    return tuple(_excluded(block, targets, local, relation is not None) for block in blocks)


def _excluded(block: Block, targets: Array, local: Triples, typed: bool) -> Block:
    if typed and block.edge_type is None:
        raise InputError(
            "edges to predict have relations, and a sampled block has none", "sample a graph with relations"
        )
    assert block.dst_pos is None and block.self_weight is None and local.num_nodes <= block.num_dst
    ends = block.end[: local.num_nodes]
    edges = np.flatnonzero(block.indices[: ends[-1]] < local.num_nodes)
    rows = np.searchsorted(ends, edges, "right")
    relation = block.edge_type[edges] if typed and block.edge_type is not None else None
    found = contains(targets, local.numbers(block.indices[edges], rows, relation))
    return _without(block, edges[found], rows[found], local.num_nodes) if found.any() else block


def _without(block: Block, edges: Array, rows: Array, num_ends: int) -> Block:
    """Returns a block without some edges, ascending, of these rows, which are among the first `num_ends`: the others move as a whole."""
    gone = np.bincount(rows, minlength=num_ends).astype(np.int32)
    last = int(block.end[num_ends - 1])
    kept = np.ones(last, bool)
    kept[edges] = False
    arrays = {name: getattr(block, name) for name in BY_EDGE}
    by_edge = {
        name: np.concatenate([array[:last][kept], array[last:]]) for name, array in arrays.items() if array is not None
    }
    end = block.end - np.int32(len(edges))
    end[:num_ends] = block.end[:num_ends] - np.cumsum(gone, dtype=np.int32)
    start = np.concatenate([block.start[:1], end[:-1]])
    if block.share is not None:
        _share_anew(by_edge["share"][: end[num_ends - 1]], (end - start)[:num_ends], gone > 0)
    made = replace(block, start=start, end=end, t_start=None, t_edge=None, t_dst=None, t_weight=None, **by_edge)
    return made if block.t_start is None else transpose(made)


def _share_anew(share: Array, taken: Array, changed: Array) -> None:
    """Divides the shares of rows that lost edges by their sum, in place; the others stay as they are.

    Args:
        share: f32[edges of the rows]; taken: number of edges of each row; changed: bool, whether the row lost edges.
    """
    row = np.repeat(np.arange(len(taken)), taken)
    sums = np.bincount(row, weights=share, minlength=len(taken))
    share /= np.where(changed & (sums > 0), sums, 1.0)[row]
