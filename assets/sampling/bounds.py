"""The most that batches of a sampler can hold, from fan-outs and the sizes of the graph, before one is drawn."""

from collections.abc import Sequence
from math import ceil, inf
from typing import NamedTuple

from graphmill.assets.costs.needs import Sizes
from graphmill.assets.sampling.config import Neighbours
from graphmill.assets.sampling.fanouts import Entry, most_drawn, relations_of
from graphmill.assets.tasks.labels import LINKS, ON_EDGES


class BatchBound(NamedTuple):
    """The most that one batch holds.

    Attributes:
        rows: nodes of each layer: rows[0] are the inputs, the last ones the seeds.
        edges: edges of each block, in the same order.
        record_bytes: bytes of its record in stored samples (assets/samples/record.py).
    """

    rows: tuple[int, ...]
    edges: tuple[int, ...]
    record_bytes: int

    @property
    def inputs(self) -> int:
        """Number of input nodes."""
        return self.rows[0]

    @property
    def num_edges(self) -> int:
        """Number of edges of all its blocks."""
        return sum(self.edges)


def batch_bound(how: Neighbours, seeds: int, sizes: Sizes, fanouts: Sequence[Entry] | None = None) -> BatchBound:
    """Returns a likely bound: every draw is another edge, and another node while there are any.

    Args:
        seeds: nodes, or links, each with the ends of its negatives.
        sizes: sizes of the graph, with its artifact, which names its relations, if it is built.
        fanouts: fan-outs in the place of those of `how`.
    """
    rows, edges, num_bytes, walks = [seed_nodes(how, seeds, sizes)], list[int](), 0, how.method == "random_walk"
    # As of several times a node is several rows, and an edge of it several edges.
    most_rows, most_edges = (sizes.num_nodes, 1) if how.before is None else (inf, inf)
    most, graph = how.paths * how.length if walks else sizes.num_edges, sizes.artifacts.get("graph")
    edge_bytes = 8 if how.method in ("weighted", "random_walk") else 4  # with its share
    relations = None if graph is None else relations_of(graph)
    for fanout in (most_drawn(entry, relations) for entry in fanouts or how.fanouts):
        all_drawn = rows[0] * most if walks else most
        drawn = all_drawn if fanout < 0 else int(min(all_drawn * most_edges, rows[0] * fanout))
        num_bytes += edge_bytes * drawn + 4 * rows[0]
        edges.insert(0, drawn)
        rows.insert(0, int(min(most_rows, rows[0] + drawn)))
    return BatchBound(tuple(rows), tuple(edges), num_bytes + sizes.id_bytes * rows[0])


def seed_nodes(how: Neighbours, seeds: int, sizes: Sizes) -> int:
    """Returns the most nodes of a batch's seeds: of a link its ends, and one end of each of its negatives."""
    if _kind(sizes) not in ON_EDGES:
        return seeds
    ends = seeds * (2 + _negatives(how, sizes))
    return ends if how.before is not None else min(sizes.num_nodes, ends)


def seed_pairs(how: Neighbours, seeds: int, sizes: Sizes) -> int:
    """Returns the pairs of a batch's seeds, links with their negatives; 0 of nodes."""
    return seeds * (1 + _negatives(how, sizes)) if _kind(sizes) in ON_EDGES else 0


def _negatives(how: Neighbours, sizes: Sizes) -> int:
    """Returns the pairs that each edge is compared with; none if its label is learnt."""
    return how.per_positive if _kind(sizes) == LINKS else 0


def _kind(sizes: Sizes) -> str:
    """Returns the kind of the task of a graph."""
    graph, config = sizes.artifacts.get("graph"), sizes.configs.get("graph")
    return getattr(config, "task", "") if graph is None else graph.config.get("task", "")


def even_seeds(num_seeds: int, batch_size: int) -> tuple[int, int]:
    """Returns (number of batches, seeds of the largest) of an epoch; (0, 0) without seeds."""
    num_batches = ceil(num_seeds / batch_size)
    return (num_batches, ceil(num_seeds / num_batches)) if num_batches else (0, 0)
