"""Evaluation by ranks that each can read the rows of all nodes: they share the ranges of exact inference and the batches of a sampled one.

The ranges of a layer are those of one process, so the rounding of sums is, too. A rank computes consecutive ones, and fetches the rows of
the layer before that other ranks have computed. Ranks with fewer ranges than others continue with empty ones, since every exchange needs
all. Logits of the wanted nodes are gathered at every rank, so all take the same decisions.

Memory: that of exact inference by one process at most, since no row is held that was not computed here; and the fetched rows of a range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from kernels.sampling.epoch_plan import PlannedBatch
from kernels.types import Array, Topology
from trainers.inference.bounds import Bounds
from trainers.inference.domain import AllNodes, Piece
from trainers.inference.needed import NeededNodes
from trainers.inference.windows import Rows, numpy_dtype
from trainers.ranks.group import Lane
from trainers.record.ledger import Ledger
from trainers.techniques.distributed.exchange import Exchange, make_request
from trainers.techniques.distributed.inference import collected_of_ranks, turns_of_rank

Ranges = list[tuple[int, int]]


class RangeTurns(AllNodes):
    """All nodes, whose ranges the ranks compute in turns.

    Args:
        topology: the graph.
        ends: i64[N+1], upper bounds of the ends of each node's edges.
        lane: the lane of the exchanges.
    """

    def __init__(self, topology: Topology, ends: Array, lane: Lane):
        super().__init__(topology, ends)
        self.lane = lane
        self._ranges: Ranges = []

    def ranges(
        self, budget: int, edge_cost: int, node_cost: int, needed: NeededNodes | None = None, level: int = 0
    ) -> Iterator[tuple[int, int]]:
        """Yields this rank's ranges that have a needed node, then empty ones while other ranks have some."""
        every = super().ranges(budget, edge_cost, node_cost)
        found = [each for each in every if needed is None or needed.holds(level, self.node_ids(*each)).any()]
        self._ranges, bounds = found, self._bounds(len(found))
        own = found[bounds[self.lane.rank] : bounds[self.lane.rank + 1]]
        yield from own
        for _ in range(int(np.diff(bounds).max()) - len(own)):
            yield self.num_nodes, self.num_nodes

    def _bounds(self, count: int) -> Array:
        """Returns i64[world + 1], the first range of each rank and the end of the last one's."""
        return np.arange(self.lane.world + 1) * count // self.lane.world

    def skips(self, needed: NeededNodes | None, level: int, low: int, high: int) -> bool:
        """Returns False: other ranks wait for the exchange of every range that was yielded."""
        return False

    def shared(self, rows: Rows) -> Rows:
        """Returns rows of the ranges that were yielded last, which every rank has computed in part, as rows of all nodes."""
        bounds = self._bounds(len(self._ranges))
        lows = np.array([low for low, _ in self._ranges], np.int64)
        return TurnRows(rows, self.lane, lows, np.repeat(np.arange(self.lane.world), np.diff(bounds)))

    def turns(self, planned: Sequence[PlannedBatch]) -> Sequence[PlannedBatch | None]:
        """Returns batch b at rank b mod ranks, and None for the turns in which only others have a batch."""
        return turns_of_rank(self.lane, planned)

    def collected(self, pieces: Iterable[Piece], count: int) -> Tensor:
        """Returns the pieces of all ranks, each at its place; collective."""
        return collected_of_ranks(self.lane, pieces, count)


class TurnRows:
    """Rows of all nodes, each at the rank that computed its range; collective.

    Args:
        rows: rows of all nodes, of which those of this rank's ranges are written.
        lane: the lane of the exchanges.
        lows: i64[r], the first node of each range.
        ranks: i64[r], the rank of each range.
    """

    def __init__(self, rows: Rows, lane: Lane, lows: Array, ranks: Array):
        self.rows, self.lane, self.lows, self.ranks = rows, lane, lows, ranks
        self.width, self.dtype = rows.width, rows.dtype
        self.exchange = Exchange(lane, self._serve, rows.width, numpy_dtype(rows.dtype).name)

    def gather(self, node_ids: Array, threads: int) -> Tensor:
        """Returns float[n, width], row i of node_ids[i]."""
        # Rows of nodes in no range are never read for a result; any rank may give them.
        place = np.maximum(np.searchsorted(self.lows, node_ids, side="right") - 1, 0)
        ranks = self.ranks[place] if len(self.ranks) else np.full(len(node_ids), self.lane.rank)
        out = torch.empty((len(node_ids), self.width), dtype=self.dtype)
        here, there = np.flatnonzero(ranks == self.lane.rank), np.flatnonzero(ranks != self.lane.rank)
        request = make_request(ranks[there], node_ids[there], there, self.lane.world)
        fetched, found = self.exchange.fetch(request, None, Ledger())
        out.numpy()[request.places] = fetched[found]
        out[torch.from_numpy(here)] = self.rows.gather(node_ids[here], threads)
        return out

    def read(self, low: int, high: int) -> Tensor:
        """Returns float[high - low, width], the rows of nodes low to high."""
        return self.gather(np.arange(low, high), 1)

    def _serve(self, numbers: Array, out: Array, ledger: Ledger) -> None:
        out[...] = self.rows.gather(numbers, 1).numpy()


def range_turns(topology: Topology, lane: Lane) -> Callable[[Bounds], RangeTurns]:
    """Returns the function that makes the nodes of an evaluation which ranks share."""
    return lambda bounds: RangeTurns(topology, bounds.ends(topology), lane)
