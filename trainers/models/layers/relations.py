"""The edges of a block by relation: the runs of a row, each a row of a block of its own.

A run is the edges of one destination that have one relation. Rows of a graph are sorted by relation, so a block of runs has the same
edges in the same places, and every kernel for blocks works on it; edges in another order are put into that one first. A second block joins
the runs of a destination again.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.layers.aggregate import Reduce
from graphmill.kernels.types import Block
from graphmill.trainers.models.ops import aggregate

MOST_RELATIONS = 256
"""Relations are numbered in one byte."""
MEMO = "_relation_runs"


@dataclass(frozen=True, kw_only=True)
class RelationRuns:
    """The runs of a block, by relation and in each by destination."""

    # The runs as destinations, with the sources of the block they come from; its transpose if that one has one. `weight` has each
    # edge's part of the mean of its run if the sampler gave shares or the data's weights count, else None.
    block: Block
    # The runs as sources of the destinations of the block they come from, in the order of relations; with its transpose.
    joined: Block
    # The relations that the block has, ascending, and the number of runs of each.
    relations: tuple[int, ...]
    counts: tuple[int, ...]


def relation_runs(block: Block, weighted: bool = False) -> RelationRuns:
    """Returns the runs of a block that has relations; they are kept with the block, whose edges may not change after.

    Args:
        block: the block, on the host or on a device; `edge_type` is there.
        weighted: whether the mean of a run is weighted by the block's `weight`, times shares if it has them.
    """
    memo = f"{MEMO}_{weighted}"
    found = vars(block).get(memo)
    if found is None:
        found = _made(block, weighted)
        setattr(block, memo, found)
    return found


def run_mean(runs: RelationRuns) -> Reduce:
    """Returns the reduction that makes the mean of each run."""
    return "mean" if runs.block.weight is None else "weighted"


def _made(block: Block, weighted: bool) -> RelationRuns:
    start, end, kind = (as_long(each) for each in (block.start, block.end, block.edge_type))
    row, place = edges_of(start, end, len(block.indices))
    kind = kind if place is None else kind[place]
    key = row * MOST_RELATIONS + kind
    if bool((key[1:] < key[:-1]).any()):
        by_row = torch.argsort(key, stable=True)
        key, place = key[by_row], by_row if place is None else place[by_row]
    first = torch.ones_like(key, dtype=torch.bool)
    first[1:] = key[1:] != key[:-1]
    begins, run = first.nonzero()[:, 0], first.cumsum(0) - 1  # runs by destination; the run of each edge
    ends = torch.cat([begins[1:], begins.new_tensor([len(key)])]) if len(begins) else begins
    relation, dst = key[begins] % MOST_RELATIONS, key[begins] // MOST_RELATIONS
    order = sorted_places(relation)
    new = torch.empty_like(order)
    new[order] = torch.arange(len(order), device=order.device)
    own = dst if block.dst_pos is None else as_long(block.dst_pos)[dst]
    runs = Block(
        num_dst=len(begins),
        num_src=block.num_src,
        start=like_block(block, begins[order].int()),
        end=like_block(block, ends[order].int()),
        indices=_in_order(block, block.indices, place),
        src_ids=block.src_ids,
        dst_pos=like_block(block, own[order].int()),
        weight=_parts(block, weighted, place, begins, ends, run),
        edge_rows=block.edge_rows,
        edge_place=_in_order(block, block.edge_place, place),
        **_transposed(block, place, new[run]),
    )
    there, counts = torch.unique_consecutive(relation[order], return_counts=True)
    return RelationRuns(
        block=runs,
        joined=_joined(block, dst, order, new),
        relations=tuple(there.tolist()),
        counts=tuple(counts.tolist()),
    )


def _in_order(block: Block, values: Any, place: Tensor | None) -> Any:
    """Returns i32[edges], values of the edges in the order of runs by destination; None of None."""
    return values if values is None or place is None else like_block(block, as_long(values)[place].int())


def _joined(block: Block, dst: Tensor, order: Tensor, new: Tensor) -> Block:
    """Returns the block from runs to destinations.

    Args:
        dst: i64[runs], ascending: the destination of each run.
        order, new: the runs by relation, and each one's place among these.
    """
    ends = torch.bincount(dst, minlength=block.num_dst).cumsum(0)
    starts = torch.cat([ends.new_zeros(1), ends[:-1]])
    places = torch.arange(len(order) + 1, device=order.device)
    return Block(
        num_dst=block.num_dst,
        num_src=len(order),
        start=like_block(block, starts.int()),
        end=like_block(block, ends.int()),
        indices=like_block(block, new.int()),
        src_ids=like_block(block, places[:-1]),
        # Destinations are no runs, and nothing asks for one's own row.
        dst_pos=like_block(block, torch.zeros_like(starts).int()),
        t_start=like_block(block, places.int()),
        t_edge=like_block(block, order.int()),
        t_dst=like_block(block, dst[order].int()),
    )


def sorted_places(relation: Tensor) -> Tensor:
    """Returns the places of values below `MOST_RELATIONS` in ascending order of values; NumPy's sort of bytes is a counting one."""
    if relation.device.type != "cpu":
        return torch.argsort(relation, stable=True)
    return torch.from_numpy(np.argsort(relation.to(torch.uint8).numpy(), kind="stable"))


def edges_of(start: Tensor, end: Tensor, num_edges: int) -> tuple[Tensor, Tensor | None]:
    """Returns the destination of each edge in the order of rows, and its place; None for the places if that is all of them in order."""
    taken = end - start
    row = torch.repeat_interleave(taken)
    if len(row) == num_edges and bool((end[:-1] == start[1:]).all()):
        return row, None
    before = taken.cumsum(0) - taken
    return row, torch.arange(len(row), device=row.device) + (start - before)[row]


def _parts(block: Block, weighted: bool, place: Tensor | None, begins: Tensor, ends: Tensor, run: Tensor) -> Any:
    """Returns f32[edges], each edge's share and weight over those of its run, 0 if these sum to 0; None without both.

    Args:
        place: i64[edges], places of the edges in the block in the order of runs by destination; None = in order.
        begins, ends: i64[runs], the edges of each run.
        run: i64[edges], the run of each edge.
    """
    given = [each for each in (block.share, block.weight if weighted else None) if each is not None]
    if not given:
        return None
    share = torch.as_tensor(given[0]).double()
    share = share if len(given) == 1 else share * torch.as_tensor(given[1]).double()
    share = share if place is None else share[place]
    if weighted:
        total = _sums(block, share, begins, ends)[run]
        return like_block(block, torch.where(total != 0, share / total, torch.zeros_like(total)).float())
    sums = torch.cat([share.new_zeros(1), share.cumsum(0)])  # a device adds in a fixed order so
    return like_block(block, (share / (sums[ends] - sums[begins])[run]).float())


def _sums(block: Block, values: Tensor, begins: Tensor, ends: Tensor) -> Tensor:
    """Returns f64[runs], the sum of the edges' values f64[edges] of each run, in edge order: opposite weights cancel out to 0."""
    places = like_block(block, torch.arange(len(values), device=values.device).int())
    edges = Block(
        num_dst=len(begins),
        num_src=len(values),
        start=like_block(block, begins.int()),
        end=like_block(block, ends.int()),
        indices=places,
        src_ids=places,
        dst_pos=like_block(block, torch.zeros_like(begins).int()),
    )
    return aggregate(edges, values[:, None], "sum")[:, 0]


def _transposed(block: Block, place: Tensor | None, run: Tensor) -> dict[str, Any]:
    """Returns the arrays of the runs' transpose: a source has the edges that it has in the block, in their order."""
    if block.t_start is None or block.t_edge is None:
        return {}
    edge = as_long(block.t_edge)
    if place is not None:
        new = torch.empty(len(block.indices), dtype=torch.int64, device=edge.device)
        new[place] = torch.arange(len(place), device=edge.device)
        edge = new[edge]
    return {
        "t_start": block.t_start,
        "t_edge": like_block(block, edge.int()),
        "t_dst": like_block(block, run[edge].int()),
    }


def as_long(array: Any) -> Tensor:
    """Returns a copy of whole numbers as i64[n], where they are."""
    return array.long() if isinstance(array, Tensor) else torch.from_numpy(np.asarray(array).astype(np.int64))


def like_block(block: Block, tensor: Tensor) -> Any:
    """Returns a tensor as the block keeps its arrays: on a device as it is, on the host as NumPy's."""
    return tensor if isinstance(block.start, Tensor) else tensor.numpy()
