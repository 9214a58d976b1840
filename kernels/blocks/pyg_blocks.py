"""Our blocks as the edges that PyG's convolutions take, one bipartite graph per layer or one graph. PyG itself is not imported.

The arrays are tensors on the device of the block's arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Block


@dataclass(kw_only=True)
class PygBlock:
    """One bipartite layer of a mini-batch: `conv((h, h[: block.size[1]]), block.edge_index)` computes it from its sources' rows h.

    Attributes:
        edge_index: int64[2, E], local sources in row 0, local destinations in row 1; the edges of a destination stand together.
        size: (number of sources, number of destinations). The destinations are the first sources.
        n_id: int64[size[0]], global ids of the sources.
        edge_weight: float32[E], if the sampler or the table's model gives weights; else None.
        share: float32[E], shares of the edges in the mean of their destination, if neighbours are drawn by weight or walks; else None.
        self_weight: float32[size[1]], weights of the destinations' own rows beside `edge_weight` in the batches of a GCN; else None.
        edge_type: int64[E], if the graph has relations; else None.
        edge_attr: float[E, F], rows of the edges, if the training reads some (`edge_features`); else None.
        x: float[size[0], F], input rows of the sources, on the first block of a `MiniBatch`; else None.
        y: int64[size[1]], labels of the destinations, on the last block of a `MiniBatch`; else None.
    """

    edge_index: Any
    size: tuple[int, int]
    n_id: Any
    edge_weight: Any = None
    share: Any = None
    self_weight: Any = None
    edge_type: Any = None
    edge_attr: Any = None
    x: Any = None
    y: Any = None

    def to(self, device: Any) -> "PygBlock":
        """Returns the block with its tensors on a torch device."""
        tensors = {name: value.to(device) for name, value in vars(self).items() if hasattr(value, "to")}
        return replace(self, **tensors)


@dataclass(kw_only=True)
class Subgraph:
    """A mini-batch as one graph, for a model whose `forward(x, edge_index)` computes all nodes of a graph; the seeds are its first nodes.

    Every node within the depth of the model has the neighbours that were drawn for it where it was reached first, as PyG's NeighborLoader
    draws them; the nodes at the end have none.

    Attributes:
        edge_index: int64[2, E], local sources in row 0, local destinations in row 1.
        n_id: int64[n], global ids of the nodes.
        edge_weight, edge_type, edge_attr: float32[E], int64[E], float[E, F], as of `PygBlock`; else None.
        x: float[n, F], input rows of the nodes; None before they are gathered.
        y: int64[batch_size], labels of the seeds, of a `MiniBatch`; else None.
    """

    edge_index: Any
    batch_size: int
    n_id: Any
    edge_weight: Any = None
    edge_type: Any = None
    edge_attr: Any = None
    x: Any = None
    y: Any = None

    @property
    def num_nodes(self) -> int:
        """Number of nodes n."""
        return len(self.n_id)


def to_pyg(block: Block) -> PygBlock:
    """Returns the block as bipartite edges, in order, without removed ones; InputError if destinations are not the first sources."""
    _require_first(block)
    places, edge_index = edges_of(block)
    weight, share, edge_type = (_at(array, places) for array in (block.weight, block.share, block.edge_type))
    return PygBlock(
        edge_index=edge_index,
        size=(block.num_src, block.num_dst),
        n_id=_tensor(block.src_ids).long(),
        edge_weight=weight,
        share=share,
        self_weight=None if block.self_weight is None else _tensor(block.self_weight),
        edge_type=None if edge_type is None else edge_type.long(),
        edge_attr=edge_rows_at(block, places),
    )


def to_subgraph(blocks: Sequence[Block]) -> Subgraph:
    """Returns the blocks of a mini-batch as one graph, see `Subgraph`.

    Args:
        blocks: as a sampler returns them: the destinations of each are the sources of the next one.

    Raises:
        InputError: destinations of a block are not its first sources.
    """
    import torch

    edges, weights, types, rows, reached = [], [], [], [], 0
    for block in reversed(blocks):
        _require_first(block)
        # Nodes that a block nearer to the seeds has as destinations have their edges already.
        places, edge_index = edges_of(block, reached)
        edges.append(edge_index)
        weights.append(_at(block.weight, places))
        types.append(_at(block.edge_type, places))
        rows.append(edge_rows_at(block, places))
        reached = block.num_dst
    return Subgraph(
        edge_index=torch.cat(edges, 1),
        batch_size=blocks[-1].num_dst,
        n_id=_tensor(blocks[0].src_ids).long(),
        edge_weight=None if any(each is None for each in weights) else torch.cat(weights),
        edge_type=None if any(each is None for each in types) else torch.cat(types).long(),
        edge_attr=None if any(each is None for each in rows) else torch.cat(rows),
    )


def edge_rows_at(block: Block, places: Any) -> Any:
    """Returns float[E, F], the rows of the edges at places of a block (an index of its edges); None if it has no rows of edges."""
    return None if block.edge_rows is None else block.edge_rows[_tensor(block.edge_place)[places].long()]


def _require_first(block: Block) -> None:
    if block.dst_pos is not None:
        raise InputError("the block's destinations are not its first sources", "PyG's edges have no other form")


def edges_of(block: Block, first: int = 0) -> tuple[Any, Any]:
    """Returns the places i64[E] of the edges of the destinations from `first` on that are still there, and their edge_index i64[2, E]."""
    import torch

    start = _tensor(block.start)[first:].long()
    counts = _tensor(block.end)[first:].long() - start
    destinations = torch.repeat_interleave(torch.arange(first, block.num_dst, device=start.device), counts)
    before = torch.cumsum(counts, 0) - counts
    places = torch.arange(len(destinations), device=start.device) + torch.repeat_interleave(start - before, counts)
    return places, torch.stack([_tensor(block.indices)[places].long(), destinations])


def _at(array: Any, places: Any) -> Any:
    """Returns the values of edges at places, None without values."""
    return None if array is None else _tensor(array)[places]


def _tensor(array: Any) -> Any:
    """Returns an array as a tensor, where it is; torch takes no array that is read-only."""
    import torch

    if isinstance(array, torch.Tensor):
        return array
    return torch.from_numpy(array if array.flags.writeable else array.copy())
