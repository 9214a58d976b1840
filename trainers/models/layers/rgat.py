"""Graph attention per relation (Busbridge et al., "Relational Graph Attention Networks", 2019, attention within relations):

    h_v = act(W_0 h_v + b + sum over relations r of (concat over heads of the sum over in-neighbours u by r of alpha^r_uv W_r h_u))
    alpha^r_uv = softmax over v's in-neighbours by r of leaky(a_r . W_r h_u + c_r . W_r h_v)

A source is mapped once per relation that it has edges of, and attention runs over those (relation, source) pairs, with the runs of a
relation as destinations. A node does not attend to itself: W_0 maps its own row.

Attention dropout is keyed by the two ends of an edge, so edges of several relations between two nodes are dropped together.

The sources of a block by relation: a pair (relation, source) for every relation that a source has edges of.

A layer that maps a source by a matrix per relation before it aggregates computes a row for each pair, and aggregates from pairs to runs
(trainers/models/layers/relations.py).
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Block
from graphmill.trainers.models.attention import attend, by_head
from graphmill.trainers.models.layers.finish import Finish, LayerOptions
from graphmill.trainers.models.layers.relations import RelationRuns, as_long, like_block, relation_runs
from graphmill.trainers.models.masks import LayerRandom
from graphmill.trainers.models.ops import aggregate, own_rows
from graphmill.trainers.models.products import Map, map_pieces, mapped

MEMO = "_relation_pairs"


@dataclass(frozen=True, kw_only=True)
class RelationPairs:
    """The pairs (relation, source) of a block's edges, by relation and in each by source, and the runs as their destinations."""

    # The runs of the block.
    runs: RelationRuns
    # The block from sources to pairs, one edge each; with its transpose.
    picked: Block
    # Number of pairs of each relation that the block has.
    counts: tuple[int, ...]
    # The block from pairs to runs. After the pairs its sources have a row for each run, which stands for the run itself.
    block: Block
    # That block with its runs in the order of their edges, as masks of edges are drawn.
    by_edge: Block
    # The place of a run in a table with a row for each destination and relation that the block has, i64[runs].
    run_halves: Tensor
    # The place of each edge's relation among those of the block, i64[edges].
    kinds: Tensor


def relation_pairs(block: Block) -> RelationPairs:
    """Returns the pairs of a block with `edge_type`, on any device; they are kept with the block, whose edges may not change after."""
    found = vars(block).get(MEMO)
    if found is None:
        found = _made(block, relation_runs(block))
        setattr(block, MEMO, found)
    return found


def _made(block: Block, runs: RelationRuns) -> RelationPairs:
    start, end, source = (as_long(each) for each in (runs.block.start, runs.block.end, runs.block.indices))
    counts = torch.tensor(runs.counts, dtype=torch.int64, device=start.device)
    kind = torch.repeat_interleave(counts)  # of each run, its place among the relations
    # Edges stand by destination, runs by relation: an edge is of the run that begins last before it.
    by_start = torch.argsort(start)
    run = torch.repeat_interleave(by_start, (end - start)[by_start])
    pairs, place = torch.unique(kind[run] * block.num_src + source, return_inverse=True)
    of_pair, num_pairs, num_runs = pairs % max(1, block.num_src), len(pairs), len(kind)
    ends = torch.searchsorted(pairs, torch.arange(1, len(counts) + 1, device=start.device) * block.num_src)
    ids, dst = torch.as_tensor(block.src_ids), as_long(runs.joined.t_dst)
    own = dst if block.dst_pos is None else as_long(block.dst_pos)[dst]
    places, like = torch.arange(num_pairs + 1, device=start.device), block
    picked = Block(
        num_dst=num_pairs,
        num_src=block.num_src,
        start=like_block(like, places[:-1].int()),
        end=like_block(like, places[1:].int()),
        indices=like_block(like, of_pair.int()),
        src_ids=block.src_ids,
        dst_pos=like_block(like, of_pair.int()),
        **_transposed(like, of_pair, block.num_src, places[:-1]),
    )
    paired = Block(
        num_dst=num_runs,
        num_src=num_pairs + num_runs,
        start=runs.block.start,
        end=runs.block.end,
        indices=like_block(like, place.int()),
        src_ids=like_block(like, torch.cat([ids[of_pair], ids[own]])),
        dst_pos=like_block(like, torch.arange(num_pairs, num_pairs + num_runs, device=start.device).int()),
        **_transposed(like, place, num_pairs + num_runs, run),
    )
    return RelationPairs(
        runs=runs,
        picked=picked,
        counts=tuple(torch.diff(ends, prepend=ends.new_zeros(1)).tolist()),
        block=paired,
        by_edge=replace(
            paired,
            start=like_block(like, start[by_start].int()),
            end=like_block(like, end[by_start].int()),
            dst_pos=like_block(like, (num_pairs + by_start).int()),
        ),
        run_halves=dst * len(counts) + kind,
        kinds=kind[run],
    )


def _transposed(block: Block, source: Tensor, num_src: int, dst: Tensor) -> dict[str, Any]:
    """Returns the arrays of a transpose, as `block` keeps its own, of edges with ends i64[edges]."""
    order = torch.argsort(source, stable=True)
    begins = torch.cat([order.new_zeros(1), torch.bincount(source, minlength=num_src).cumsum(0)])
    arrays = {"t_start": begins, "t_edge": order, "t_dst": dst[order]}
    return {name: like_block(block, array.int()) for name, array in arrays.items()}


NEVER = -1e30
"""Half of a score whose weight is 0 beside any other."""


class RgatLayer(nn.Module):
    """One layer; its twin is `dgl.nn.HeteroGraphConv` of a `GATConv(bias=False)` per relation, added up, and a linear map of the own row.

    Args:
        in_width, out_width: row widths; out_width is a multiple of the heads, except in the last layer, which averages them.
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
        self.own = Map(in_width, out_width)
        self.attention_dropout = options.attention_dropout
        self.finish = Finish(in_width, out_width, options)

    def aggregate(self, block: Block, h_src: Tensor, rng: LayerRandom) -> Tensor:
        """The attention-weighted sums of all relations by head, float[num_dst, heads * depth]; raises InputError if the block has none."""
        if block.edge_type is None:
            problem = 'a block without relations, and model = "rgat"'
            raise InputError(problem, "give the sampler a graph with edge_types")
        pairs = relation_pairs(block)
        if not pairs.runs.relations:
            return h_src.new_zeros((block.num_dst, self.heads * self.depth))
        matrices = [self.matrices[relation] for relation in pairs.runs.relations]
        z = map_pieces(aggregate(pairs.picked, h_src, "sum"), pairs.counts, matrices)
        left = self._left(z, pairs).to(z.dtype)
        right = self._right(own_rows(h_src, block), pairs, matrices).to(z.dtype)
        # A destination's own term, which the kernel has, is a row of zeros with no weight.
        num_runs = len(right)
        z = torch.cat([z, z.new_zeros((num_runs, z.shape[1]))])
        left = torch.cat([left, left.new_full((num_runs, self.heads), NEVER)])
        mask = rng.edge_mask(pairs.by_edge, self.heads, self.attention_dropout)
        attended = attend(pairs.block, z, left, right, mask, edge=self.edge_scores(pairs))
        return aggregate(pairs.runs.joined, attended, "sum")

    def edge_scores(self, pairs: RelationPairs) -> Tensor | None:
        """Returns the addition of features of edges to the scores, None without them; see `graphmill.trainers.models.attention.attend`."""
        return None

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
        halves = mapped(h_dst, torch.cat(vectors)).view(-1, self.heads)
        return halves.index_select(0, pairs.run_halves)  # no half is read twice, so its gradient has one term
