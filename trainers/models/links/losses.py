"""Losses of links: an edge's score is compared with those of its negatives. And those of the labels of edges, as of nodes.

    bpr      mean over negatives of -log sigmoid(positive - negative)       (Rendle et al., 2009)
    margin   mean over negatives of relu(margin - positive + negative)      (Bordes et al., 2013)
    binary   mean over the edge and its k negatives of the binary cross entropy of scores as logits

With a penalty w an edge's loss has w/2 (|h_u|^2 + |h_v|^2) besides, a mean over the edge and its negatives (Rendle et al., 2009, section
4.2; of ratings Koren, Bell and Volinsky: Matrix factorization techniques for recommender systems, 2009). So the row of a node shrinks as
often as an edge or a negative reads it, and no other row changes.

Each is a sum over edges, which the optimiser step divides by the edges of the step. So one of k negatives counts as in the mean over all
pairs that other libraries take. torch's softplus is linear from 20 on, which is 2e-9 off; its logsigmoid is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from graphmill.kernels.errors import InputError
from graphmill.trainers.models.links.heads import LabelHead, LinkHead
from graphmill.trainers.models.loss import Loss

LinkLossName = Literal["bpr", "margin", "binary"]


@dataclass(frozen=True)
class LinkLoss:
    """The sum of the losses of edges.

    Attributes:
        margin: difference of scores from which a negative costs nothing, for "margin".

    Raises:
        InputError: the name is not that of a loss.
    """

    name: LinkLossName = "bpr"
    margin: float = 1.0

    def __post_init__(self):
        if self.name not in ("bpr", "margin", "binary"):
            raise InputError(f"a loss of links named {self.name!r}", "give bpr, margin or binary")

    def __call__(self, positive: Tensor, negative: Tensor) -> Tensor:
        """Returns float[] from the scores of edges, float[p], and of their negatives, float[p, k] with k of 1 or more."""
        if self.name == "bpr":
            return -functional.logsigmoid(positive[:, None] - negative).mean(dim=1).sum()
        if self.name == "margin":
            return functional.relu(self.margin - positive[:, None] + negative).mean(dim=1).sum()
        each = functional.logsigmoid(positive) + functional.logsigmoid(-negative).sum(dim=1)
        return -(each / (1 + negative.shape[1])).sum()


@dataclass(frozen=True)
class PairLoss(Loss):
    """The loss of a batch of edges, from the rows that a model computes of the batch's nodes."""

    # Scores pairs of rows; a module of the model, so that its parameters are trained with the others. None until `of`.
    head: LinkHead | None
    # Compares the scores.
    loss: LinkLoss = LinkLoss()
    # Weight of the lengths of rows.
    penalty: float = 0.0

    def of(self, model: Any) -> PairLoss:
        """Returns the loss of the rows of a model, scored by its head."""
        return replace(self, head=model.link_head)

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Returns float[] from rows float[b, H] of nodes, and i32[p, 1 + k, 3], places of two ends and relation.

        Each of the p edges is followed by its k negatives (`graphmill.kernels.links.edge_seeds.LinkBatch.scored`).
        """
        assert self.head is not None
        places, relation = labels[..., :2].reshape(-1).long(), labels[..., 2].long()
        # The gradient of `index_select` adds in order, that of an index from several threads at once.
        ends = logits.index_select(0, places).view(*labels.shape[:2], 2, -1)
        scores = self.head(ends[:, :, 0], ends[:, :, 1], relation if self.head.reads_relations else None)
        return _penalised(self.loss(scores[:, 0], scores[:, 1:]), ends, self.penalty)


@dataclass(frozen=True)
class LabelLoss(Loss):
    """The loss of the labels of a batch of edges, from the rows that a model computes of the batch's nodes."""

    # The loss of outputs and labels, as of nodes.
    of_labels: Loss
    # Type of the labels: classes are whole numbers.
    dtype: torch.dtype
    # Gives the outputs of pairs of rows; a module of the model. None until `of`.
    head: LabelHead | None = None
    # Weight of the lengths of rows.
    penalty: float = 0.0

    def of(self, model: Any) -> LabelLoss:
        """Returns the loss of the rows of a model, by its head."""
        return replace(self, head=model.link_head)

    def sent(self, send: Callable[[Tensor], Tensor]) -> LabelLoss:
        """Returns the loss with its tensors as `send` returns them."""
        return replace(self, of_labels=self.of_labels.sent(send))

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Returns float[] from rows float[b, H] of nodes, and i32[p, 1, 3 + T], places of two ends, relation and the bits of labels."""
        assert self.head is not None
        ends = logits.index_select(0, labels[:, 0, :2].reshape(-1).long()).view(len(labels), 1, 2, logits.shape[1])
        given = labels[:, 0, 3:].contiguous().view(self.dtype)
        outputs = self.head(ends[:, 0, 0], ends[:, 0, 1])
        loss = self.of_labels(outputs, given if given.is_floating_point() else given[:, 0])
        return _penalised(loss, ends, self.penalty)


def _penalised(loss: Tensor, ends: Tensor, penalty: float) -> Tensor:
    """Returns float[], a loss of p edges and the penalty of the lengths of rows float[p, 1 + k, 2, H], of both ends of each pair."""
    return loss + ends.square().sum() * (penalty / (2 * ends.shape[1])) if penalty else loss
