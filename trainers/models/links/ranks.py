"""The rank of each edge's end among all candidates, exact and filtered (Bordes et al., 2013), in tiles.

The rank of a target is 1, plus the number of candidates that score higher with the edge's source and relation, plus half the number of
those that score the same. Candidates that make another known edge are left out, of whatever split. The same is done for sources. A score
that is not a number is neither higher nor lower than another one, so a model of such scores has the ranks of chance.

Scores are computed in tiles of `QUERIES` ends and `CANDIDATES` candidates, all of one shape: the last ones are filled up with zeros. A
product of matrices rounds by the place in a tile if the tile ends amid registers, and in full tiles it does not: equal rows have equal
scores, which is tested. Candidates are read once: the queries pass over each tile of them. Each edge's own score, which the others are
compared with, comes from a tile as well. For these tiles queries are sorted by their own candidate, so that one more pass over the
candidates computes them, with few queries each. Known candidates are counted in the same tiles and subtracted.

Cost beside the products alone: one more tile of queries over all candidates, two comparisons and an eighth of an addition per score.

Memory: `rank_bytes` says it. Rows of candidates may be a mapped file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.errors import InputError
from graphmill.kernels.links.negatives import Side
from graphmill.kernels.links.triples import KnownEdges
from graphmill.kernels.types import Array
from graphmill.trainers.models.links.heads import LinkHead

QUERIES, CANDIDATES = 384, 1536
"""Ends and candidates of a tile: multiples of the rows and columns that a product keeps in registers. `CANDIDATES` / 8 is below 256."""


def rank_bytes(queries: int, columns: int, known: int = 0, item: int = 4) -> int:
    """Returns the bytes that ranks of some queries take besides the rows of the nodes.

    Args:
        queries: number n of edges of one side.
        columns: columns of a row, and of a query.
        known: number of known candidates of all queries.
        item: bytes of a value.
    """
    tile = QUERIES * CANDIDATES * (item + 1) + (QUERIES + CANDIDATES) * columns * item
    return tile + queries * (2 * columns * item + item + 56) + 56 * known


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
        relation = None if pairs.relation is None else pairs.relation[chosen]
        kinds = None if relation is None else torch.from_numpy(relation)
        queries = head.query(rows[torch.from_numpy(kept[chosen])], kinds, side)
        indptr, nodes = known.others(kept[chosen], relation, side=side)
        inside = (nodes >= first) & (nodes < last)
        of_query = np.repeat(np.arange(len(chosen)), np.diff(indptr))[inside]
        request = _Request(queries, own[chosen] - first, of_query, nodes[inside] - first)
        ranks[chosen] = request.ranks(head, rows[first:last], side)
    return ranks


def ranks_among(positive: Array, others: Array) -> Array:
    """Returns f64[n]: the rank of each score float[n] among others that it is compared with, float[n, K], ties at their mean."""
    own = positive[:, None]
    above, below = (others > own).sum(axis=1), (others < own).sum(axis=1)
    return 1 + above + (others.shape[1] - above - below) / 2


class _Request:
    """Queries and the candidates that are left out of their ranks, sorted for the tiles.

    Args:
        queries: float[n, Q]; own: i64[n], the place of each one's right candidate.
        of_query, known: i64[k], query and place of each known candidate.
    """

    def __init__(self, queries: Tensor, own: Array, of_query: Array, known: Array):
        self.order = np.argsort(own, kind="stable")
        self.queries, self.own = queries[torch.from_numpy(self.order)], own[self.order]
        place = np.empty(len(own), np.int64)
        place[self.order] = np.arange(len(own))
        # An own candidate is left out like the known ones: it is not compared with itself.
        of_query, known = np.concatenate([place[of_query], place]), np.concatenate([known, own])
        tiles = known // CANDIDATES
        sorted_by_tile = np.lexsort((known, of_query, tiles))
        of_query, known, tiles = of_query[sorted_by_tile], known[sorted_by_tile], tiles[sorted_by_tile]
        new = (np.diff(of_query, prepend=-1) != 0) | (np.diff(known, prepend=-1) != 0)
        self.of_query, self.known, self.tiles = of_query[new], known[new], tiles[new]

    def ranks(self, head: LinkHead, rows: Tensor, side: Side) -> Array:
        """Returns f64[n], the ranks among candidates whose rows are float[c, H]."""
        count = len(self.own)
        scorer = _Scorer(head, side, self.queries, rows)
        positive = self.queries.new_empty(count)
        for low, high in scorer.tiles():
            begin, end = np.searchsorted(self.own, (low, high))
            for first in range(begin, end, QUERIES):
                last = min(first + QUERIES, end)
                scores = scorer.scores(first, last, low, high)
                own = torch.from_numpy(self.own[first:last] - low)
                positive[first:last] = scores[torch.arange(last - first), own]
        above, below = np.zeros(count, np.int64), np.zeros(count, np.int64)
        for low, high in scorer.tiles():
            for first in range(0, count, QUERIES):
                last = min(first + QUERIES, count)
                scores = scorer.scores(first, last, low, high)
                own = positive[first:last, None]
                above[first:last] += scorer.count(torch.gt, scores, own)
                below[first:last] += scorer.count(torch.lt, scores, own)
                self._leave_out(scores, own, (first, last), low, above, below)
        ties = len(rows) - np.bincount(self.of_query, minlength=count) - above - below
        ranks = np.empty(count)
        ranks[self.order] = 1 + above + ties / 2
        return ranks

    def _leave_out(
        self, scores: Tensor, own: Tensor, queries: tuple[int, int], low: int, above: Array, below: Array
    ) -> None:
        """Subtracts the known candidates of a tile from the counts."""
        first, last = queries
        begin, end = np.searchsorted(self.tiles, (low // CANDIDATES, low // CANDIDATES + 1))
        begin, end = begin + np.searchsorted(self.of_query[begin:end], (first, last))
        if begin == end:
            return
        of_query = self.of_query[begin:end]
        rows = torch.from_numpy(of_query - first)
        found = scores[rows, torch.from_numpy(self.known[begin:end] - low)]
        np.subtract.at(above, of_query, (found > own[rows, 0]).long().numpy())
        np.subtract.at(below, of_query, (found < own[rows, 0]).long().numpy())


class _Scorer:
    """Computes tiles of scores in memory of its own."""

    def __init__(self, head: LinkHead, side: Side, queries: Tensor, rows: Tensor):
        self.head, self.side, self.queries, self.rows = head, side, queries, rows
        self.query_tile = queries.new_zeros(QUERIES, queries.shape[1])
        self.row_tile = rows.new_zeros(CANDIDATES, rows.shape[1])
        self.out = queries.new_empty(QUERIES, CANDIDATES)
        self.mask = torch.empty(QUERIES, CANDIDATES, dtype=torch.bool)
        self.held = -1

    def tiles(self) -> Iterator[tuple[int, int]]:
        """Yields (first, last + 1), the candidates of each tile."""
        return ((low, min(low + CANDIDATES, len(self.rows))) for low in range(0, len(self.rows), CANDIDATES))

    def scores(self, first: int, last: int, low: int, high: int) -> Tensor:
        """Returns float[last - first, CANDIDATES], scores of queries with the candidates of a tile; after these they are not numbers."""
        if self.held != low:
            self.row_tile[: high - low] = self.rows[low:high]
            self.held = low
        self.query_tile[: last - first] = self.queries[first:last]
        self.head.tile(self.query_tile, self.row_tile, self.side, self.out)
        if high - low < CANDIDATES:
            self.out[:, high - low :] = torch.nan
        return self.out[: last - first]

    def count(self, compare: Callable[..., Tensor], scores: Tensor, own: Tensor) -> Array:
        """Returns i64[n], the number of each query's scores for which a comparison with its own one, float[n, 1], is true."""
        mask = self.mask[: len(scores)]
        compare(scores, own, out=mask)
        # Eight bytes of 0 or 1 are added at a time, each in a byte of the sum.
        return mask.view(torch.int64).sum(dim=1).view(torch.uint8).view(-1, 8).sum(dim=1).numpy()
