"""Heads that score pairs of nodes from the rows that a model computes of them.

    dot        h_u . h_v
    bilinear   h_u W h_v
    distmult   sum over columns of h_u r h_v, with a learnable row r per relation (Yang et al., 2015)
    mlp        w . relu(A h_u + B h_v + b) + c

A score is that of a source, a target and a relation. Ranks compare one end with all candidates for the other one. For that, the first three
are products of matrices: `query` makes a row of the end that stays, and `tile` multiplies it with the candidates' rows.

Memory of `tile`: queries x candidates scores; that of `mlp` one row of candidates x hidden columns besides.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn

from graphmill.kernels.errors import InputError
from graphmill.kernels.links.negatives import Side

LinkHeadName = Literal["dot", "bilinear", "distmult", "mlp"]


class LinkHead(nn.Module):
    """Scores pairs of rows; `reads_relations` tells whether a score depends on the relation of its pair."""

    reads_relations = False

    @abstractmethod
    def forward(self, source: Tensor, target: Tensor, relation: Tensor | None = None) -> Tensor:
        """Returns float[...], the scores of pairs of rows, float[..., H] each, with relations i64[...] or None."""

    @abstractmethod
    def query(self, rows: Tensor, relation: Tensor | None, side: Side) -> Tensor:
        """Returns float[n, Q], what `tile` reads of the ends that stay, float[n, H]; candidates stand for the end `side`."""

    def tile(self, queries: Tensor, candidates: Tensor, side: Side, out: Tensor) -> None:
        """Writes to `out`, float[n, c], the score of each query float[n, Q] with each candidate float[c, H]."""
        torch.mm(queries, candidates.T, out=out)

    def paired(self, queries: Tensor, candidates: Tensor, side: Side) -> Tensor:
        """Returns float[n], the score of each query float[n, Q] with one candidate, float[n, H]."""
        return (queries * candidates).sum(dim=-1)


class DotHead(LinkHead):
    """The product of the two rows."""

    def forward(self, source: Tensor, target: Tensor, relation: Tensor | None = None) -> Tensor:
        """Returns float[...], the scores of pairs."""
        return (source * target).sum(dim=-1)

    def query(self, rows: Tensor, relation: Tensor | None, side: Side) -> Tensor:
        """Returns the rows themselves."""
        return rows


class BilinearHead(LinkHead):
    """The product of the two rows with a square matrix between them."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, width))

    def forward(self, source: Tensor, target: Tensor, relation: Tensor | None = None) -> Tensor:
        """Returns float[...], the scores of pairs."""
        return (source @ self.weight * target).sum(dim=-1)

    def query(self, rows: Tensor, relation: Tensor | None, side: Side) -> Tensor:
        """Returns float[n, H], the rows times the matrix, or its transpose for targets that stay."""
        return rows @ (self.weight if side == "target" else self.weight.T)


class DistMultHead(LinkHead):
    """The product of the two rows and the row of the relation."""

    reads_relations = True

    def __init__(self, width: int, relations: int):
        super().__init__()
        self.relation = nn.Parameter(torch.empty(max(1, relations), width))

    def forward(self, source: Tensor, target: Tensor, relation: Tensor | None = None) -> Tensor:
        """Returns float[...], the scores of pairs."""
        return (source * self._rows(relation) * target).sum(dim=-1)

    def query(self, rows: Tensor, relation: Tensor | None, side: Side) -> Tensor:
        """Returns float[n, H], the rows times the rows of the relations."""
        return rows * self._rows(relation)

    def _rows(self, relation: Tensor | None) -> Tensor:
        return self.relation[0] if relation is None else self.relation[relation]


class MlpHead(LinkHead):
    """A network with one hidden layer over both rows."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.source, self.target = nn.Linear(width, hidden), nn.Linear(width, hidden, bias=False)
        self.score = nn.Linear(hidden, 1)

    def forward(self, source: Tensor, target: Tensor, relation: Tensor | None = None) -> Tensor:
        """Returns float[...], the scores of pairs."""
        return self.score(torch.relu(self.source(source) + self.target(target))).squeeze(-1)

    def query(self, rows: Tensor, relation: Tensor | None, side: Side) -> Tensor:
        """Returns float[n, hidden], the part of the hidden layer that the ends that stay have."""
        return self.source(rows) if side == "target" else self.target(rows)

    def tile(self, queries: Tensor, candidates: Tensor, side: Side, out: Tensor) -> None:
        """Writes the score of each query with each candidate, query by query."""
        others = self.target(candidates) if side == "target" else self.source(candidates)
        for query, scores in zip(queries, out, strict=True):
            scores.copy_(self.score(torch.relu(query + others)).squeeze(-1))

    def paired(self, queries: Tensor, candidates: Tensor, side: Side) -> Tensor:
        """Returns float[n], the score of each query with one candidate."""
        others = self.target(candidates) if side == "target" else self.source(candidates)
        return self.score(torch.relu(queries + others)).squeeze(-1)


def link_head(name: LinkHeadName, width: int, *, relations: int = 0, hidden: int | None = None) -> LinkHead:
    """Returns a head whose parameters have no values yet (`graphmill.trainers.models.layer.initialise`).

    Args:
        width: columns H of a row.
        relations: number of relations, 0 if edges have none.
        hidden: columns of the hidden layer of "mlp", None for H.

    Raises:
        InputError: the name is not that of a head.
    """
    if name == "dot":
        return DotHead()
    if name == "bilinear":
        return BilinearHead(width)
    if name == "distmult":
        return DistMultHead(width, relations)
    if name == "mlp":
        return MlpHead(width, hidden or width)
    raise InputError(f"a head of links named {name!r}", "give dot, bilinear, distmult or mlp")
