"""The best ends of nodes: of all candidates those of the highest scores, without known ones, in tiles.

A score and its candidate make one number of 64 bits, the score's bits above and the complement of the candidate's place below, so that the
largest numbers are the highest scores, and of equal scores the first candidates. A score that is not a number is the lowest.

Memory: `QUERIES` x `CANDIDATES` scores in 4 or 8 bytes and numbers in 8, 200 MiB; the rows of the candidates may be a mapped file.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.links.negatives import Side
from graphmill.kernels.links.triples import KnownEdges
from graphmill.kernels.types import Array
from graphmill.trainers.models.links.heads import LinkHead

QUERIES, CANDIDATES = 256, 1 << 16
"""Nodes and candidates of a tile."""
LEFT_OUT = -(1 << 63)
"""A number below those of all candidates."""


@torch.no_grad()
def best_ends(
    head: LinkHead,
    rows: Tensor,
    ends: Array,
    relation: Array | None,
    known: KnownEdges,
    *,
    side: Side,
    candidates: tuple[int, int],
    count: int,
) -> tuple[Array, Array]:
    """Returns the best other ends of nodes, the best first.

    Args:
        rows: float[N, H], what the model computes of each node.
        ends: i64[n], nodes that stay.
        relation: i64[n], or None if edges have no relations.
        known: edges that are left out, as is the pair of a node and itself.
        side: the end that candidates stand for.
        candidates: (first node, last node + 1).

    Returns:
        (i64[n, count], -1 where there are fewer candidates; f32[n, count], their scores, NaN there).
    """
    found, scores = np.full((len(ends), count), -1), np.full((len(ends), count), np.nan, np.float32)
    for low in range(0, len(ends), QUERIES):
        part = slice(low, low + QUERIES)
        kinds = None if relation is None else torch.from_numpy(relation[part])
        queries = head.query(rows[torch.from_numpy(ends[part])], kinds, side)
        indptr, others = known.others(ends[part], None if relation is None else relation[part], side=side)
        own = np.arange(len(queries))
        left_out = np.concatenate([np.repeat(own, np.diff(indptr)), own]), np.concatenate([others, ends[part]])
        best = _best_numbers(head, queries, rows, left_out, side, candidates, count)
        there, ordered = best != LEFT_OUT, best >> 32
        ordered = np.where(ordered >= 0, ordered, ordered ^ 0x7FFFFFFF)  # back from the numbers of `_ordered`
        found[part, : best.shape[1]] = np.where(there, candidates[0] + 0xFFFFFFFF - (best & 0xFFFFFFFF), -1)
        scores[part, : best.shape[1]] = np.where(there, ordered.astype(np.int32).view(np.float32), np.nan)
    return found, scores


def _best_numbers(
    head: LinkHead,
    queries: Tensor,
    rows: Tensor,
    left_out: tuple[Array, Array],
    side: Side,
    candidates: tuple[int, int],
    count: int,
) -> Array:
    """Returns i64[q, up to count], descending numbers of scores and candidates; `left_out` are queries and nodes of pairs."""
    first, last = candidates
    best = torch.full((len(queries), 0), LEFT_OUT, dtype=torch.int64)
    for low in range(first, last, CANDIDATES):
        high = min(low + CANDIDATES, last)
        scores = queries.new_empty(len(queries), high - low)
        head.tile(queries, rows[low:high], side, scores)
        places = torch.arange(low - first, high - first)
        numbers = (_ordered(scores.float()) << 32) | (0xFFFFFFFF - places)
        inside = (left_out[1] >= low) & (left_out[1] < high)
        numbers[torch.from_numpy(left_out[0][inside]), torch.from_numpy(left_out[1][inside] - low)] = LEFT_OUT
        both = torch.cat([best, numbers.topk(min(count, high - low), dim=1).values], dim=1)
        best = both.topk(min(count, both.shape[1]), dim=1).values
    return best.numpy()


def _ordered(scores: Tensor) -> Tensor:
    """Returns i64[...] of 32 bits in the order of scores f32[...]; the least for those that are no numbers."""
    bits = torch.where(scores == 0, 0.0, scores).view(torch.int32).to(torch.int64)  # -0 is 0
    ascending = torch.where(bits >= 0, bits, bits ^ 0x7FFFFFFF)
    return torch.where(scores.isnan(), -(1 << 31), ascending)
