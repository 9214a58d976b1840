"""Edges: a pair's score is that of a head over the rows of its ends, and the metrics rank it among other pairs.

Rows of all nodes are computed once for all splits, by all their neighbours in the training edges. Of these follow, for each edge of a
split: the rank of its target and of its source among all nodes of their types, with the known edges of all splits left out
(trainers/models/links/ranks.py), its score, and the score of one pair with another target, which is not a known edge. The mean
reciprocal rank and the share of ranks up to 10 are those of both ends; the area under the ROC curve and the average precision are those
of the two scores. The other pairs are the same at every evaluation.

Cost of ranks: two products of an edge with every candidate, so "mrr" and "hits@10" cost more than "auc" and "ap" between epochs.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.assets.graph.read import Graph
from graphmill.assets.sampling.training_edges import candidate_ranges
from graphmill.kernels.links.negatives import Candidates, DrawnNegatives, Side, uniform_candidates
from graphmill.kernels.links.splits import PARTS
from graphmill.kernels.links.triples import KnownEdges, Triples
from graphmill.kernels.types import Array, BatchKey, Stream
from graphmill.trainers.models.links.heads import LinkHead
from graphmill.trainers.models.links.losses import LinkLoss, PairLoss
from graphmill.trainers.models.links.ranks import Pairs, link_ranks
from graphmill.trainers.models.own import Model
from graphmill.trainers.record.link_scores import pair_scores, rank_scores
from graphmill.trainers.record.scores import METRICS_OF
from graphmill.trainers.tasks.task import Infer, Outputs, Scored, TaskKeys, TrainingTask

SIDES: tuple[Side, ...] = ("target", "source")
OF_RANKS = ("mrr", "hits@10")
"""Metrics that need ranks; the others need scores of pairs."""
PAIRS_AT_ONCE = 1 << 16


class LinkTask(TrainingTask):
    """The edges of a graph; its "logits" are f64[n, 4]: ranks of target and source, score, and score of the other pair."""

    kind = "links"
    loss_unit = ""

    def __init__(self, graph: Graph):
        super().__init__(graph)
        assert graph.links is not None
        self.links = graph.links
        self.ranges = candidate_ranges(graph.links, graph.topology)
        self._known: KnownEdges | None = None

    def loss(self, train: TaskKeys) -> PairLoss:
        """Returns the loss of pairs, which takes the head of the model that it is bound to."""
        return PairLoss(None, LinkLoss(train.link_loss, train.margin))

    def size(self, split: str) -> int:
        """Returns the number of edges of a split."""
        return int(np.count_nonzero(self.links.split == PARTS.index(split)))

    def scored(self, train: TaskKeys, splits: Sequence[str]) -> Sequence[str]:
        """Returns validation and test, and training if it is asked for or nothing else is there: ranks of all its edges take long."""
        return PARTS if train.score_train or not self.size("valid") else PARTS[1:]

    def outputs(self, splits: Sequence[str], infer: Infer, model: Model, *, at_once: bool, metric: str = "") -> Outputs:
        """Returns ranks and scores of the edges of each split, and their numbers; those that `metric` does not need are not numbers."""
        edges = {split: np.flatnonzero(self.links.split == PARTS.index(split)) for split in splits}
        edges = {split: numbers for split, numbers in edges.items() if len(numbers)}
        if not edges:
            return {}
        rows, head = infer(np.arange(self.graph.topology.num_nodes)), copy.deepcopy(model.link_head)
        assert isinstance(head, LinkHead), "a model of links"
        head = head.cpu()
        return {
            split: (torch.from_numpy(self._measured(head, rows, numbers, metric)), numbers)
            for split, numbers in edges.items()
        }

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
        links, found = self.links, np.full((len(edges), 4), np.nan)
        source, target = (np.array(ends[edges]).astype(np.int64) for ends in (links.source, links.target))
        relation = None if links.relation is None else np.array(links.relation[edges]).astype(np.int64)
        if metric in ("", *OF_RANKS):
            pairs = Pairs(source=source, target=target, relation=relation, ranges=self.ranges)
            for column, side in enumerate(SIDES):
                found[:, column] = link_ranks(head, rows, pairs, self.known, side)
        if metric not in OF_RANKS:
            candidates: dict[Side, Sequence[Candidates]] = {
                "target": [uniform_candidates(*each) for each in self.ranges["target"]]
            }
            rule: dict[str, Any] = {"candidates": candidates, "known": self.known, "partial": True}
            negatives = DrawnNegatives(seed=0, per_positive=1, **rule)
            others = negatives.draw(BatchKey(Stream.EVAL, 0, 0), edges, source, target, relation)[1][:, 0]
            for column, ends in ((2, target), (3, np.where(others < 0, target, others))):
                found[:, column] = _scores(head, rows, source, ends, relation)
            found[others < 0, 3] = np.nan
        return found

    def score(self, metric: str, logits: Array, labels: Array) -> float | None:
        """Returns a metric of ranks and scores."""
        if metric in OF_RANKS:
            return rank_scores(logits[:, :2].reshape(-1))[metric]
        positive, negative = logits[:, 2], logits[:, 3]
        # An edge whose other pairs are all known has none beside it.
        negative = negative[~np.isnan(negative) | np.isnan(positive)]
        return pair_scores(positive, negative)[metric] if len(negative) else None

    def chance(self, metric: str, labels: Array) -> tuple[float, str]:
        """Returns the score of a score drawn at random."""
        words = "what a score drawn at random reaches"
        if metric not in OF_RANKS:
            return 0.5, words
        sizes = np.array([high - low for side in SIDES for low, high in self.ranges[side]], np.float64)
        if metric == "hits@10":
            return float(np.minimum(1, 10 / sizes).max()), words
        # The mean of 1 / rank, with the harmonic number of the candidates by its usual approximation.
        return float(((np.log(sizes) + np.euler_gamma + 1 / (2 * sizes)) / sizes).max()), words

    def numbers(self, metric: str, scored: Scored) -> dict[str, float]:
        """Returns all metrics of each split."""
        found: dict[str, float] = {}
        for split, (values, _) in scored.items():
            found |= {
                f"{split}_{each}": value
                for each in METRICS_OF["links"]
                if (value := self.score(each, values, values)) is not None
            }
        return found


def _scores(head: LinkHead, rows: Tensor, source: Array, target: Array, relation: Array | None) -> Array:
    """Returns f64[n], the scores of pairs."""
    found = np.empty(len(source))
    with torch.no_grad():
        for low in range(0, len(source), PAIRS_AT_ONCE):
            part = slice(low, low + PAIRS_AT_ONCE)
            ends = (rows[torch.from_numpy(each[part])] for each in (source, target))
            kinds = None if relation is None else torch.from_numpy(relation[part])
            found[part] = head(*ends, kinds).double().numpy()
    return found
