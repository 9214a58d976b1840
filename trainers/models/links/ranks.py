"""The rank of each edge's end among all candidates, exact and filtered (Bordes et al., 2013), in tiles, or among some of its own.

The rank of a target is 1, plus the number of candidates that score higher with the edge's source and relation, plus half the number of
those that score the same. Candidates that make another known edge are left out, of whatever split. The same is done for sources. A score
that is not a number is neither higher nor lower than another one, so a model of such scores has the ranks of chance.

Scores are computed in tiles of `QUERIES` ends and `CANDIDATES` candidates, all of one shape: the last ones are filled up with zeros. A
product of matrices rounds by the place in a tile if the tile ends amid registers, and in full tiles it does not: equal rows have equal
scores, which is tested. Candidates are read once: the queries pass over each tile of them. Each edge's own score, which the others are
compared with, comes from a tile as well. For these tiles queries are sorted by their own candidate, so that one more pass over the
candidates computes them, with few queries each. Known candidates are counted in the same tiles and subtracted.

Cost beside the products alone: one more tile of queries over all candidates, two comparisons and two additions per score. Of
10,000 edges and 128 columns that is 1.35 times the processor seconds of the products (benchmarks/link_ranks.py).

Memory: `rank_bytes` (trainers/recipe/costs/exact.py) says it. Rows of candidates may be a mapped file.

Ranks among candidates of a link's own, given ones or nodes drawn at random, are here as well. Scores are those of pairs then: the row of
the end that stays is projected once per edge, and multiplied with the row of each candidate. Drawn candidates are uniform among the nodes
of the end's types, without known edges, and may repeat. They are the same at every evaluation.

Memory: rows of `PAIRS_AT_ONCE` pairs, two each, or of the candidates of one edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from graphmill.assets.tasks.links import LinkCandidates
from graphmill.kernels.errors import InputError
from graphmill.kernels.links.negatives import Candidates, DrawnNegatives, Side, uniform_candidates
from graphmill.kernels.links.splits import row_ranges
from graphmill.kernels.links.triples import KnownEdges
from graphmill.kernels.types import Array, BatchKey, Stream
from graphmill.trainers.models.links.heads import LinkHead
from graphmill.trainers.recipe.costs.exact import CANDIDATES, QUERIES


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Edges whose ends are ranked.

    Attributes:
        source, target: i64[n]; relation: i64[n], or None if edges have no relations.
        ranges: side -> (first node, last node + 1) of the candidates of each relation; one entry if edges have no relations.
    """

    source: Array
    target: Array
    relation: Array | None
    ranges: dict[Side, Sequence[tuple[int, int]]]

    def of(self, part: Array | slice) -> Pairs:
        """Returns some of the edges."""
        relation = None if self.relation is None else self.relation[part]
        return Pairs(source=self.source[part], target=self.target[part], relation=relation, ranges=self.ranges)


@torch.no_grad()
def link_ranks(head: LinkHead, rows: Tensor, pairs: Pairs, known: KnownEdges, side: Side) -> Array:
    """Ranks one end of edges among all nodes of its type.

    Args:
        rows: float[N, H], what the model computes of each node.
        known: edges that are left out, those of all splits.
        side: the end that is ranked.

    Returns:
        f64[n], ranks from 1 on, ties at their mean.

    Raises:
        InputError: an end is not among the candidates of its relation; names the row.
    """
    kept, own = (pairs.source, pairs.target) if side == "target" else (pairs.target, pairs.source)
    of = np.zeros(len(own), np.int64) if pairs.relation is None else pairs.relation
    low, high = np.array(pairs.ranges[side], np.int64).reshape(-1, 2)[of].T
    outside = np.flatnonzero((own < low) | (own >= high))
    if len(outside):
        row = int(outside[0])
        problem = f"row {row}: the {side} {own[row]} is not among its candidates {low[row]} to {high[row] - 1}"
        raise InputError(problem, "give candidates that have the edge's own end among them")
    ranks = np.empty(len(own))
    for first, last in np.unique(np.stack([low, high], axis=1), axis=0).tolist():
        chosen = np.flatnonzero((low == first) & (high == last))
        chosen = chosen[np.argsort(own[chosen], kind="stable")]
        relation = None if pairs.relation is None else pairs.relation[chosen]
        kinds = None if relation is None else torch.from_numpy(relation)
        queries = head.query(rows[torch.from_numpy(kept[chosen])], kinds, side)
        indptr, nodes = known.others(kept[chosen], relation, side=side)
        inside = (nodes >= first) & (nodes < last)
        of_query = np.repeat(np.arange(len(chosen)), np.diff(indptr))[inside]
        request = _Request(queries, own[chosen] - first, of_query, nodes[inside] - first)
        ranks[chosen] = request.ranks(head, rows[first:last], side)
    return ranks


class _Request:
    """Queries and the candidates that are left out of their ranks, sorted for the tiles.

    Args:
        queries: float[n, Q]; own: i64[n] ascending, the place of each one's right candidate.
        of_query, known: i64[k], query and place of each known candidate.
    """

    def __init__(self, queries: Tensor, own: Array, of_query: Array, known: Array):
        self.queries, self.own = queries, own
        place = np.arange(len(own))
        # An own candidate is left out like the known ones: it is not compared with itself.
        of_query, known = np.concatenate([of_query, place]), np.concatenate([known, own])
        self.query_tiles = -(-len(own) // QUERIES)
        tile = known // CANDIDATES * self.query_tiles + of_query // QUERIES
        sorted_by_tile = np.lexsort((known, of_query, tile))
        of_query, known, tile = (each[sorted_by_tile] for each in (of_query, known, tile))
        new = (np.diff(of_query, prepend=-1) != 0) | (np.diff(known, prepend=-1) != 0)
        self.of_query, self.known, self.tile = of_query[new], known[new], tile[new]

    def ranks(self, head: LinkHead, rows: Tensor, side: Side) -> Array:
        """Returns f64[n], the ranks among candidates whose rows are float[c, H]."""
        count, tiles = len(self.own), -(-len(rows) // CANDIDATES)
        scorer = _Scorer(head, side, self.queries, rows)
        positive = self._positive(scorer)
        above_below = np.zeros((2, count), np.int64)
        left_out = np.empty(len(self.known), scorer.scores.dtype)
        places = self.of_query % QUERIES, self.known % CANDIDATES
        cuts = np.searchsorted(self.tile, np.arange(tiles * self.query_tiles + 1))
        for number, (begin, end) in enumerate(pairwise(cuts.tolist())):
            tile, first = number // self.query_tiles, number % self.query_tiles * QUERIES
            own = positive[first : first + QUERIES]
            scorer.score(first, tile)
            above_below[:, first : first + QUERIES] += scorer.above_below(own)
            if begin < end:
                left_out[begin:end] = scorer.scores[places[0][begin:end], places[1][begin:end]]
        own = positive.numpy()[self.of_query]
        for counts, gone in zip(above_below, (left_out > own, left_out < own), strict=True):
            counts -= np.bincount(self.of_query[gone], minlength=count)
        ties = len(rows) - np.bincount(self.of_query, minlength=count) - above_below.sum(axis=0)
        return 1 + above_below[0] + ties / 2

    def _positive(self, scorer: _Scorer) -> Tensor:
        """Returns float[n], the score of each query with its own candidate."""
        positive = self.queries.new_empty(len(self.own))
        for tile in np.unique(self.own // CANDIDATES).tolist():
            begin, end = np.searchsorted(self.own, (tile * CANDIDATES, (tile + 1) * CANDIDATES))
            for first in range(begin, end, QUERIES):
                last = min(first + QUERIES, end)
                scorer.score(first, tile)
                own = self.own[first:last] - tile * CANDIDATES
                positive[first:last] = torch.from_numpy(scorer.scores[np.arange(last - first), own])
        return positive


class _Scorer:
    """Computes tiles of scores in memory of its own.

    Attributes:
        scores: [QUERIES, CANDIDATES], the last tile. Those behind the last candidate are not numbers; those behind the last query mean
            nothing.
    """

    def __init__(self, head: LinkHead, side: Side, queries: Tensor, rows: Tensor):
        self.head, self.queries, self.rows = head, queries, rows
        self.side: Side = side
        self._queries = queries.new_zeros(QUERIES, queries.shape[1])
        self._rows, self._held = rows.new_zeros(CANDIDATES, rows.shape[1]), -1
        self._out = queries.new_empty(QUERIES, CANDIDATES)
        self._found = torch.empty_like(self._out)
        self.scores = self._out.numpy()

    def score(self, first: int, tile: int) -> None:
        """Computes the scores of the queries from `first` on with the candidates of a tile."""
        low = tile * CANDIDATES
        rows = self.rows[low : low + CANDIDATES]
        if self._held != tile:
            self._rows[: len(rows)] = rows
            self._held = tile
        queries = self.queries[first : first + QUERIES]
        if len(queries) < QUERIES:
            self._queries[: len(queries)] = queries
            queries = self._queries
        self.head.tile(queries, self._rows, self.side, self._out)
        if len(rows) < CANDIDATES:
            self._out[:, len(rows) :] = torch.nan

    def above_below(self, own: Tensor) -> Array:
        """Returns i64[2, n]: how many scores of each query are above and below its own one, float[n]."""
        count, scores = len(own), self._out[: len(own)]
        # The result of a comparison as a number of the scores' type takes a quarter of the time that a truth value takes.
        sums = [
            compare(scores, own[:, None], out=self._found[:count]).sum(dim=1).long().numpy()
            for compare in (torch.gt, torch.lt)
        ]
        return np.stack(sums)


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
