"""One layer of a module that was cut: its operations, on any block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from graphmill.kernels.blocks.pyg_blocks import Subgraph, to_subgraph
from graphmill.kernels.types import Block
from graphmill.trainers.models.cut.trace import LayerGraph, Root
from graphmill.trainers.models.masks import LayerRandom
from graphmill.trainers.models.ops import own_rows
from graphmill.trainers.models.own import FORMS

DEGREE = "degree"
"""Kind of edge weights that are the in-degrees of the sources, see `graphmill.trainers.batches.batch.attach_weights`."""


class CutLayer(nn.Module):
    """A layer whose first half is all of it, as of `graphmill.trainers.models.own_layers.WholeLayer`; its parameters are those of `root`.

    Args:
        trained, evaluated: the layer's operations while the module trains, and while it is evaluated.

    Attributes:
        widths: columns of the values that enter, side by side in the rows that it reads.
        normalised: convolutions that weigh edges by degrees, which a block does not show.
    """

    cacheable, reads_own = False, True

    def __init__(self, root: Root, trained: LayerGraph, evaluated: LayerGraph):
        super().__init__()
        # In a tuple, so that torch does not count the parameters once per layer.
        self._root, self._pieces = (root,), (evaluated, trained)
        self.widths: list[int] = []
        self.normalised: list[Any] = (
            [each for each in evaluated.modules if normalises(each)] if root.form == "subgraph" else []
        )

    @property
    def edge_weight(self) -> str | None:
        """The kind of weights that a block must carry."""
        return DEGREE if self.normalised else None

    @property
    def reads_relations(self) -> bool:
        """Whether its operations read relations."""
        return self.reads({"edge_type"})

    def reads(self, names: set[str]) -> bool:
        """Tells whether its operations read an attribute of edges that has one of these names."""
        return any(piece.reads(names) for piece in self._pieces)

    @property
    def modules_inside(self) -> list[str]:
        """Names of the classes of its convolutions, or of its other modules."""
        return [type(each).__name__ for each in self._pieces[0].modules]

    def leaving(self, block: Block, h_src: Tensor) -> list[Tensor]:
        """Returns the values that leave the layer, float[num_dst, ...] each, from those that enter, float[num_src, F] side by side."""
        root, piece = self._root[0], self._pieces[self.training]
        block, rows = own_first(block, h_src)
        given = to_subgraph([block]) if root.form == "subgraph" else FORMS[root.form][1](block)
        with self._weighed(given, block, rows.dtype):
            runner = fx.Interpreter(root, graph=piece.graph)
            runner.extra_traceback = False
            found = runner.run(*rows.split(self.widths, 1), given)
        return [each if len(each) == block.num_dst else each[: block.num_dst] for each in found]

    def aggregate(self, block: Block, h_src: Tensor, rng: LayerRandom) -> Tensor:
        """Returns float[num_dst, H], the values that leave the layer, side by side."""
        found = self.leaving(block, h_src)
        return found[0] if len(found) == 1 else torch.cat(found, 1)

    def update(self, agg: Tensor, h_dst: Tensor, rng: LayerRandom) -> Tensor:
        """Returns the rows as they are."""
        return agg

    @contextmanager
    def _weighed(self, given: Subgraph, block: Block, dtype: torch.dtype) -> Iterator[None]:
        """Gives convolutions that weigh edges by degrees the weights in the whole graph, as edges that they have seen before."""
        if self.normalised:
            assert given.edge_weight is not None and block.self_weight is not None
            degrees = given.edge_weight.to(dtype), torch.as_tensor(block.self_weight).to(dtype)
            given.edge_weight = None
            for each in self.normalised:
                each._cached_edge_index = weighed_edges(each, given.edge_index, *degrees)
        try:
            yield
        finally:
            for each in self.normalised:
                each._cached_edge_index = None


def normalises(module: nn.Module) -> bool:
    """Tells whether a convolution weighs edges by degrees, and takes weights that it has kept."""
    return hasattr(module, "_cached_edge_index") and getattr(module, "normalize", True) is True


def weighed_edges(conv: Any, edge_index: Tensor, of_sources: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Returns edges and weights as PyG's `gcn_norm` makes them of a whole graph whose edges have no weights.

    Args:
        conv: the convolution, whose attributes say how nodes are added to their neighbours.
        edge_index: int64[2, E], edges of some destinations.
        of_sources, own: float[E], float[num_dst], degrees in the whole graph as of `graphmill.kernels.blocks.coefficients.source_degrees`.
    """

    def root_of(degrees: Tensor) -> Tensor:
        total = torch.where(degrees < 0, -degrees, degrees + float(conv.add_self_loops))
        return total.pow(-0.5).masked_fill(total == 0, 0.0)

    of_own = root_of(own)
    weight = root_of(of_sources) * of_own[edge_index[1]]
    if not conv.add_self_loops:
        return edge_index, weight
    others = edge_index[0] != edge_index[1]
    loops = torch.arange(len(own), device=edge_index.device).expand(2, -1)
    return torch.cat([edge_index[:, others], loops], 1), torch.cat([weight[others], of_own**2])


def own_first(block: Block, h_src: Tensor) -> tuple[Block, Tensor]:
    """Returns a block whose destinations are its first sources, and its rows: those of destinations that lie elsewhere are repeated."""
    if block.dst_pos is None:
        return block, h_src
    indices: Any = block.indices
    on_host = isinstance(indices, np.ndarray)
    sources = block.src_ids
    if not len(sources):  # of a block over all nodes
        sources = np.arange(block.num_src, dtype=np.int32)
    joined: Any = np.concatenate if on_host else torch.cat
    counts: Any = np.arange if on_host else partial(torch.arange, device=h_src.device)
    places = counts(block.num_dst, block.num_dst + block.num_src)
    places[block.dst_pos if on_host else torch.as_tensor(block.dst_pos).long()] = counts(block.num_dst)
    moved = Block(
        num_dst=block.num_dst,
        num_src=block.num_dst + block.num_src,
        start=block.start,
        end=block.end,
        indices=places[indices if on_host else indices.long()],
        src_ids=joined([block.dst_ids, sources]),
        weight=block.weight,
        self_weight=block.self_weight,
        share=block.share,
        edge_type=block.edge_type,
    )
    return moved, torch.cat([own_rows(h_src, block), h_src])
