"""Layers whose messages carry features of edges: twins of the layers of the same names without.

e_uv are the features of the edge from u to v. A block has the rows of its edges (`edge_rows`), one for each edge id, and the row of each
edge among them (`edge_place`); both directions of an edge have its row.

    sage, gcn, rgcn   a message is the sender's row with the edge's row beside it, [h_u, e_uv], which is summed and then mapped: W [mean of
                      h_u, mean of e_uv]. A row that counts itself (the self term of `gcn`, of aggregator "gcn") has zeros there.
    gin               GINE (Hu et al., "Strategies for Pre-training Graph Neural Networks", 2020): the sum of ReLU(h_u + W_e e_uv + b_e)
    gat, rgat         score_uv = leaky(a . W h_u + c . W h_v + d . e_uv), d a vector for each head, and of rgat for each relation. The self
                      term of gat has the mean of its row's edges in the place of e_vv.

Nothing has a row of the layer's width for each edge. Sums of edge rows read them where they are, without a gradient, since rows of edges
have none. Scores take a copy of the edges' rows, as wide as they are. GINE's messages are computed edge by edge
(`graphmill.kernels.layers.edge_messages`); a bit for each of their values is kept for the gradient.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphmill.kernels.errors import InputError
from graphmill.kernels.layers.aggregate import Reduce
from graphmill.kernels.layers.edge_messages import edge_messages, edge_messages_backward, empty_active
from graphmill.kernels.types import Block
from graphmill.trainers.models.layers.finish import Finish, LayerOptions
from graphmill.trainers.models.layers.gat import GatLayer
from graphmill.trainers.models.layers.gcn import GcnLayer, SumLayer
from graphmill.trainers.models.layers.gin import GinLayer
from graphmill.trainers.models.layers.relations import RelationRuns, as_long, like_block, run_mean, sorted_places
from graphmill.trainers.models.layers.rgat import RelationPairs, RgatLayer
from graphmill.trainers.models.layers.rgcn import RgcnLayer
from graphmill.trainers.models.layers.sage import SageGcnLayer, SageLayer, SageMaxLayer, SageSumLayer
from graphmill.trainers.models.masks import LayerRandom
from graphmill.trainers.models.ops import aggregate, as_array, maximum
from graphmill.trainers.models.products import Map


def rows_of(block: Block) -> tuple[Tensor, Any]:
    """Returns the rows of a block's edges and the row of each edge; raises InputError if the block has none."""
    if block.edge_rows is None or block.edge_place is None:
        raise InputError("the model reads features of edges, and a block has none", "add a table [features.edges]")
    return block.edge_rows, block.edge_place


def from_edges(block: Block) -> Block:
    """Returns the block whose sources are the rows of its edges: destinations sum rows of edges as they sum rows of nodes.

    Its destinations are none of them, and nothing asks for one's own row.
    """
    rows, place = rows_of(block)
    own = like_block(block, torch.zeros(block.num_dst, dtype=torch.int32, device=getattr(block.start, "device", None)))
    return Block(
        num_dst=block.num_dst,
        num_src=len(rows),
        start=block.start,
        end=block.end,
        indices=place,
        src_ids=block.src_ids[:0],
        dst_pos=own,
        weight=block.weight,
    )


def edge_sums(block: Block, reduce: Reduce, dtype: torch.dtype | None = None) -> Tensor:
    """Returns float[num_dst, F], sums or means of the rows of the edges of each destination; there is no gradient to rows of edges.

    Args:
        dtype: the type of the result, None for that of the rows.
    """
    rows, _ = rows_of(block)
    if not len(rows):
        return torch.zeros((block.num_dst, rows.shape[1]), dtype=dtype or rows.dtype, device=rows.device)
    return aggregate(from_edges(block), rows, reduce).to(dtype or rows.dtype)


class CarriesEdges(SumLayer):
    """The base of layers whose messages are rows of nodes with rows of edges beside them, before the class of the layer without."""

    # F, columns of the rows of edges.
    edge_values: int

    def aggregate(self, block: Block, h_src: Tensor, rng: LayerRandom) -> Tensor:
        """The aggregates of the in-neighbours' rows, and right of them those of the edges' rows: float[num_dst, in_width + F]."""
        beside = edge_sums(*self.summed(block), h_src.dtype)
        return torch.cat([super().aggregate(block, h_src, rng), beside], dim=1)

    def aggregate_backward(self, block: Block, grad: Tensor) -> Tensor:
        """Gradient of the sources' rows from that of `aggregate`'s result: float[num_src, in_width]."""
        return super().aggregate_backward(block, grad[:, : grad.shape[1] - self.edge_values])


class EdgeGcnLayer(CarriesEdges, GcnLayer):
    """`GcnLayer` with features of edges."""

    def __init__(self, in_width: int, out_width: int, options: LayerOptions, *, edge_width: int):
        super().__init__(in_width, out_width, options)
        self.edge_values, self.linear = edge_width, Map(in_width + edge_width, out_width)


class EdgeSageLayer(CarriesEdges, SageLayer):
    """`SageLayer` with features of edges."""

    def __init__(self, in_width: int, out_width: int, options: LayerOptions, *, edge_width: int):
        super().__init__(in_width, out_width, options)
        self.edge_values, self.neighbours = edge_width, Map(in_width + edge_width, out_width, bias=False)

    def beside(self, block: Block, reduce: Reduce, dtype: torch.dtype) -> Tensor:
        """The aggregates of the edges' rows: float[num_dst, F]."""
        return edge_sums(block, reduce, dtype)


class EdgeSageGcnLayer(EdgeGcnLayer, SageGcnLayer):
    """`SageGcnLayer` with features of edges."""


class EdgeSageSumLayer(EdgeSageLayer, SageSumLayer):
    """`SageSumLayer` with features of edges."""


class EdgeSageMaxLayer(EdgeSageLayer, SageMaxLayer):
    """`SageMaxLayer` with features of edges: the largest value of each column, of nodes and of edges."""

    def aggregate(self, block: Block, h_src: Tensor, rng: LayerRandom) -> Tensor:
        """Largest values over the in-neighbours and over the edges: float[num_dst, in_width + F], 0 without neighbours."""
        return torch.cat([maximum(block, h_src), maximum(from_edges(block), rows_of(block)[0])], dim=1)


class EdgeGinLayer(GinLayer):
    """`GinLayer` with features of edges; its twin is `torch_geometric.nn.GINEConv(mlp, train_eps=True, edge_dim=F)`."""

    cacheable = False  # the map of edges is a parameter inside the aggregation

    def __init__(self, in_width: int, out_width: int, options: LayerOptions, *, edge_width: int):
        super().__init__(in_width, out_width, options)
        self.edge_values, self.edges = edge_width, Map(edge_width, in_width)

    def aggregate(self, block: Block, h_src: Tensor, rng: LayerRandom) -> Tensor:
        """The sum of ReLU(h_u + W_e e_uv + b_e), each times its edge's weight: float[num_dst, in_width]."""
        summed, reduce = self.summed(block)
        weight = summed.weight if reduce == "weighted" else None
        return _ReluMessages.apply(h_src, self.edges.weight, self.edges.bias, block, weight)  # pyright: ignore[reportReturnType]


class EdgeGatLayer(GatLayer):
    """`GatLayer` with features of edges; its twin is `torch_geometric.nn.GATConv(edge_dim=F)`, whose map of edges times its attention
    vector is d.
    """

    def __init__(self, in_width: int, out_width: int, options: LayerOptions, *, edge_width: int):
        super().__init__(in_width, out_width, options)
        self.edge_values, self.edge = edge_width, nn.Parameter(torch.zeros(self.heads, edge_width))

    def edge_scores(self, block: Block) -> Tensor:
        """Returns d . e_uv of each edge, and of each destination the mean over its edges: float[nnz + num_dst, H]."""
        rows, place = rows_of(block)
        read = rows.new_empty((len(place) + block.num_dst, rows.shape[1]))
        torch.index_select(rows, 0, as_long(place), out=read[: len(place)])
        read[len(place) :] = edge_sums(block, "mean")
        return _scored(read, self.edge)


class EdgeRgcnLayer(RgcnLayer):
    """`RgcnLayer` with features of edges."""

    def __init__(self, in_width: int, out_width: int, options: LayerOptions, *, edge_width: int, **more: int):
        super().__init__(in_width + edge_width, out_width, options, **more)
        self.edge_values, self.own = edge_width, Map(in_width, out_width)
        self.finish = Finish(in_width, out_width, options)

    def means(self, runs: RelationRuns, h_src: Tensor) -> Tensor:
        """Returns the means of the rows of nodes of each run, and right of them those of the edges' rows: float[runs, in_width + F]."""
        beside = edge_sums(runs.block, run_mean(runs), h_src.dtype)
        return torch.cat([super().means(runs, h_src), beside], dim=1)


class EdgeRgatLayer(RgatLayer):
    """`RgatLayer` with features of edges."""

    def __init__(self, in_width: int, out_width: int, options: LayerOptions, *, edge_width: int, relations: int):
        super().__init__(in_width, out_width, options, relations=relations)
        self.edge_values += edge_width
        self.edge = nn.Parameter(torch.zeros(relations, self.heads * edge_width))

    def edge_scores(self, pairs: RelationPairs) -> Tensor:
        """Returns d_r . e_uv of each edge by its relation r, and zeros for the runs: float[nnz + runs, H]."""
        runs = pairs.runs
        rows, place = rows_of(runs.block)
        by_kind = sorted_places(pairs.kinds)
        counts = torch.bincount(pairs.kinds, minlength=len(runs.relations)).tolist()
        pieces = rows.index_select(0, as_long(place)[by_kind]).split(counts)
        vectors = (self.edge[relation].view(self.heads, -1) for relation in runs.relations)
        scores = torch.cat([_scored(piece, vector) for piece, vector in zip(pieces, vectors, strict=True)])
        return scores.new_zeros((len(by_kind) + len(runs.block.start), self.heads)).index_copy(0, by_kind, scores)


WITH_EDGES: dict[type, type] = {
    GcnLayer: EdgeGcnLayer,
    SageLayer: EdgeSageLayer,
    SageGcnLayer: EdgeSageGcnLayer,
    SageSumLayer: EdgeSageSumLayer,
    SageMaxLayer: EdgeSageMaxLayer,
    GinLayer: EdgeGinLayer,
    GatLayer: EdgeGatLayer,
    RgcnLayer: EdgeRgcnLayer,
    RgatLayer: EdgeRgatLayer,
}
"""Layer -> the layer that reads features of edges as well."""


def _scored(rows: Tensor, vectors: Tensor) -> Tensor:
    """Returns each row's products with the vectors of heads, float[n, H] in the type of sums, whatever `torch.autocast` says."""
    with torch.autocast(rows.device.type, enabled=False):
        return functional.linear(rows, vectors.to(rows.dtype))


class _ReluMessages(torch.autograd.Function):
    """Sums of ReLU(h_u + W e_uv + b) over the edges of each destination; backward over the block's transpose."""

    @staticmethod
    def forward(ctx: Any, h_src: Tensor, matrix: Tensor, bias: Tensor, block: Block, weight: Any) -> Tensor:
        rows, _ = rows_of(block)
        h_src, kind = h_src.contiguous(), torch.promote_types(h_src.dtype, torch.float32)
        rows = rows.to(kind)
        out = torch.empty((block.num_dst, h_src.shape[1]), dtype=h_src.dtype, device=h_src.device)
        active = empty_active(block, h_src.shape[1]) if any(ctx.needs_input_grad) else None
        ctx.block, ctx.weight, ctx.rows, ctx.active, ctx.dtype = block, weight, rows, active, matrix.dtype
        given = (as_array(each) for each in (h_src, rows, matrix.to(kind), bias.to(kind)))
        more: Any = {"out": as_array(out), "active": active, "threads": torch.get_num_threads()}
        edge_messages(block, *given, weight=weight, **more)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None, None]:
        block, grad = ctx.block, grads[0].contiguous()
        below = grad.new_empty((block.num_src, grad.shape[1])) if ctx.needs_input_grad[0] else None
        of_map = edge_messages_backward(
            block,
            as_array(ctx.rows),
            ctx.active,
            as_array(grad),
            weight=ctx.weight,
            grad_h=None if below is None else as_array(below),
            threads=torch.get_num_threads(),
        )
        of_matrix, of_bias = (torch.from_numpy(each).to(ctx.dtype) for each in of_map)
        return below, of_matrix, of_bias, None, None
