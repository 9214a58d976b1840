"""The nodes that a process computes in exact inference: all of them, or those of its parts if several processes share the work."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from graphmill.kernels.sampling.epoch_plan import PlannedBatch
from graphmill.kernels.types import Array, Topology
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.needed import NeededNodes
from graphmill.trainers.inference.windows import Rows, empty_rows, input_rows
from graphmill.trainers.ranks.group import Lane
from graphmill.trainers.rows.source import FeatureSource

MakeRows = Callable[[int, int, torch.dtype], Tensor]
"""Returns float[number of rows, columns] of a type, uninitialised."""


class Piece(NamedTuple):
    """Rows of a result, float[k, num_classes], and their numbers there, i64[k]."""

    places: Array
    rows: Tensor


class Domain:
    """The nodes that a process computes, counted from 0: all of a graph; `PartNodes` is for several processes.

    Args:
        ends: i64[N+1], upper bounds of the ends of each node's edges.
    """

    # Whether other processes have rows of nodes, which are fetched from them in step.
    shares_rows: bool = False

    def __init__(self, topology: Topology, ends: Array):
        self.topology, self.num_nodes, self.ends = topology, topology.num_nodes, ends

    def node_ids(self, low: int, high: int) -> Array:
        """Returns ids[high - low], the nodes of a range."""
        return np.arange(low, high, dtype=self.topology.indices.dtype)

    def ranges(
        self, budget: int, edge_cost: int, node_cost: int, needed: NeededNodes | None = None, level: int = 0
    ) -> Iterator[tuple[int, int]]:
        """Yields ranges that cost at most `budget` (`row_ranges`); an empty range only takes part in the exchange of the others' rows.

        Several processes leave out their ranges without a node of set `level` of `needed` here, since they wait for one another in each.
        """
        return row_ranges(self.ends, budget, edge_cost, node_cost)

    def skips(self, needed: NeededNodes | None, level: int, low: int, high: int) -> bool:
        """Returns whether a range that was yielded need not be computed: no node of it is in the set."""
        return needed is not None and not needed.flags(level, low, high).any()

    def inputs(self, features: FeatureSource, memory_bytes: int, dtype: torch.dtype) -> Rows:
        """Returns the input rows of all nodes; `read` takes ranges of these nodes."""
        return input_rows(features, memory_bytes, dtype)

    def shared(self, rows: Rows) -> Rows:
        """Returns rows of these nodes as rows of all nodes: `gather` takes any node, `read` ranges of these."""
        return rows

    def wanted(self, ascending: Array, low: int, high: int) -> tuple[Array, Array]:
        """Returns the listed nodes in a range: i64[k] positions in `ascending` (ids[n], with repeats), and i64[k] rows of the range."""
        first, last = np.searchsorted(ascending, (low, high))
        return np.arange(first, last), ascending[first:last].astype(np.int64) - low

    def turns(self, planned: Sequence[PlannedBatch]) -> Sequence[PlannedBatch | None]:
        """Returns the batches that this process computes; None is a turn of other processes, in which rows are exchanged."""
        return planned

    def least(self, number: int) -> int:
        """Returns the least of the processes' numbers, up to which all of them go on from what they kept; all of them call it."""
        return number

    def collected(self, pieces: Iterable[Piece], count: int, made: MakeRows = empty_rows) -> Tensor:
        """Returns float[count, num_classes], the pieces of all processes, on every process."""
        result: Tensor | None = None
        for places, rows in pieces:
            result = made(count, rows.shape[1], rows.dtype) if result is None else result
            result.numpy()[places] = rows.numpy()
        return torch.empty(0) if result is None else result


class BatchTurns(Domain):
    """All nodes, in batches that ranks compute in turns; logits are gathered at every rank, so all take the same decisions."""

    def __init__(self, topology: Topology, ends: Array, lane: Lane):
        super().__init__(topology, ends)
        self.lane = lane

    def turns(self, planned: Sequence[PlannedBatch]) -> Sequence[PlannedBatch | None]:
        """Returns batch b at rank b mod ranks, and None for the turns in which only others have a batch."""
        own, turns = planned[self.lane.rank :: self.lane.world], -(-len(planned) // self.lane.world)
        return [*own, *[None] * (turns - len(own))]

    def least(self, number: int) -> int:
        """Returns the least number of all ranks; collective."""
        return -self.lane.most(-number)

    def collected(self, pieces: Iterable[Piece], count: int, made: MakeRows = empty_rows) -> Tensor:
        """Returns the pieces of all ranks, each at its place; collective."""
        return collected_of_ranks(self.lane, pieces, count)


def batch_turns(topology: Topology, lane: Lane) -> Callable[[Bounds], BatchTurns]:
    """Returns the function that makes the nodes of a sampled evaluation by ranks that each can read the rows of all nodes."""
    return lambda bounds: BatchTurns(topology, bounds.ends(topology), lane)


def row_ranges(indptr: Array, budget: int, edge_cost: int = 1, node_cost: int = 1) -> Iterator[tuple[int, int]]:
    """Cuts nodes 0..N-1 into ranges that together cost at most `budget`, one node at least.

    Args:
        indptr: i64[N+1].
        budget: the largest cost of a range: edge_cost for each in-edge of its nodes and node_cost for each node.
    """

    def cost(node: int) -> int:
        return int(indptr[node]) * edge_cost + node * node_cost

    low, num_nodes = 0, len(indptr) - 1
    while low < num_nodes:
        high = bisect_right(range(num_nodes + 1), cost(low) + budget, lo=low, key=cost) - 1
        high = max(high, low + 1)
        yield low, high
        low = high


def collected_of_ranks(lane: Lane, pieces: Iterable[Piece], count: int) -> Tensor:
    """Returns float[count, num_classes], the pieces of all ranks, each at its place; collective."""
    found, own = list(pieces), {}
    if found:
        places = torch.from_numpy(np.concatenate([piece.places for piece in found]).astype(np.int64))
        own = {"places": places, "rows": torch.cat([piece.rows for piece in found])}
    logits = None
    for sent in map(load, lane.gather_any(save(own))):
        if sent:
            places, rows = sent["places"], sent["rows"]
            logits = torch.empty((count, rows.shape[1]), dtype=rows.dtype) if logits is None else logits
            logits[places] = rows
    assert logits is not None
    return logits
