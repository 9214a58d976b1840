"""Sampled evaluation by ranks that each can read the rows of all nodes: they share its batches.

Logits are gathered at every rank, so all take the same decisions. An exact evaluation is a forward pass over the chunks (whole_pass.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from torch import Tensor

from graphmill.kernels.sampling.epoch_plan import PlannedBatch
from graphmill.kernels.types import Array, Topology
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.domain import AllNodes, Piece, collected_of_ranks, turns_of_rank
from graphmill.trainers.ranks.group import Lane


class BatchTurns(AllNodes):
    """All nodes, in batches that the ranks compute in turns.

    Args:
        topology: the graph.
        ends: i64[N+1], upper bounds of the ends of each node's edges.
        lane: the lane of the exchanges.
    """

    def __init__(self, topology: Topology, ends: Array, lane: Lane):
        super().__init__(topology, ends)
        self.lane = lane

    def turns(self, planned: Sequence[PlannedBatch]) -> Sequence[PlannedBatch | None]:
        """Returns batch b at rank b mod ranks, and None for the turns in which only others have a batch."""
        return turns_of_rank(self.lane, planned)

    def collected(self, pieces: Iterable[Piece], count: int) -> Tensor:
        """Returns the pieces of all ranks, each at its place; collective."""
        return collected_of_ranks(self.lane, pieces, count)


def batch_turns(topology: Topology, lane: Lane) -> Callable[[Bounds], BatchTurns]:
    """Returns the function that makes the nodes of an evaluation which ranks share."""
    return lambda bounds: BatchTurns(topology, bounds.ends(topology), lane)
