"""The sources of a block by relation: a pair (relation, source) for every relation that a source has edges of.

A layer that maps a source by a matrix per relation before it aggregates computes a row for each pair, and aggregates from pairs to runs
(trainers/models/layers/relations.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from graphmill.kernels.types import Block
from graphmill.trainers.models.layers.relations import RelationRuns, as_long, like_block, relation_runs

MEMO = "_relation_pairs"


@dataclass(frozen=True, kw_only=True)
class RelationPairs:
    """The pairs (relation, source) of a block's edges, by relation and in each by source, and the runs as their destinations.

    Attributes:
        runs: the runs of the block.
        picked: the block from sources to pairs, one edge each; with its transpose.
        counts: number of pairs of each relation that the block has.
        block: the block from pairs to runs. After the pairs its sources have a row for each run, which stands for the run itself.
        by_edge: that block with its runs in the order of their edges, as masks of edges are drawn.
        run_halves: i64[runs], the place of a run in a table with a row for each destination and relation that the block has.
    """

    runs: RelationRuns
    picked: Block
    counts: tuple[int, ...]
    block: Block
    by_edge: Block
    run_halves: Tensor


def relation_pairs(block: Block) -> RelationPairs:
    """Returns the pairs of a block that has relations; they are kept with the block, whose edges may not change after.

    Args:
        block: the block, on the host or on a device; `edge_type` is there.
    """
    found = vars(block).get(MEMO)
    if found is None:
        found = _made(block, relation_runs(block))
        setattr(block, MEMO, found)
    return found


def _made(block: Block, runs: RelationRuns) -> RelationPairs:
    start, end, source = (as_long(each) for each in (runs.block.start, runs.block.end, runs.block.indices))
    counts = torch.tensor(runs.counts, dtype=torch.int64, device=start.device)
    kind = torch.repeat_interleave(counts)  # of each run, its place among the relations
    # Edges stand by destination, runs by relation: an edge is of the run that begins last before it.
    by_start = torch.argsort(start)
    run = torch.repeat_interleave(by_start, (end - start)[by_start])
    pairs, place = torch.unique(kind[run] * block.num_src + source, return_inverse=True)
    of_pair, num_pairs, num_runs = pairs % max(1, block.num_src), len(pairs), len(kind)
    ends = torch.searchsorted(pairs, torch.arange(1, len(counts) + 1, device=start.device) * block.num_src)
    ids, dst = torch.as_tensor(block.src_ids), as_long(runs.joined.t_dst)
    own = dst if block.dst_pos is None else as_long(block.dst_pos)[dst]
    places, like = torch.arange(num_pairs + 1, device=start.device), block
    picked = Block(
        num_dst=num_pairs,
        num_src=block.num_src,
        start=like_block(like, places[:-1].int()),
        end=like_block(like, places[1:].int()),
        indices=like_block(like, of_pair.int()),
        src_ids=block.src_ids,
        dst_pos=like_block(like, of_pair.int()),
        **_transposed(like, of_pair, block.num_src, places[:-1]),
    )
    paired = Block(
        num_dst=num_runs,
        num_src=num_pairs + num_runs,
        start=runs.block.start,
        end=runs.block.end,
        indices=like_block(like, place.int()),
        src_ids=like_block(like, torch.cat([ids[of_pair], ids[own]])),
        dst_pos=like_block(like, torch.arange(num_pairs, num_pairs + num_runs, device=start.device).int()),
        **_transposed(like, place, num_pairs + num_runs, run),
    )
    return RelationPairs(
        runs=runs,
        picked=picked,
        counts=tuple(torch.diff(ends, prepend=ends.new_zeros(1)).tolist()),
        block=paired,
        by_edge=replace(
            paired,
            start=like_block(like, start[by_start].int()),
            end=like_block(like, end[by_start].int()),
            dst_pos=like_block(like, (num_pairs + by_start).int()),
        ),
        run_halves=dst * len(counts) + kind,
    )


def _transposed(block: Block, source: Tensor, num_src: int, dst: Tensor) -> dict[str, Any]:
    """Returns the arrays of a transpose, as `block` keeps its own.

    Args:
        source, dst: i64[edges], the ends of each edge.
    """
    order = torch.argsort(source, stable=True)
    begins = torch.cat([order.new_zeros(1), torch.bincount(source, minlength=num_src).cumsum(0)])
    arrays = {"t_start": begins, "t_edge": order, "t_dst": dst[order]}
    return {name: like_block(block, array.int()) for name, array in arrays.items()}
