"""The labels of edges: classes or numbers, as of nodes, by a head over the rows of both ends.

An evaluation computes the rows of all nodes once, by all their neighbours in the stored edges, and the outputs of the edges of each split
from the rows of their ends. Losses, metrics and scores are those of nodes with such labels.

Edges that are seen as of their times have rows of their own: those of both ends as of the edge's time, by drawn neighbours, some edges
after the other. Cost: a sampled evaluation with a seed for each distinct pair of an end and a time.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.assets.tasks.links import Links
from graphmill.kernels.links.edge_seeds import distinct_as_of
from graphmill.kernels.links.splits import PARTS
from graphmill.kernels.types import Array
from graphmill.trainers.models.links.heads import LabelHead
from graphmill.trainers.models.links.losses import LabelLoss
from graphmill.trainers.models.loss import Loss
from graphmill.trainers.models.own import Model
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.recipe.costs.exact import RANKED_AT_ONCE
from graphmill.trainers.tasks.classes import Classes
from graphmill.trainers.tasks.regression import TargetNumbers
from graphmill.trainers.tasks.task import Infer, Outputs, TrainingTask

SEEN_AT_ONCE = 1 << 16
"""Most ends, and other nodes of their edges, that are seen as of times at once; keys of their draws depend on it."""


class OnEdges(TrainingTask):
    """What a training learns of the edges of a graph."""

    seeds = "edges"

    @property
    def links(self) -> Links:
        """The edges."""
        assert self.graph.links is not None
        return self.graph.links

    def rows_as_of(self, infer: Infer, seen: Sequence[tuple[Array, Array]]) -> tuple[Tensor, list[Array]]:
        """Returns the rows of nodes as of times.

        Args:
            seen: lists of nodes ids[n] and of times f64[n].

        Returns:
            float[k, H], the rows of the distinct pairs, and i64[n] for each list, its places among them.
        """
        ids, times = (np.concatenate(each) for each in zip(*seen, strict=True))
        nodes, moments, places = distinct_as_of(ids, times)
        ends = np.cumsum([len(each) for each, _ in seen])[:-1]
        return infer(nodes, moments), np.split(places.astype(np.int64), ends)

    def size(self, split: str) -> int:
        """Returns the number of edges of a split."""
        return int(np.count_nonzero(self.links.split == PARTS.index(split)))

    def scored(self, train: TrainConfig, splits: Sequence[str]) -> Sequence[str]:
        """Returns validation and test, and training if it is asked for or nothing else is there: all its edges take long."""
        return PARTS if train.score_train or not self.size("valid") else PARTS[1:]


class EdgeLabels(OnEdges):
    """The labels of edges; their form decides loss and metrics."""

    def loss(self, train: TrainConfig) -> LabelLoss:
        """Returns the loss of nodes with such labels, which takes the outputs of the head of the model that it is bound to."""
        of_labels: Loss = super().loss(train)  # pyright: ignore[reportAbstractUsage]
        assert self.links.labels is not None
        dtype = torch.float32 if self.links.labels.dtype == np.float32 else torch.int32
        return LabelLoss(of_labels, dtype, penalty=train.row_penalty)

    def outputs(self, splits: Sequence[str], infer: Infer, model: Model, *, at_once: bool, metric: str = "") -> Outputs:
        """Returns outputs and labels of the edges of each split."""
        edges = {split: np.flatnonzero(self.links.split == PARTS.index(split)) for split in splits if self.size(split)}
        if not edges:
            return {}
        links = self.links
        rows = infer(np.arange(self.graph.topology.num_nodes)) if at_once else None
        head, labels = copy.deepcopy(model.link_head), links.labels
        assert isinstance(head, LabelHead) and labels is not None
        head = head.cpu()
        found: Any = {
            split: self._as_of(head, infer, own)
            if rows is None
            else label_outputs(head, rows, links.source[own], links.target[own])
            for split, own in edges.items()
        }
        return {split: (found[split], np.array(labels[own])) for split, own in edges.items()}

    def _as_of(self, head: LabelHead, infer: Infer, edges: Array) -> Tensor:
        """Returns float[n, C], the outputs for edges i64[n], each by the rows of its ends as of its time."""
        found, links = [], self.links
        assert links.times is not None
        for low in range(0, len(edges), SEEN_AT_ONCE // 2):
            own = edges[low : low + SEEN_AT_ONCE // 2]
            times = np.array(links.times[own])
            ends = [(np.array(each[own]), times) for each in (links.source, links.target)]
            rows, (source, target) = self.rows_as_of(infer, ends)
            found.append(label_outputs(head, rows, source, target))
        return torch.cat(found)


@torch.no_grad()
def label_outputs(head: LabelHead, rows: Tensor, source: Array, target: Array) -> Tensor:
    """Returns float[n, C], the outputs for edges between nodes ids[n] each, from rows float[N, H] of all nodes."""
    found = []
    for low in range(0, len(source), RANKED_AT_ONCE):
        ends = (torch.from_numpy(each[low : low + RANKED_AT_ONCE].astype(np.int64)) for each in (source, target))
        found.append(head(*(rows[each] for each in ends)))
    return torch.cat(found)


class EdgeClasses(EdgeLabels, Classes):
    """The class of an edge."""

    kind = "edge_classes"


class EdgeNumbers(EdgeLabels, TargetNumbers):
    """The numbers of an edge."""

    kind = "edge_regression"
