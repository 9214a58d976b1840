"""Heads that score pairs of nodes from the rows that a model computes of them.

    dot        h_u . h_v
    bilinear   h_u W h_v
    distmult   sum over columns of h_u r h_v, with a learnable row r per relation (Yang et al., 2015)
    transe     -|h_u + r - h_v|, with a learnable row r per relation (Bordes et al., 2013)
    rotate     -|h_u o r - h_v|, with a learnable angle per relation and pair of columns (Sun et al., 2019)
    mlp        w . relu(A h_u + B h_v + b) + c
    label      W relu(A h_u + B h_v + b) + c, one number for each class or target of an edge
    product  W (h_u h_v) + A h_u + B h_v + c, the same, of the product column by column

With learnable rows the last one is the factorisation of a matrix of ratings with biases (Koren, Bell and Volinsky: Matrix factorization
techniques for recommender systems, 2009): A h_u and B h_v are those of the ends, and c adds to the mean by which targets are standardised.

|.| is the Euclidean length. Of `rotate` the first half of a row are real parts and the second half imaginary ones; o turns each of these
complex numbers by its angle. Angles begin uniform in a full turn.

A score is that of a source, a target and a relation. Ranks compare one end with all candidates for the other one. For that, the first three
are products of matrices: `query` makes a row of the end that stays, and `tile` multiplies it with the candidates' rows. Of `transe` and
`rotate` a tile has distances to the end that stays, moved or turned forwards for targets and backwards for sources. Each is summed by
itself and not through a product of matrices, so equal rows have equal scores.

Memory of `tile`: queries x candidates scores; that of `mlp` one row of candidates x hidden columns besides, that of distances the scores
once more.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from graphmill.kernels.errors import InputError
from graphmill.kernels.links.negatives import Side
from graphmill.trainers.recipe.architecture import LinkHeadName


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


class RelationHead(LinkHead):
    """A head with a learnable row for each relation.

    Args:
        relations: number of relations; 0, edges have none, is one row.
    """

    reads_relations = True

    def __init__(self, columns: int, relations: int):
        super().__init__()
        self.relation = nn.Parameter(torch.empty(max(1, relations), columns))

    def _rows(self, relation: Tensor | None) -> Tensor:
        return _of_relations(self.relation, relation)


def _of_relations(values: Tensor, relation: Tensor | None) -> Tensor:
    """Returns the rows of relations, i64[...], of float[R, C]; the first one if edges have no relations."""
    return values[0] if relation is None else values[relation]


class DistMultHead(RelationHead):
    """The product of the two rows and the row of the relation."""

    def forward(self, source: Tensor, target: Tensor, relation: Tensor | None = None) -> Tensor:
        """Returns float[...], the scores of pairs."""
        return (source * self._rows(relation) * target).sum(dim=-1)

    def query(self, rows: Tensor, relation: Tensor | None, side: Side) -> Tensor:
        """Returns float[n, H], the rows times the rows of the relations."""
        return rows * self._rows(relation)


class DistanceHead(RelationHead):
    """The distance of the target from the source, which the relation moves; a score is the negative distance."""

    def forward(self, source: Tensor, target: Tensor, relation: Tensor | None = None) -> Tensor:
        """Returns float[...], the scores of pairs."""
        return self.paired(self.query(source, relation, "target"), target, "target")

    def tile(self, queries: Tensor, candidates: Tensor, side: Side, out: Tensor) -> None:
        """Writes the score of each query with each candidate."""
        mode = "donot_use_mm_for_euclid_dist"
        torch.neg(torch.cdist(queries, candidates, compute_mode=mode), out=out)

    def paired(self, queries: Tensor, candidates: Tensor, side: Side) -> Tensor:
        """Returns float[...], the score of each query with one candidate."""
        return -torch.linalg.vector_norm(queries - candidates, dim=-1)


class TransEHead(DistanceHead):
    """The relation adds its row."""

    def query(self, rows: Tensor, relation: Tensor | None, side: Side) -> Tensor:
        """Returns float[..., H], sources plus the rows of the relations, or targets less these."""
        moved = self._rows(relation)
        return rows + moved if side == "target" else rows - moved


class RotatEHead(DistanceHead):
    """The relation turns each complex number of a row, its half of real parts and its half of imaginary ones, by an angle.

    Raises:
        InputError: a row has an odd number of columns.
    """

    def __init__(self, width: int, relations: int):
        if width % 2:
            raise InputError(f"rows of {width} columns are no complex numbers", "give an even number of columns")
        super().__init__(width // 2, relations)
        # Initial values are uniform up to this bound (`graphmill.trainers.models.layer.initialise`), and angles up to half a turn.
        self.unit = math.pi / math.sqrt(6.0 / sum(self.relation.shape))

    def query(self, rows: Tensor, relation: Tensor | None, side: Side) -> Tensor:
        """Returns float[..., H], sources turned by the angles of the relations, or targets turned back."""
        # Of the table, before pairs take their rows: a sine may round by its place among others.
        angles = self.relation * (self.unit if side == "target" else -self.unit)
        cosine, sine = (_of_relations(each, relation) for each in (angles.cos(), angles.sin()))
        real, imaginary = rows.chunk(2, dim=-1)
        return torch.cat([real * cosine - imaginary * sine, real * sine + imaginary * cosine], dim=-1)


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


class LabelHead(nn.Module):
    """Gives the outputs for the labels of edges."""

    @abstractmethod
    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Returns float[n, C] of pairs of rows, float[n, H] each."""


class HiddenLabelHead(LabelHead):
    """A network with one hidden layer over the rows of both ends.

    Args:
        width: columns of a row; hidden: those of the hidden layer.
        outputs: number of classes or targets.
    """

    def __init__(self, width: int, hidden: int, outputs: int):
        super().__init__()
        self.source, self.target = nn.Linear(width, hidden), nn.Linear(width, hidden, bias=False)
        self.label = nn.Linear(hidden, outputs)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Returns float[n, C] of pairs of rows."""
        return self.label(torch.relu(self.source(source) + self.target(target)))


class ProductLabelHead(LabelHead):
    """Linear maps of both rows and of their product, column by column.

    Args:
        width: columns of a row; outputs: number of classes or targets.
    """

    def __init__(self, width: int, outputs: int):
        super().__init__()
        self.source, self.target = (nn.Linear(width, outputs, bias=False) for _ in range(2))
        self.label = nn.Linear(width, outputs)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Returns float[n, C] of pairs of rows."""
        return self.label(source * target) + self.source(source) + self.target(target)


def link_head(
    name: LinkHeadName, width: int, *, relations: int = 0, hidden: int | None = None, outputs: int = 1
) -> LinkHead | LabelHead:
    """Returns a head whose parameters have no values yet (`graphmill.trainers.models.layer.initialise`).

    Args:
        width: columns H of a row.
        relations: number of relations, 0 if edges have none.
        hidden: columns of the hidden layer of "mlp" and "label", None for H.
        outputs: outputs of "label" and "product".

    Raises:
        InputError: the name is not that of a head.
    """
    makes: dict[str, Callable[[], LinkHead | LabelHead]] = {
        "dot": DotHead,
        "bilinear": lambda: BilinearHead(width),
        "distmult": lambda: DistMultHead(width, relations),
        "transe": lambda: TransEHead(width, relations),
        "rotate": lambda: RotatEHead(width, relations),
        "mlp": lambda: MlpHead(width, hidden or width),
        "label": lambda: HiddenLabelHead(width, hidden or width, outputs),
        "product": lambda: ProductLabelHead(width, outputs),
    }
    if name not in makes:
        *names, last = makes
        raise InputError(f"a head of links named {name!r}", f"give {', '.join(names)} or {last}")
    return makes[name]()
