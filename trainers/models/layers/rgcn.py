"""Relational graph convolution (Schlichtkrull et al., 2018, equations 2 and 3):

    h_v = act(W_0 h_v + b + sum over relations r of W_r (mean over the in-neighbours u of v by r of h_u))
    W_r = sum over bases k of a_rk V_k, or a matrix of its own

Rows are averaged before they are mapped: a destination has fewer relations than edges. If the sampler gave edges shares (weighted sampling,
walks), the mean of a relation is weighted by them. With `edge_weight = true` it is weighted by the data's weights: sum of w_uv h_u over sum
of w_uv, 0 if the sum of weights is 0.
"""

import torch
from torch import Tensor, nn

from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Block
from graphmill.trainers.models.layers.finish import Finish, LayerOptions
from graphmill.trainers.models.layers.relations import RelationRuns, relation_runs, run_mean
from graphmill.trainers.models.masks import LayerRandom
from graphmill.trainers.models.ops import aggregate
from graphmill.trainers.models.products import Map, map_pieces


class RgcnLayer(nn.Module):
    """One layer; its twins are `dgl.nn.RelGraphConv` with norms of 1 / (edges of the run) and `torch_geometric.nn.RGCNConv`.

    Args:
        bases: number of bases; 0 = a matrix per relation.
    """

    cacheable = False  # the matrices of the relations are parameters inside the aggregation
    reads_own = reads_relations = True
    edge_weight: str | None = None

    def __init__(self, in_width: int, out_width: int, options: LayerOptions, *, relations: int, bases: int = 0):
        super().__init__()
        if options.edge_weight:
            self.edge_weight = "data"
        self.width = out_width
        # A list, since initial values follow from the shape of a matrix.
        self.matrices = nn.ParameterList(torch.empty(out_width, in_width) for _ in range(bases or relations))
        self.coefficients = nn.Parameter(torch.empty(relations, bases)) if bases else None
        self.own = Map(in_width, out_width)
        self.finish = Finish(in_width, out_width, options)

    def aggregate(self, block: Block, h_src: Tensor, rng: LayerRandom) -> Tensor:
        """The mapped means of all relations, float[num_dst, out_width]; raises InputError if the block has no relations."""
        if block.edge_type is None:
            problem = 'a block without relations, and model = "rgcn"'
            raise InputError(problem, "give the sampler a graph with edge_types")
        runs = relation_runs(block, weighted=self.edge_weight is not None)
        means = self.means(runs, h_src)
        if not runs.relations:
            return means.new_zeros((block.num_dst, self.width))
        mapped = map_pieces(means, runs.counts, [self.matrix(relation) for relation in runs.relations])
        return aggregate(runs.joined, mapped, "sum")  # pyright: ignore[reportArgumentType]

    def means(self, runs: RelationRuns, h_src: Tensor) -> Tensor:
        """Returns the mean message of each run before its map, float[runs, in_width]."""
        return aggregate(runs.block, h_src, run_mean(runs))

    def update(self, agg: Tensor, h_dst: Tensor, rng: LayerRandom) -> Tensor:
        """The node's own term and the layer's end: float[num_dst, out_width]."""
        return self.finish(self.own(h_dst) + agg, h_dst, rng)

    def matrix(self, relation: int) -> Tensor:
        """Returns float[out_width, in_width], the matrix of a relation."""
        if self.coefficients is None:
            return self.matrices[relation]
        return torch.tensordot(self.coefficients[relation], torch.stack(list(self.matrices)), dims=1)
