"""Layers whose messages carry features of edges: twins of the layers of the same names without.

e_uv are the features of the edge from u to v. A block has the rows of its edges (`edge_rows`), one for each edge id, and the row of each
edge among them (`edge_place`); both directions of an edge have its row.

    sage, gcn, rgcn   a message is the sender's row with the edge's row beside it, [h_u, e_uv], which is summed and then mapped: W [mean of
                      h_u, mean of e_uv]. A row that counts itself (the self term of `gcn`, of aggregator "gcn") has zeros there.
    gin               GINE (Hu et al., "Strategies for Pre-training Graph Neural Networks", 2020): the sum of ReLU(h_u + W_e e_uv + b_e)
    gat, rgat         score_uv = leaky(a . W h_u + c . W h_v + d . e_uv), d a vector for each head, and of rgat for each relation. The self
                      term of gat has the mean of its row's edges in the place of e_vv.

Nothing has a row of the layer's width for each edge. Sums of edge rows read them where they are, without a gradient, since rows of edges
have none. Scores take a copy of the edges' rows, as wide as they are. GINE computes messages of `WINDOW_EDGES` edges at a time, again in
the backward pass.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphmill.kernels.errors import InputError
from graphmill.kernels.layers.aggregate import Reduce
from graphmill.kernels.layers.aggregate import aggregate as aggregate_arrays
from graphmill.kernels.types import Block
from graphmill.trainers.models.layers.finish import Finish, LayerOptions
from graphmill.trainers.models.layers.gat import GatLayer
from graphmill.trainers.models.layers.gcn import GcnLayer, SumLayer
from graphmill.trainers.models.layers.gin import GinLayer
from graphmill.trainers.models.layers.relations import RelationRuns, as_long, edges_of, like_block, run_mean
from graphmill.trainers.models.layers.rgat import RelationPairs, RgatLayer
from graphmill.trainers.models.layers.rgcn import RgcnLayer
from graphmill.trainers.models.layers.sage import SageGcnLayer, SageLayer, SageMaxLayer, SageSumLayer
from graphmill.trainers.models.masks import LayerRandom
from graphmill.trainers.models.ops import as_array, maximum
from graphmill.trainers.models.products import Map, summed_over_rows, times

WINDOW_EDGES = 1 << 14
"""Edges whose messages are computed at a time."""


def rows_of(block: Block) -> tuple[Tensor, Any]:
    """Returns the rows of a block's edges and the row of each edge; raises InputError if the block has none."""
    if block.edge_rows is None or block.edge_place is None:
        raise InputError("the model reads features of edges, and a block has none", "add a table [features.edges]")
    return block.edge_rows, block.edge_place


def from_edges(block: Block) -> Block:
    """Returns the block whose sources are the rows of its edges: destinations sum rows of edges as they sum rows of nodes."""
    rows, place = rows_of(block)
    return _summed(block, block.start, block.end, place, len(rows), block.weight)


def _summed(block: Block, start: Any, end: Any, indices: Any, num_src: int, weight: Any = None) -> Block:
    """Returns a block of rows that are no nodes; its destinations are none of them, and nothing asks for one's own row."""
    own = like_block(block, torch.zeros(len(start), dtype=torch.int32, device=getattr(start, "device", None)))
    ids, many = block.src_ids[:0], len(start)
    return Block(
        num_dst=many, num_src=num_src, start=start, end=end, indices=indices, src_ids=ids, dst_pos=own, weight=weight
    )


def edge_sums(block: Block, reduce: Reduce) -> Tensor:
    """Returns float[num_dst, F], sums or means of the rows of the edges of each destination; there is no gradient to rows of edges."""
    rows, _ = rows_of(block)
    out = torch.zeros((block.num_dst, rows.shape[1]), dtype=rows.dtype, device=rows.device)
    return out if not len(rows) else _added(from_edges(block), rows, reduce, out)


def _added(block: Block, rows: Tensor, reduce: Reduce, out: Tensor) -> Tensor:
    threads = torch.get_num_threads()
    aggregate_arrays(block, as_array(rows.contiguous()), reduce, out=as_array(out), threads=threads)
    return out


class CarriesEdges(SumLayer):
    """The base of layers whose messages are rows of nodes with rows of edges beside them, before the class of the layer without."""

    joins_own = False

    def aggregate(self, block: Block, h_src: Tensor, rng: LayerRandom) -> Tensor:
        """The aggregates of the in-neighbours' rows, and right of them those of the edges' rows: float[num_dst, in_width + F]."""
        summed, reduce = self.summed(block)
        beside = edge_sums(summed, reduce).to(h_src.dtype)
        return torch.cat([super().aggregate(block, h_src, rng), beside], dim=1)

    def aggregate_backward(self, block: Block, grad: Tensor) -> Tensor:
        """Gradient of the sources' rows from that of `aggregate`'s result: float[num_src, in_width]."""
        rows, _ = rows_of(block)
        return super().aggregate_backward(block, grad[:, : grad.shape[1] - rows.shape[1]])


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
        return _scored(torch.cat([rows[as_long(place)], edge_sums(block, "mean")]), self.edge)


class EdgeRgcnLayer(RgcnLayer):
    """`RgcnLayer` with features of edges."""

    def __init__(self, in_width: int, out_width: int, options: LayerOptions, *, edge_width: int, **more: int):
        super().__init__(in_width + edge_width, out_width, options, **more)
        self.edge_values, self.own = edge_width, Map(in_width, out_width)
        self.finish = Finish(in_width, out_width, options)

    def means(self, runs: RelationRuns, h_src: Tensor) -> Tensor:
        """Returns the means of the rows of nodes of each run, and right of them those of the edges' rows: float[runs, in_width + F]."""
        beside = edge_sums(runs.block, run_mean(runs)).to(h_src.dtype)
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
        by_kind = torch.argsort(pairs.kinds, stable=True)
        counts = torch.bincount(pairs.kinds, minlength=len(runs.relations)).tolist()
        pieces = rows[as_long(place)[by_kind]].split(counts)
        vectors = (self.edge[relation].view(self.heads, -1) for relation in runs.relations)
        scores = torch.cat([_scored(piece, vector) for piece, vector in zip(pieces, vectors, strict=True)])
        back = torch.empty_like(by_kind)
        back[by_kind] = torch.arange(len(by_kind), device=by_kind.device)
        return torch.cat([scores[back], scores.new_zeros((len(runs.block.start), self.heads))])


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
    """Sums of ReLU(h_u + W e_uv + b) over the edges of each destination, window by window; the backward pass computes messages again."""

    @staticmethod
    def forward(ctx: Any, h_src: Tensor, matrix: Tensor, bias: Tensor, block: Block, weight: Any) -> Tensor:
        ctx.block, ctx.weight = block, weight
        ctx.save_for_backward(h_src, matrix, bias)
        out = torch.zeros((block.num_dst, h_src.shape[1]), dtype=h_src.dtype, device=h_src.device)
        for window in _windows(block, weight):
            low, high = window.rows
            messages = window.messages(h_src, matrix, bias)
            sums = torch.empty_like(out[low:high])
            out[low:high] += _added(window.block, messages.to(out.dtype), window.reduce, sums)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None, None]:
        h_src, matrix, bias = ctx.saved_tensors
        below = torch.zeros_like(h_src) if ctx.needs_input_grad[0] else None
        of_matrix, of_bias = torch.zeros_like(matrix), torch.zeros_like(bias)
        for window in _windows(ctx.block, ctx.weight):
            grad = grads[0][window.dst] * (window.messages(h_src, matrix, bias) > 0)
            if window.weight is not None:
                grad *= window.weight[:, None]
            of_matrix += summed_over_rows(grad, window.edge_rows)
            of_bias += grad.sum(0)
            if below is not None:
                below.index_add_(0, window.src, grad)
        return below, of_matrix, of_bias, None, None


@dataclass(frozen=True, kw_only=True)
class _Window:
    """Consecutive edges of a block.

    Attributes:
        rows: the destinations that the edges belong to, from the first to behind the last.
        block: these destinations as destinations of the edges, whose messages are its sources.
        dst, src: i64[n], the ends of the edges; edge_rows: float[n, F]; weight: float[n], or None.
    """

    rows: tuple[int, int]
    block: Block
    dst: Tensor
    src: Tensor
    edge_rows: Tensor
    weight: Tensor | None

    @property
    def reduce(self) -> Reduce:
        """The reduction of messages."""
        return "sum" if self.weight is None else "weighted"

    def messages(self, h_src: Tensor, matrix: Tensor, bias: Tensor) -> Tensor:
        """Returns ReLU(h_u + W e_uv + b) of each edge: float[n, in_width]."""
        with torch.autocast(h_src.device.type, enabled=False):
            mapped = times(self.edge_rows, matrix.detach(), bias.detach())
        return (h_src[self.src] + mapped).relu_()


def _windows(block: Block, weight: Any) -> Iterator[_Window]:
    """Yields the edges of a block in windows of whole rows; a row of more than `WINDOW_EDGES` edges is cut from its first edge on.

    So the sum of a row does not depend on the rows beside it.
    """
    rows, place = rows_of(block)
    start, end, place = (as_long(each) for each in (block.start, block.end, place))
    dst, edges = edges_of(start, end, len(place))
    edges = torch.arange(len(dst), device=dst.device) if edges is None else edges
    sources, weight = as_long(block.indices), None if weight is None else torch.as_tensor(weight)
    ends = (end - start).cumsum(0)
    at = 0
    while at < len(dst):
        first = int(torch.searchsorted(ends, at, right=True))  # rows without edges before it are passed
        last = max(first + 1, int(torch.searchsorted(ends, at + WINDOW_EDGES, right=True)))
        to = min(int(ends[last - 1]), at + WINDOW_EDGES)
        own = edges[at:to]
        bounds = torch.cat([ends.new_tensor([at]), ends[first:last].clamp(max=to)]) - at
        factors = None if weight is None else weight[own]
        lists = (bounds[:-1], bounds[1:], torch.arange(len(own)))
        starts, ends_of, places = (like_block(block, each.int()) for each in lists)
        yield _Window(
            rows=(first, last),
            block=_summed(
                block,
                starts,
                ends_of,
                places,
                len(own),
                None if factors is None else like_block(block, factors.float()),
            ),
            dst=dst[at:to],
            src=sources[own],
            edge_rows=rows[place[own]],
            weight=None if factors is None else factors.to(rows.dtype),
        )
        at = to
