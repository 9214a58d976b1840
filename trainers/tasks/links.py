"""Edges: a pair's score is that of a head over the rows of its ends, and the metrics rank it among other pairs.

Rows of all nodes are computed once for all splits, by all their neighbours in the training edges. Of these follow, for each edge of a
split: the rank of its target and of its source among all nodes of their types, with the known edges of all splits left out
(trainers/models/links/ranks.py), its score, and the score of one pair with another target, which is not a known edge; none if there is no
such target. The mean reciprocal rank and the share of ranks up to 10 are those of both ends; the area under the ROC curve and the average
precision are those of the two scores. The other pairs are the same at every evaluation.

`RANKED_AT_ONCE` edges are ranked together, so that memory does not grow with their number.

Edges that are seen as of their times have no ranks among all nodes, whose rows differ as of each time, and no lists: their scores are
those of pairs, and ranks among candidates of their own, each seen as of the edge's time.

If candidates are given or drawn, a trained model has ranks among them as well, under names of their own (record/link_scores.py).

Cost of ranks: a product of an edge with every candidate for each end, so "mrr" and "hits@10" cost more than "auc" and "ap" between
epochs, and those of lists half as much.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphmill.assets.graph.read import Graph
from graphmill.assets.sampling.training_edges import candidate_ranges
from graphmill.assets.tasks.links import LinkCandidates
from graphmill.kernels.links.negatives import Side
from graphmill.kernels.links.splits import PARTS
from graphmill.kernels.links.triples import KnownEdges, Triples
from graphmill.kernels.types import Array
from graphmill.trainers.models.links.heads import LinkHead
from graphmill.trainers.models.links.losses import LinkLoss, PairLoss
from graphmill.trainers.models.links.ranks import (
    STEP,
    Pairs,
    drawn_others,
    given_ranks,
    have_others,
    link_ranks,
    of_links,
    uniform_ranks,
)
from graphmill.trainers.models.own import Model
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.recipe.costs.exact import RANKED_AT_ONCE
from graphmill.trainers.recipe.links import OF_PAIRS
from graphmill.trainers.record.link_scores import (
    list_chance,
    list_scores,
    pair_scores,
    rank_scores,
    shared_ranks,
    shared_scores,
)
from graphmill.trainers.record.scores import METRICS_OF
from graphmill.trainers.tasks.edges import SEEN_AT_ONCE, OnEdges
from graphmill.trainers.tasks.task import Infer, Outputs, Scored

SIDES: tuple[Side, ...] = ("target", "source")
OF_RANKS, OF_LISTS = METRICS_OF["links"][:2], METRICS_OF["links"][4:]
"""Metrics that need ranks of both ends, and of the ends of lists; the others need scores of pairs."""
GIVEN, SHARED, UNIFORM = slice(4, 6), 6, slice(7, 9)
COLUMNS = {"given": GIVEN, "shared": SHARED, "uniform": UNIFORM}
"""Columns of ranks among candidates."""


class OwnCandidates(NamedTuple):
    """Candidates of single edges for one of their ends."""

    # Column of their ranks.
    column: int
    side: Side
    # i64[n + 1] and ids[k]: edge i has `ends[starts[i] : starts[i + 1]]`.
    starts: Array
    ends: Array


class LinkTask(OnEdges):
    """The edges of a graph; its "logits" are f64[n, 4]: ranks of target and source, score, and score of the other pair.

    With candidates they are f64[n, 9]. `GIVEN` and `UNIFORM` are the columns of ranks of target and source among given and drawn ones,
    `SHARED` that of ranks among pairs; not numbers where an edge has none.
    """

    kind = "links"
    loss_unit = ""

    def __init__(self, graph: Graph):
        super().__init__(graph)
        self.ranges = candidate_ranges(self.links, graph.topology)
        within = [low == high for low, high in zip(*(self.ranges[side] for side in SIDES), strict=True)]
        self.two_way = np.array(within) & (np.array(self.links.reverse_of) == np.arange(len(within)))
        self._known: KnownEdges | None = None

    def loss(self, train: TrainConfig) -> PairLoss:
        """Returns the loss of pairs, which takes the head of the model that it is bound to."""
        return PairLoss(None, LinkLoss(train.link_loss, train.margin), train.row_penalty)

    def outputs(self, splits: Sequence[str], infer: Infer, model: Model, *, at_once: bool, metric: str = "") -> Outputs:
        """Returns ranks and scores of the edges of each split, and their numbers; those that `metric` does not need are not numbers."""
        edges = {split: np.flatnonzero(self.links.split == PARTS.index(split)) for split in splits}
        edges = {split: numbers for split, numbers in edges.items() if len(numbers)}
        if not edges:
            return {}
        rows = infer(np.arange(self.graph.topology.num_nodes)) if at_once else None
        head = copy.deepcopy(model.link_head)
        assert isinstance(head, LinkHead), "a model of links"
        head = head.cpu()
        measure = partial(self._as_of, head, infer) if rows is None else partial(self._measured, head, rows)
        return {split: (torch.from_numpy(measure(numbers, metric)), numbers) for split, numbers in edges.items()}

    @property
    def known(self) -> KnownEdges:
        """The edges of all splits."""
        if self._known is None:
            links, triples = (
                self.links,
                Triples(num_nodes=self.graph.topology.num_nodes, reverse_of=self.links.reverse_of),
            )
            self._known = KnownEdges(triples, links.source, links.target, links.relation)
        return self._known

    def _measured(self, head: LinkHead, rows: Tensor, edges: Array, metric: str) -> Array:
        """Returns f64[n, 4] of edges i64[n]: the ranks of both ends, and the scores of the edge and of the other pair."""
        pairs, found = self._pairs(edges), np.full((len(edges), 4), np.nan)
        if metric in ("", *OF_RANKS, *OF_LISTS):
            sides = SIDES[: 1 if metric in OF_LISTS and not self.two_way.any() else 2]
            for low in range(0, len(edges), RANKED_AT_ONCE):
                part = slice(low, low + RANKED_AT_ONCE)
                for column, side in enumerate(sides):
                    found[part, column] = link_ranks(head, rows, pairs.of(part), self.known, side)
        if metric not in (*OF_RANKS, *OF_LISTS):
            some, others = self._others(pairs, edges)
            kept = pairs.of(some)
            found[:, 2] = _scores(head, rows, pairs.source, pairs.target, pairs.relation)
            found[some, 3] = _scores(head, rows, kept.source, others, kept.relation)
        if metric or not self._has_candidates:
            return found
        return np.hstack([found, self._among_candidates(head, rows, pairs, edges, found[:, 2])])

    def _as_of(self, head: LinkHead, infer: Infer, edges: Array, metric: str) -> Array:
        """Returns the same of edges whose ends are seen as of their times: no ranks among all nodes, nor among pairs of all edges."""
        found = np.full((len(edges), 9 if self._has_candidates and not metric else 4), np.nan)
        at_once = max(1, SEEN_AT_ONCE // (3 + (found.shape[1] > 4) * self._mean_candidates))
        for low in range(0, len(edges), at_once):
            part = slice(low, low + at_once)
            found[part] = self._some_as_of(head, infer, edges[part], found.shape[1])
        return found

    def _some_as_of(self, head: LinkHead, infer: Infer, edges: Array, columns: int) -> Array:
        """Returns f64[n, 4 or 9], the measures of edges i64[n], by one call of `infer`."""
        assert self.links.times is not None
        pairs, times, found = (
            self._pairs(edges),
            np.array(self.links.times[edges]),
            np.full((len(edges), columns), np.nan),
        )
        some, others = self._others(pairs, edges)
        lists = [*self._own_candidates(pairs, edges)] if columns > 4 else []
        seen = [(pairs.source, times), (pairs.target, times), (others, times[some])]
        seen += [(each.ends, np.repeat(times, np.diff(each.starts))) for each in lists]
        rows, (source, target, others, *ends) = self.rows_as_of(infer, seen)
        placed = Pairs(source=source, target=target, relation=pairs.relation, ranges=pairs.ranges)
        kept = placed.of(some)
        found[:, 2] = _scores(head, rows, source, target, pairs.relation)
        found[some, 3] = _scores(head, rows, kept.source, others, kept.relation)
        for each, places in zip(lists, ends, strict=True):
            found[:, each.column] = given_ranks(head, rows, placed, each.side, each.starts, places)
        return found

    def _pairs(self, edges: Array) -> Pairs:
        """Returns the ends of edges i64[n]."""
        links = self.links
        source, target = (np.array(ends[edges]).astype(np.int64) for ends in (links.source, links.target))
        relation = None if links.relation is None else np.array(links.relation[edges]).astype(np.int64)
        return Pairs(source=source, target=target, relation=relation, ranges=self.ranges)

    def _others(self, pairs: Pairs, edges: Array) -> tuple[Array, Array]:
        """Returns i64[k], the places of the edges that have another target, and ids[k], the one of each that its score is compared with."""
        some = np.flatnonzero(have_others(pairs, self.known, "target"))
        return some, drawn_others(pairs.of(some), "target", edges[some], 1, self.known)[:, 0]

    @property
    def _has_candidates(self) -> bool:
        return self.links.candidates is not None or self.links.uniform > 0

    @property
    def _mean_candidates(self) -> int:
        """Mean number of candidates of a link's own, of both ends, rounded up."""
        given = 0 if self.links.candidates is None else sum(map(len, self.links.candidates.ends.values()))
        return 2 * self.links.uniform + -(-given // max(1, len(self.links.split)))

    def _own_candidates(self, pairs: Pairs, edges: Array) -> Iterator[OwnCandidates]:
        """Yields the lists of candidates, given and drawn, of single edges i64[n]."""
        given, uniform = self.links.candidates or LinkCandidates(), self.links.uniform
        for place, side in enumerate(SIDES):
            if side in given.ends:
                yield OwnCandidates(GIVEN.start + place, side, *of_links(given, side, edges))
            if uniform:
                some = have_others(pairs, self.known, side)
                drawn = drawn_others(pairs.of(some), side, edges[some], uniform, self.known, STEP[side])
                starts = np.concatenate([[0], np.cumsum(uniform * some)])
                yield OwnCandidates(UNIFORM.start + place, side, starts, drawn.reshape(-1))

    def _among_candidates(self, head: LinkHead, rows: Tensor, pairs: Pairs, edges: Array, scores: Array) -> Array:
        """Returns f64[n, 5], the ranks of edges i64[n] with scores f64[n] among candidates: `GIVEN`, `SHARED` and `UNIFORM`."""
        found, given = np.full((len(edges), 9), np.nan), self.links.candidates or LinkCandidates()
        for column, side in enumerate(SIDES):
            if side in given.ends:
                found[:, GIVEN][:, column] = given_ranks(head, rows, pairs, side, *of_links(given, side, edges))
            if self.links.uniform:
                drawn = uniform_ranks(head, rows, pairs, side, edges, self.links.uniform, self.known)
                found[:, UNIFORM][:, column] = drawn
        if given.pairs is not None and given.part is not None and len(edges):
            others = np.array(given.pairs[given.part == self.links.split[edges[0]]]).astype(np.int64)
            if len(others):
                found[:, SHARED] = shared_ranks(scores, _scores(head, rows, others[:, 0], others[:, 1], None))
        return found[:, 4:]

    def _lists(self, values: Array, edges: Array) -> tuple[Array, Array]:
        """Returns (f64[k] ranks, u64[k] lists): of each edge i64[n] its target's, and its source's if both ends have lists."""
        relation = np.zeros(len(edges), np.int64) if self.links.relation is None else self.links.relation[edges]
        both = self.two_way[relation]
        nodes = np.concatenate([self.links.source[edges], self.links.target[edges[both]]])
        of = self.known.triples.numbers(nodes, np.zeros_like(nodes), np.concatenate([relation, relation[both]]))
        return np.concatenate([values[:, 0], values[both, 1]]), of

    def score(self, metric: str, logits: Array, labels: Array) -> float | None:
        """Returns a metric of ranks and scores; `labels` are the numbers of the edges."""
        if metric in OF_RANKS:
            return rank_scores(logits[:, :2].reshape(-1))[metric]
        if metric in OF_LISTS:
            return list_scores(*self._lists(logits, labels))[metric]
        others = logits[~np.isnan(logits[:, 3]), 3]
        return pair_scores(logits[:, 2], others)[metric] if len(others) else None

    def chance(self, metric: str, labels: Array) -> tuple[float, str]:
        """Returns the score of a score drawn at random."""
        words = "what a score drawn at random reaches"
        sizes = np.array([high - low for side in SIDES for low, high in self.ranges[side]], np.float64)
        if metric in OF_LISTS:
            return list_chance(metric, self._lists(np.empty((len(labels), 2)), labels)[1], sizes.min()), words
        if metric not in OF_RANKS:
            return 0.5, words
        if metric == "hits@10":
            return float(np.minimum(1, 10 / sizes).max()), words
        # The mean of 1 / rank, with the harmonic number of the candidates by its usual approximation.
        return float(((np.log(sizes) + np.euler_gamma + 1 / (2 * sizes)) / sizes).max()), words

    def numbers(self, metric: str, scored: Scored) -> dict[str, float]:
        """Returns all metrics of each split."""
        found: dict[str, float] = {}
        for split, (values, edges) in scored.items():
            known = {each: self.score(each, values, edges) for each in OF_PAIRS}
            if not np.isnan(values[:, 0]).any():  # ends that are seen as of their times have no such ranks
                known |= {each: self.score(each, values, edges) for each in OF_RANKS}
                known |= list_scores(*self._lists(values, edges))
            found |= {f"{split}_{name}": value for name, value in known.items() if value is not None}
            found |= {f"{split}_{name}": value for name, value in self._candidate_scores(values).items()}
        return found

    def _candidate_scores(self, values: Array) -> dict[str, float]:
        """Returns the scores among candidates of the values of a split, by their names; none without candidates."""
        if values.shape[1] <= 4:
            return {}
        known = {name: values[:, columns] for name, columns in COLUMNS.items()}
        known = {name: ranks[~np.isnan(ranks)] for name, ranks in known.items()}
        found = rank_scores(known["given"], "given") if len(known["given"]) else {}
        found |= shared_scores(known["shared"]) if len(known["shared"]) else {}
        return found | (rank_scores(known["uniform"], f"uniform_{self.links.uniform}") if len(known["uniform"]) else {})


def _scores(head: LinkHead, rows: Tensor, source: Array, target: Array, relation: Array | None) -> Array:
    """Returns f64[n], the scores of pairs."""
    found = np.empty(len(source))
    with torch.no_grad():
        for low in range(0, len(source), RANKED_AT_ONCE):
            part = slice(low, low + RANKED_AT_ONCE)
            ends = (rows[torch.from_numpy(each[part])] for each in (source, target))
            kinds = None if relation is None else torch.from_numpy(relation[part])
            found[part] = head(*ends, kinds).double().numpy()
    return found
