"""The rank of each edge's end among candidates of its own: given ones, or nodes drawn at random.

Scores are those of pairs: the row of the end that stays is projected once per edge, and multiplied with the row of each candidate.

Drawn candidates are uniform among the nodes of the end's types, without known edges, and may repeat. They are the same at every evaluation.

Memory: rows of `PAIRS_AT_ONCE` pairs, two each, or of the candidates of one edge.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from graphmill.assets.tasks.links import LinkCandidates
from graphmill.kernels.links.negatives import Candidates, DrawnNegatives, Side, uniform_candidates
from graphmill.kernels.links.splits import row_ranges
from graphmill.kernels.links.triples import KnownEdges
from graphmill.kernels.types import Array, BatchKey, Stream
from graphmill.trainers.models.links.heads import LinkHead
from graphmill.trainers.models.links.ranks import Pairs

PAIRS_AT_ONCE = 1 << 16
STEP: dict[Side, int] = {"target": 1, "source": 2}
"""Step of the stream of evaluation that draws the candidates of a side."""


def of_links(candidates: LinkCandidates, side: Side, edges: Array) -> tuple[Array, Array]:
    """Returns (starts i64[n + 1], ends i64[k]), the candidates of links i64[n], ascending numbers."""
    begin, end = candidates.starts[side][edges], candidates.starts[side][edges + 1]
    starts = np.concatenate([[0], np.cumsum(end - begin)]).astype(np.int64)
    places = np.arange(starts[-1]) + np.repeat(begin - starts[:-1], end - begin)
    return starts, np.array(candidates.ends[side][places]).astype(np.int64)


def ranks_among(own: Array, others: Array, starts: Array) -> Array:
    """Returns f64[n], the rank of each score among those that it is compared with, ties at their mean; NaN among none.

    Args:
        own: float[n]; others: float[k], those of score i are `others[starts[i] : starts[i + 1]]`; starts: i64[n + 1].
    """
    count = np.diff(starts)
    mine, row = np.repeat(own, count), np.repeat(np.arange(len(own)), count)
    above, below = (np.bincount(row[chosen], minlength=len(own)) for chosen in (others > mine, others < mine))
    return np.where(count > 0, 1 + above + (count - above - below) / 2, np.nan)


@torch.no_grad()
def given_ranks(head: LinkHead, rows: Tensor, pairs: Pairs, side: Side, starts: Array, ends: Array) -> Array:
    """Ranks one end of edges among their candidates.

    Args:
        rows: float[N, H], what the model computes of each node.
        pairs: n edges.
        starts, ends: i64[n + 1] and i64[k]: edge i has the candidates `ends[starts[i] : starts[i + 1]]`, without its own end.

    Returns:
        f64[n], ranks from 1 on, ties at their mean; NaN for an edge without candidates.
    """
    kept, own = (pairs.source, pairs.target) if side == "target" else (pairs.target, pairs.source)
    kinds, found = None if pairs.relation is None else torch.from_numpy(pairs.relation), np.empty(len(own))
    for low, high in row_ranges(starts, PAIRS_AT_ONCE):
        queries = head.query(rows[torch.from_numpy(kept[low:high])], None if kinds is None else kinds[low:high], side)
        of_pair = torch.from_numpy(np.repeat(np.arange(high - low), np.diff(starts[low : high + 1])))
        others = rows[torch.from_numpy(ends[starts[low] : starts[high]])]
        scores = head.paired(queries[of_pair], others, side)
        positive = head.paired(queries, rows[torch.from_numpy(own[low:high])], side)
        found[low:high] = ranks_among(positive.numpy(), scores.numpy(), starts[low : high + 1] - starts[low])
    return found


def have_others(pairs: Pairs, known: KnownEdges, side: Side) -> Array:
    """Returns bool[n], whether an edge has another candidate for an end: a node of its types that makes no known edge.

    Args:
        pairs: n known edges.
    """
    kept = pairs.source if side == "target" else pairs.target
    of = np.zeros(len(kept), np.int64) if pairs.relation is None else pairs.relation
    low, high = np.array(pairs.ranges[side], np.int64).reshape(-1, 2)[of].T
    indptr, nodes = known.others(kept, pairs.relation, side=side)
    edge = np.repeat(np.arange(len(kept)), np.diff(indptr))
    inside = (nodes >= low[edge]) & (nodes < high[edge])
    return np.bincount(edge[inside], minlength=len(kept)) < high - low


def uniform_ranks(
    head: LinkHead, rows: Tensor, pairs: Pairs, side: Side, edges: Array, count: int, known: KnownEdges
) -> Array:
    """Ranks one end of edges among drawn candidates; arguments and result as of `given_ranks`. NaN for an edge that has none.

    Args:
        edges: i64[n], numbers of the edges, which the draws depend on.
        known: edges that are not candidates, those of all splits.
    """
    found, at_once = np.full(len(edges), np.nan), max(1, PAIRS_AT_ONCE // count)
    chosen = np.flatnonzero(have_others(pairs, known, side))
    for low in range(0, len(chosen), at_once):
        part = chosen[low : low + at_once]
        some = pairs.of(part)
        ends = drawn_others(some, side, edges[part], count, known, STEP[side])
        found[part] = given_ranks(head, rows, some, side, np.arange(len(part) + 1) * count, ends.reshape(-1))
    return found


def drawn_others(pairs: Pairs, side: Side, edges: Array, count: int, known: KnownEdges, step: int = 0) -> Array:
    """Draws other ends of edges that have some (`have_others`), the same ones at every evaluation.

    Args:
        edges: i64[n], numbers of the edges.
        step: of the stream of evaluation.

    Returns:
        ids[n, count].
    """
    nodes: dict[Side, Sequence[Candidates]] = {side: [uniform_candidates(*each) for each in pairs.ranges[side]]}
    negatives = DrawnNegatives(seed=0, per_positive=count, candidates=nodes, sides=(side,), known=known)
    drawn = negatives.draw(BatchKey(Stream.EVAL, 0, step), edges, pairs.source, pairs.target, pairs.relation)
    return drawn[1 if side == "target" else 0]
