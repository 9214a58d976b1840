"""The edges of a block by relation: the runs of a row, each a row of a block of its own.

A run is the edges of one destination that have one relation. Runs stand in the order of (destination, relation), so a block of them has
the same edges in the same order where rows are sorted by relation, as a graph's are, and every kernel for blocks works on runs. An edge
list is never copied then; elsewhere edges are put into that order first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernels.types import Block

MOST_RELATIONS = 256
"""Relations are numbered in one byte."""
MEMO = "_relation_runs"


@dataclass(frozen=True, kw_only=True)
class RelationRuns:
    """The runs of a block.

    Attributes:
        block: the runs as destinations, with the sources of the block they come from; its transpose if that one has one. `weight` has each
            edge's part of the mean of its run where the sampler gave shares, else None.
        order: i64[runs], the runs by relation, in each by destination.
        destinations: i64[runs], the destinations of the runs in that order; each once per relation.
        relations, counts: the relations that the block has, ascending, and the number of runs of each.
    """

    block: Block
    order: Tensor
    destinations: Tensor
    relations: tuple[int, ...]
    counts: tuple[int, ...]


def relation_runs(block: Block) -> RelationRuns:
    """Returns the runs of a block that has relations; they are kept with the block, whose edges may not change after.

    Args:
        block: the block, on the host or on a device; `edge_type` is there.
    """
    found = vars(block).get(MEMO)
    if found is None:
        found = _made(block)
        setattr(block, MEMO, found)
    return found


def _made(block: Block) -> RelationRuns:
    start, end, kind = (_long(each) for each in (block.start, block.end, block.edge_type))
    row, place = _edges(start, end, len(block.indices))
    kind = kind if place is None else kind[place]
    key = row * MOST_RELATIONS + kind
    if bool((key[1:] < key[:-1]).any()):
        order = torch.argsort(key, stable=True)
        key, place = key[order], order if place is None else place[order]
    first = torch.ones_like(key, dtype=torch.bool)
    first[1:] = key[1:] != key[:-1]
    begins = first.nonzero()[:, 0]
    run = first.cumsum(0) - 1  # of each edge
    ends = torch.cat([begins[1:], begins.new_tensor([len(key)])]) if len(begins) else begins
    of_run, dst = key[begins] % MOST_RELATIONS, key[begins] // MOST_RELATIONS
    own = dst if block.dst_pos is None else _long(block.dst_pos)[dst]
    runs = Block(
        num_dst=len(begins),
        num_src=block.num_src,
        start=_like(block, begins.int()),
        end=_like(block, ends.int()),
        indices=block.indices if place is None else _like(block, _long(block.indices)[place].int()),
        src_ids=block.src_ids,
        dst_pos=_like(block, own.int()),
        weight=_parts(block, place, run, len(begins)),
        **_transposed(block, place, run),
    )
    order = torch.argsort(of_run, stable=True)
    relations, counts = torch.unique_consecutive(of_run[order], return_counts=True)
    there = {"relations": tuple(relations.tolist()), "counts": tuple(counts.tolist())}
    return RelationRuns(block=runs, order=order, destinations=dst[order], **there)


def _edges(start: Tensor, end: Tensor, num_edges: int) -> tuple[Tensor, Tensor | None]:
    """Returns the destination of each edge in the order of rows, and its place; None for the places if that is all of them in order."""
    taken = end - start
    row = torch.repeat_interleave(taken)
    if len(row) == num_edges and bool((end[:-1] == start[1:]).all()):
        return row, None
    before = taken.cumsum(0) - taken
    return row, torch.arange(len(row), device=row.device) + (start - before)[row]


def _parts(block: Block, place: Tensor | None, run: Tensor, num_runs: int) -> Any:
    """Returns f32[edges], each edge's share over those of its run; None without shares."""
    if block.share is None:
        return None
    share = torch.as_tensor(block.share)
    share = share if place is None else share[place]
    whole = torch.zeros(num_runs, dtype=torch.float64, device=run.device).index_add_(0, run, share.double())
    return _like(block, (share.double() / whole[run]).float())


def _transposed(block: Block, place: Tensor | None, run: Tensor) -> dict[str, Any]:
    """Returns the arrays of the runs' transpose: a source has the edges that it has in the block, in their order."""
    if block.t_start is None or block.t_edge is None:
        return {}
    edge = _long(block.t_edge)
    if place is not None:
        new = torch.empty(len(block.indices), dtype=torch.int64, device=edge.device)
        new[place] = torch.arange(len(place), device=edge.device)
        edge = new[edge]
    return {
        "t_start": block.t_start,
        "t_edge": _like(block, edge.int()),
        "t_dst": _like(block, run[edge].int()),
    }


def _long(array: Any) -> Tensor:
    """Returns a copy of whole numbers as i64[n], where they are."""
    return array.long() if isinstance(array, Tensor) else torch.from_numpy(np.asarray(array).astype(np.int64))


def _like(block: Block, tensor: Tensor) -> Any:
    """Returns a tensor as the block keeps its arrays: on a device as it is, on the host as NumPy's."""
    return tensor if isinstance(block.start, Tensor) else tensor.numpy()
