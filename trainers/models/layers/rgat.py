"""Graph attention per relation (Busbridge et al., "Relational Graph Attention Networks", 2019, attention within relations):

    h_v = act(W_0 h_v + b + sum over relations r of (concat over heads of the sum over in-neighbours u by r of alpha^r_uv W_r h_u))
    alpha^r_uv = softmax over v's in-neighbours by r of leaky(a_r . W_r h_u + c_r . W_r h_v)

A source is mapped once per relation that it has edges of, and attention runs over those (relation, source) pairs, with the runs of a
relation as destinations (trainers/models/layers/relation_pairs.py). A node does not attend to itself: W_0 maps its own row.

Attention dropout is keyed by the two ends of an edge, so edges of several relations between two nodes are dropped together.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Block
from graphmill.trainers.models.attention import attend, by_head
from graphmill.trainers.models.layers.finish import Finish, LayerOptions
from graphmill.trainers.models.layers.relation_pairs import RelationPairs, relation_pairs
from graphmill.trainers.models.maps import map_pieces
from graphmill.trainers.models.masks import LayerRandom
from graphmill.trainers.models.ops import aggregate, own_rows

NEVER = -1e30
"""Half of a score whose weight is 0 beside any other."""


class RgatLayer(nn.Module):
    """One layer; its twin is `dgl.nn.HeteroGraphConv` of a `GATConv(bias=False)` per relation, added up, and a linear map of the own row.

    Args:
        in_width, out_width: row widths; out_width is a multiple of the heads, except in the last layer, which averages them.
        options: heads, attention dropout and the layer's end.
        relations: number of relations R.
    """

    cacheable = False
    reads_own = reads_relations = True
    edge_weight: str | None = None

    def __init__(self, in_width: int, out_width: int, options: LayerOptions, *, relations: int):
        super().__init__()
        self.heads, self.average = options.heads, options.last
        self.depth = out_width if options.last else out_width // options.heads
        width = self.heads * self.depth
        # Values that an edge takes at most, beside its input row: its pair's row, mapped and with its scores, and the row of its run.
        self.edge_values = in_width + 5 * width
        # A list, since initial values follow from the shape of a matrix.
        self.matrices = nn.ParameterList(torch.empty(width, in_width) for _ in range(relations))
        # The two halves of each relation's attention vector: for sources and for destinations.
        self.left = nn.Parameter(torch.zeros(relations, width))
        self.right = nn.Parameter(torch.zeros(relations, width))
        self.own = nn.Linear(in_width, out_width)
        self.attention_dropout = options.attention_dropout
        self.finish = Finish(in_width, out_width, options)

    def aggregate(self, block: Block, h_src: Tensor, rng: LayerRandom) -> Tensor:
        """The attention-weighted sums of all relations, side by side by head: float[num_dst, heads * depth].

        Raises:
            InputError: the block has no relations.
        """
        if block.edge_type is None:
            raise InputError(
                'a block without relations, and model = "rgat"', "give the sampler a graph with edge_types"
            )
        pairs = relation_pairs(block)
        if not pairs.runs.relations:
            return h_src.new_zeros((block.num_dst, self.heads * self.depth))
        matrices = [self.matrices[relation] for relation in pairs.runs.relations]
        z = map_pieces(aggregate(pairs.picked, h_src, "sum"), pairs.counts, matrices)
        left = self._left(z, pairs).to(z.dtype)
        right = self._right(own_rows(h_src, block), pairs, matrices).to(z.dtype)
        # A destination's own term, which the kernel has, is a row of zeros with no weight.
        num_runs = len(right)
        z, left = (
            torch.cat([z, z.new_zeros((num_runs, z.shape[1]))]),
            torch.cat([left, left.new_full((num_runs, self.heads), NEVER)]),
        )
        mask = rng.edge_mask(pairs.by_edge, self.heads, self.attention_dropout)
        return aggregate(pairs.runs.joined, attend(pairs.block, z, left, right, mask), "sum")

    def update(self, agg: Tensor, h_dst: Tensor, rng: LayerRandom) -> Tensor:
        """The node's own term, heads put side by side or averaged, and the layer's end: float[num_dst, out_width]."""
        h = agg.view(-1, self.heads, self.depth).mean(dim=1) if self.average else agg
        return self.finish(self.own(h_dst) + h, h_dst, rng)

    def _left(self, z: Tensor, pairs: RelationPairs) -> Tensor:
        """Returns float[pairs, H], the sources' halves of the scores."""
        halves = zip(z.split(pairs.counts), pairs.runs.relations, strict=True)
        vectors = ((piece, self.left[relation].view(self.heads, self.depth)) for piece, relation in halves)
        return torch.cat([functional.linear(piece, by_head(left).to(piece.dtype)) for piece, left in vectors])

    def _right(self, h_dst: Tensor, pairs: RelationPairs, matrices: list[Tensor]) -> Tensor:
        """Returns float[runs, H], the destinations' halves: a vector per relation and head reads a row before it is mapped."""
        vectors: list[Any] = [
            (matrix * self.right[relation][:, None]).view(self.heads, self.depth, -1).sum(dim=1)
            for relation, matrix in zip(pairs.runs.relations, matrices, strict=True)
        ]
        halves = functional.linear(h_dst, torch.cat(vectors)).view(-1, self.heads)
        return halves.index_select(0, pairs.run_halves)  # no half is read twice, so its gradient has one term
