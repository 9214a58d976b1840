"""The most that batches of a sampler can hold, from fan-outs and the sizes of the graph, before one is drawn."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from graphmill.assets.sampling.config import Neighbours
from graphmill.assets.sampling.fanouts import most_drawn, relations_of
from graphmill.assets.storage.artifact import Artifact


class BatchBound(NamedTuple):
    """The most that one batch holds.

    Attributes:
        inputs, edges: numbers of input nodes, and of edges of all its blocks.
        record_bytes: bytes of its record in stored samples (assets/samples/record.py).
    """

    inputs: int
    edges: int
    record_bytes: int


def batch_bound(how: Neighbours, seeds: int, num_nodes: int, num_edges: int, graph: Artifact | None) -> BatchBound:
    """Returns a likely bound: every draw is another edge, and another node while there are any.

    Args:
        how: the keys of `[sampling]`.
        seeds: number of seeds of the batch.
        num_nodes, num_edges: sizes of the graph.
        graph: its artifact, which names its relations; None if it is not built yet.
    """
    nodes, num_bytes, drawn, walks = seeds, 0, 0, how.method == "random_walk"
    most = how.paths * how.length if walks else num_edges
    edge_bytes = 8 if how.method in ("weighted", "random_walk") else 4  # with its share
    relations = None if graph is None else relations_of(graph)
    for fanout in (most_drawn(entry, relations) for entry in how.fanouts):
        if walks:
            edges = nodes * (most if fanout < 0 else min(fanout, most))
        else:
            edges = num_edges if fanout < 0 else min(num_edges, nodes * fanout)
        num_bytes += edge_bytes * edges + 4 * nodes
        drawn += edges
        nodes = min(num_nodes, nodes + edges)
    return BatchBound(nodes, drawn, num_bytes + (4 if num_nodes < 2**31 else 8) * nodes)


def even_seeds(num_seeds: int, batch_size: int) -> tuple[int, int]:
    """Returns (number of batches, seeds of the largest) of an epoch; (0, 0) without seeds."""
    num_batches = ceil(num_seeds / batch_size)
    return (num_batches, ceil(num_seeds / num_batches)) if num_batches else (0, 0)
