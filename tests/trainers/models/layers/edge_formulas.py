"""The documented formulas of layers with features of edges over single edges; they share no code with the layers but parameters."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from graphmill.kernels.types import Block

Formula = Callable[[Tensor], Tensor]
Edges = tuple[Tensor, Tensor, Tensor]


def edges_of(block: Block, table: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sources, destinations, rows and places of the edges that are left, by the plain rule.

    Args:
        table: float[E, F], the row of each edge id.
    """
    places = [e for i in range(block.num_dst) for e in range(block.start[i], block.end[i])]
    dst = [i for i in range(block.num_dst) for _ in range(block.start[i], block.end[i])]
    place = torch.tensor(places, dtype=torch.long)
    assert block.edge_id is not None
    rows = table[torch.from_numpy(block.edge_id)[place]]
    return torch.from_numpy(block.indices).long()[place], torch.tensor(dst, dtype=torch.long), rows, place


def by_hand(name: str, layer: Any, block: Block, table: Tensor) -> Formula:
    """The output of a last layer as a function of its sources' rows x.

    Args:
        name: a model, or the aggregator of "sage".
    """
    src, dst, rows, place = edges_of(block, table)
    if name == "gat":
        return lambda x: _attended(layer, block, x, (src, dst, rows))
    if name in ("rgcn", "bases", "rgat"):
        assert block.edge_type is not None
        kind = torch.from_numpy(block.edge_type).long()[place]
        each = [
            (relation, tuple(one[kind == relation] for one in (src, dst, rows))) for relation in kind.unique().tolist()
        ]
        return lambda x: (
            layer.own(x[: block.num_dst])
            + sum(_of_relation(name, layer, block, x, relation, mine) for relation, mine in each)
        )
    return _summed(name, layer, block, (src, dst, rows), place)


def _summed(name: str, layer: Any, block: Block, edges: Edges, place: Tensor) -> Formula:
    src, dst, rows = edges
    weight = torch.ones(len(src), dtype=rows.dtype)
    if block.weight is not None:
        weight = torch.from_numpy(block.weight).to(rows.dtype)[place]
    counts = torch.bincount(dst, minlength=block.num_dst).clamp(min=1)[:, None]

    def summed(messages: Tensor) -> Tensor:
        return messages.new_zeros(block.num_dst, messages.shape[1]).index_add(0, dst, messages)

    def carried(x: Tensor) -> Tensor:
        return torch.cat([x[src], rows], dim=1)

    def own(x: Tensor) -> Tensor:
        assert block.self_weight is not None
        alone = torch.cat([x[: block.num_dst], x.new_zeros(block.num_dst, rows.shape[1])], dim=1)
        return alone * torch.from_numpy(block.self_weight).to(x.dtype)[:, None]

    def largest(x: Tensor) -> Tensor:
        out = x.new_zeros(block.num_dst, x.shape[1] + rows.shape[1])
        return out.scatter_reduce(0, dst[:, None].expand(-1, out.shape[1]), carried(x), "amax", include_self=False)

    def beside(aggregate: Formula) -> Formula:
        return lambda x: layer.own(x[: block.num_dst]) + layer.neighbours(aggregate(x))

    if name in ("gcn", "mean with self"):
        return lambda x: layer.linear(summed(carried(x) * weight[:, None]) + own(x))
    if name == "gin":
        messages = lambda x: torch.relu(x[src] + layer.edges(rows)) * weight[:, None]  # noqa: E731
        return lambda x: layer.mlp((1 + layer.eps) * x[: block.num_dst] + summed(messages(x)))
    aggregates: dict[str, Formula] = {
        "mean": lambda x: summed(carried(x)) / counts,
        "sum": lambda x: summed(carried(x) * weight[:, None]),
        "max": largest,
    }
    return beside(aggregates[name])


def _attended(layer: Any, block: Block, x: Tensor, edges: Edges) -> Tensor:
    """Attention over a node's edges and itself; its own term has the mean of its edges' rows."""
    src, dst, rows = edges
    own = torch.arange(block.num_dst)
    counts = torch.bincount(dst, minlength=block.num_dst).clamp(min=1)[:, None]
    means = rows.new_zeros(block.num_dst, rows.shape[1]).index_add(0, dst, rows) / counts
    z = layer.projection(x).view(-1, layer.heads, layer.depth)
    with_own = torch.cat([src, own]), torch.cat([dst, own]), torch.cat([rows, means]) @ layer.edge.T
    agg = _softmax(z, (z * layer.left).sum(2), (z * layer.right).sum(2), with_own, block.num_dst)
    return (agg + layer.bias.view(layer.heads, layer.depth)).mean(dim=1)


def _softmax(z: Tensor, left: Tensor, right: Tensor, edges: Edges, num_dst: int) -> Tensor:
    src, dst, of_edges = edges
    power = torch.exp(nn.functional.leaky_relu(left[src] + right[dst] + of_edges, 0.2))
    total = power.new_zeros(num_dst, power.shape[1]).index_add(0, dst, power)
    messages = (power / total[dst])[:, :, None] * z[src]
    return z.new_zeros(num_dst, *z.shape[1:]).index_add(0, dst, messages)


def _of_relation(name: str, layer: Any, block: Block, x: Tensor, relation: int, edges: Any) -> Tensor:
    src, dst, rows = edges
    if name in ("rgcn", "bases"):
        counts = torch.bincount(dst, minlength=block.num_dst).clamp(min=1)[:, None]
        messages = torch.cat([x[src], rows], dim=1)
        means = x.new_zeros(block.num_dst, messages.shape[1]).index_add(0, dst, messages) / counts
        return means @ layer.matrix(relation).T
    heads, depth = layer.heads, layer.depth
    z = (x @ layer.matrices[relation].T).view(-1, heads, depth)
    left = (z * layer.left[relation].view(heads, depth)).sum(2)
    right = (z * layer.right[relation].view(heads, depth)).sum(2)
    of_edges = rows @ layer.edge[relation].view(heads, -1).T
    return _softmax(z, left, right, (src, dst, of_edges), block.num_dst).mean(dim=1)
