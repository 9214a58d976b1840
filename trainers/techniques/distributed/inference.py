"""Evaluation by ranks that have the rows of their own parts (FastSample, section 3.3): each rank computes its own nodes.

Exact inference goes layer by layer, as in trainers/inference/exact.py. A rank computes a layer for the nodes of its parts, in ranges that
never cross a part, and fetches the input rows of a range that other ranks have by the exchange that training uses: features from their
shards, outputs of the layer before from the rank that computed them. So no rank ever holds the rows of all nodes, of any layer. The ranges
are those of the parts, so the rounding of sums of products does not depend on the number of ranks, and with one part it is that of one
process.

Ranks with fewer ranges than others continue with empty ones, since every exchange needs all ranks. Logits of the wanted nodes are gathered
at every rank; they are few numbers per node. Memory: that of exact inference for the nodes of a rank, 4 bytes per node of the graph and 4
per node of the rank for places, 8 per node of a part for its ranges, and the fetched rows of one range.
"""

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.ranges import node_ranges
from graphmill.kernels.types import Array, Topology
from graphmill.trainers.devices.protocol import numpy_dtype
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.domain import BatchTurns, row_ranges
from graphmill.trainers.inference.needed import NeededNodes
from graphmill.trainers.inference.windows import Rows, SourceRows
from graphmill.trainers.ranks.group import Lane
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.source import FeatureSource
from graphmill.trainers.techniques.distributed.exchange import Exchange, make_request
from graphmill.trainers.techniques.distributed.sharded import Ownership, ShardedSource


class PartNodes(BatchTurns):
    """The nodes of this rank's parts, part after part; `ends`, i64[N+1], are upper bounds of the ends of each node's edges."""

    shares_rows = True

    def __init__(self, topology: Topology, owned: Ownership, lane: Lane, ends: Array):
        super().__init__(topology, ends, lane)
        self.owned = owned
        self._sizes = np.zeros(owned.num_parts, np.int64)
        for low, high in node_ranges(topology.num_nodes):
            self._sizes += np.bincount(owned.part_of[low:high], minlength=owned.num_parts)
        own = self._sizes[owned.parts.start : owned.parts.stop]
        self._starts, self.num_nodes = np.cumsum([0, *own]), int(own.sum())

    @cached_property
    def places(self) -> Array:
        """i32[N], the place of each node among those of its rank; an evaluation of samples does without."""
        places, owned = np.empty(self.topology.num_nodes, np.int32), self.owned
        by_rank = self._sizes.reshape(owned.world, -1)
        following = (np.cumsum(by_rank, axis=1) - by_rank).reshape(-1)
        for low, high in node_ranges(len(places)):
            part = owned.part_of[low:high]
            order, counts = np.argsort(part, kind="stable"), np.bincount(part, minlength=owned.num_parts)
            first = following - (np.cumsum(counts) - counts)
            places[low + order] = first[part[order]] + np.arange(len(part))
            following += counts
        return places

    @cached_property
    def _ids(self) -> Array:
        ids, owned = np.empty(self.num_nodes, self.topology.indices.dtype), self.owned
        for low, high in node_ranges(self.topology.num_nodes):
            ranks = owned.part_of[low:high] // (owned.num_parts // owned.world)
            nodes = low + np.flatnonzero(ranks == owned.rank)
            ids[self.places[nodes]] = nodes
        return ids

    def node_ids(self, low: int, high: int) -> Array:
        """Returns ids[high - low], the nodes of a range."""
        return self._ids[low:high]

    def ranges(
        self, budget: int, edge_cost: int, node_cost: int, needed: NeededNodes | None = None, level: int = 0
    ) -> Iterator[tuple[int, int]]:
        """Yields ranges inside parts that have a needed node, then empty ones while other ranks have some."""
        found = [
            (low, high)
            for low, high in self._own_ranges(budget, edge_cost, node_cost)
            if needed is None or needed.holds(level, self.node_ids(low, high)).any()
        ]
        most = self.lane.most(len(found))
        yield from found
        for _ in range(most - len(found)):
            yield self.num_nodes, self.num_nodes

    def _own_ranges(self, budget: int, edge_cost: int, node_cost: int) -> Iterator[tuple[int, int]]:
        indptr = np.asarray(self.ends)
        for first, last in zip(self._starts[:-1].tolist(), self._starts[1:].tolist(), strict=True):
            edges = np.zeros(last - first + 1, np.int64)
            for start, stop in node_ranges(last - first):
                ids = self._ids[first + start : first + stop]
                edges[start + 1 : stop + 1] = indptr[ids + 1] - indptr[ids]
            np.cumsum(edges, out=edges)
            for low, high in row_ranges(edges, budget, edge_cost, node_cost):
                yield first + low, first + high

    def skips(self, needed: NeededNodes | None, level: int, low: int, high: int) -> bool:
        """Returns False: other ranks wait for the exchange of every range that was yielded."""
        return False

    def inputs(self, features: FeatureSource, memory_bytes: int, dtype: torch.dtype) -> Rows:
        """Returns the input rows of all nodes."""
        assert isinstance(features, ShardedSource)
        return PartInputs(features, self, dtype)

    def part_of(self, place: int) -> int:
        """Returns the part of the node at a place."""
        return self.owned.parts[int(np.searchsorted(self._starts, place, side="right")) - 1]

    def shared(self, rows: Rows) -> Rows:
        """Returns rows of these nodes as rows of all nodes."""
        return SharedRows(rows, self)

    def wanted(self, ascending: Array, low: int, high: int) -> tuple[Array, Array]:
        """Returns the positions of the nodes that are in a range, and their rows of it."""
        computed = self.node_ids(low, high)
        first, last = (np.searchsorted(ascending, computed, side) for side in ("left", "right"))
        counts = last - first  # a node may be wanted more than once
        rows = np.repeat(np.arange(len(computed)), counts)
        return np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(len(rows)), rows


class PartInputs(SourceRows):
    """Input rows of all nodes as a dtype, each at the rank that has its part; `gather` is collective."""

    features: ShardedSource

    def __init__(self, features: ShardedSource, nodes: PartNodes, dtype: torch.dtype):
        super().__init__(features, dtype)
        self.nodes = nodes

    def read(self, low: int, high: int) -> Tensor:
        """Returns float[high - low, width], the rows of a range of this rank's nodes; asks no other rank."""
        out = torch.empty((high - low, self.width), dtype=self.dtype)
        self.features.gather_own(self.nodes.node_ids(low, high), out.numpy())
        return out


class SharedRows:
    """Rows of all nodes, each at the rank that computed it; collective."""

    def __init__(self, rows: Rows, nodes: PartNodes):
        self.rows, self.nodes, self.width, self.dtype = rows, nodes, rows.width, rows.dtype
        self.exchange = Exchange(nodes.lane, self._serve, rows.width, numpy_dtype(rows.dtype).name)

    def gather(self, node_ids: Array, threads: int) -> Tensor:
        """Returns float[n, width], row i of node_ids[i]."""
        owned, places = self.nodes.owned, self.nodes.places[node_ids]
        ranks = owned.ranks_of(node_ids)
        out = torch.empty((len(node_ids), self.width), dtype=self.dtype)
        here, there = np.flatnonzero(ranks == owned.rank), np.flatnonzero(ranks != owned.rank)
        request = make_request(ranks[there], places[there], there, owned.world)
        fetched, found = self.exchange.fetch(request, None, Ledger())
        out.numpy()[request.places] = fetched[found]
        out[torch.from_numpy(here)] = self.rows.gather(places[here], threads)
        return out

    def read(self, low: int, high: int) -> Tensor:
        """Returns float[high - low, width], the rows of a range of this rank's nodes."""
        return self.rows.read(low, high)

    def _serve(self, numbers: Array, out: Array, ledger: Ledger) -> None:
        out[...] = self.rows.gather(numbers, 1).numpy()


def part_nodes(topology: Topology, features: ShardedSource) -> Callable[[Bounds], PartNodes]:
    """Returns the function that makes the nodes of this rank's parts for an evaluation."""
    return lambda bounds: PartNodes(topology, features.owned, features.exchange.lane, bounds.ends(topology))
