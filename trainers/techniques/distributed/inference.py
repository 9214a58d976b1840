"""Evaluation where every rank has the rows of its own parts (FastSample, section 3.3): each rank computes its own nodes.

Exact inference goes layer by layer, as in trainers/inference/exact.py. A rank computes a layer for the nodes of its parts, in ranges that
never cross a part, and fetches the input rows of a range that other ranks have by the exchange that training uses: features from their
shards, outputs of the layer before from where they were computed. So no rank ever holds the rows of all nodes, of any layer. The ranges are
those of the parts, so how sums of products round does not depend on the number of ranks, and with one part it is that of one process.

Ranks with fewer ranges than others go on with empty ones, since every exchange needs all ranks. Logits of the wanted nodes are gathered
at every rank; they are few numbers per node. Memory: that of exact inference for the nodes of a rank, 6 bytes per node of the graph for
places, and the fetched rows of one range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from kernels.sampling.epoch_plan import EpochPlan
from kernels.sampling.own_sampling import AnySampler
from kernels.types import Array, Stream, Topology
from trainers.batches.batch import attach_weights
from trainers.batches.send import send_blocks
from trainers.inference.exact import Bounds, exact_ranges, num_passes, row_ranges
from trainers.inference.windows import Rows, numpy_dtype
from trainers.models.masks import StepRandom
from trainers.models.own import Model, dtype_of
from trainers.models.precision import computing, widened
from trainers.ranks.group import Lane
from trainers.record.ledger import Ledger, Line
from trainers.rows.source import FeatureSource, RowIds
from trainers.techniques.distributed.exchange import Exchange, make_request
from trainers.techniques.distributed.sharded import Ownership, ShardedSource, own_nodes

LOGITS = Line("d2h", "logit")


class PartNodes:
    """The nodes of this rank's parts, part after part.

    Args:
        topology: the graph.
        owned: which rank has which node.
        lane: of the exchanges.
        ends: i64[N+1], where the edges of each node end at most; None = as the topology has them.
    """

    def __init__(self, topology: Topology, owned: Ownership, lane: Lane, ends: Array | None = None):
        self.topology, self.owned, self.lane = topology, owned, lane
        self.ends = topology.indptr if ends is None else ends
        lists = own_nodes(owned)
        self._ids = np.concatenate(lists).astype(topology.indices.dtype)
        self._starts = np.cumsum([0, *map(len, lists)])
        self.num_nodes = len(self._ids)
        # Where each node is among those of its rank: the nodes of a rank's parts, part after part.
        order = np.argsort(owned.part_of, kind="stable")
        by_rank = np.bincount(owned.ranks_of(np.arange(len(order))), minlength=owned.world)
        first = np.repeat(np.cumsum(by_rank) - by_rank, by_rank)
        self._place = np.empty(len(order), np.int32)
        self._place[order] = np.arange(len(order)) - first

    def node_ids(self, low: int, high: int) -> Array:
        """Returns ids[high - low], the nodes of a range."""
        return self._ids[low:high]

    def ranges(self, budget: int, edge_cost: int, node_cost: int) -> Iterator[tuple[int, int]]:
        """Yields ranges inside parts, then empty ones while other ranks have some."""
        found = list(self._own_ranges(budget, edge_cost, node_cost))
        most = self.lane.most(len(found))
        yield from found
        for _ in range(most - len(found)):
            yield self.num_nodes, self.num_nodes

    def _own_ranges(self, budget: int, edge_cost: int, node_cost: int) -> Iterator[tuple[int, int]]:
        indptr = np.asarray(self.ends)
        for first, last in zip(self._starts[:-1].tolist(), self._starts[1:].tolist(), strict=True):
            ids = self._ids[first:last]
            edges = np.concatenate([[0], np.cumsum(indptr[ids + 1] - indptr[ids])])
            for low, high in row_ranges(edges, budget, edge_cost, node_cost):
                yield first + low, first + high

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

    def split(self, node_ids: Array) -> tuple[Array, Array, Array]:
        """Returns the rank of each node, its place among that rank's nodes, and whether it is this rank's."""
        ranks = self.owned.ranks_of(node_ids)
        return ranks, self._place[node_ids], ranks == self.owned.rank


class PartInputs:
    """Input rows of all nodes, each at the rank that has its part.

    Args:
        features: this rank's rows and the exchange.
        nodes: which these are.
        dtype: type of the rows that are returned.
    """

    def __init__(self, features: ShardedSource, nodes: PartNodes, dtype: torch.dtype):
        self.features, self.nodes, self.width, self.dtype = features, nodes, features.width, dtype

    def gather(self, node_ids: Array, threads: int) -> Tensor:
        """Returns float[n, width], row i of node_ids[i]; collective."""
        out = torch.empty((len(node_ids), self.width), dtype=self.dtype)
        self.features.gather(RowIds(node_ids), out, Ledger())
        return out

    def read(self, low: int, high: int) -> Tensor:
        """Returns float[high - low, width], the rows of a range of this rank's nodes; asks no other rank."""
        out = torch.empty((high - low, self.width), dtype=self.dtype)
        self.features.gather_own(self.nodes.node_ids(low, high), out.numpy())
        return out


class SharedRows:
    """Rows of all nodes, each at the rank that computed it; collective.

    Args:
        rows: those of this rank's nodes.
        nodes: which these are.
    """

    def __init__(self, rows: Rows, nodes: PartNodes):
        self.rows, self.nodes, self.width, self.dtype = rows, nodes, rows.width, rows.dtype
        self.exchange = Exchange(nodes.lane, self._serve, rows.width, numpy_dtype(rows.dtype).name)

    def gather(self, node_ids: Array, threads: int) -> Tensor:
        """Returns float[n, width], row i of node_ids[i]."""
        ranks, places, mine = self.nodes.split(node_ids)
        out = torch.empty((len(node_ids), self.width), dtype=self.dtype)
        there = np.flatnonzero(~mine)
        request = make_request(ranks[there], places[there], there, self.nodes.owned.world)
        fetched, found = self.exchange.fetch(request, None, Ledger())
        out.numpy()[request.places] = fetched[found]
        here = np.flatnonzero(mine)
        out[torch.from_numpy(here)] = self.rows.gather(places[here], threads)
        return out

    def read(self, low: int, high: int) -> Tensor:
        """Returns float[high - low, width], the rows of a range of this rank's nodes."""
        return self.rows.read(low, high)

    def _serve(self, numbers: Array, out: Array) -> None:
        out[...] = self.rows.gather(numbers, 1).numpy()


def infer_exact_by_parts(
    model: Model, topology: Topology, features: ShardedSource, bounds: Bounds, node_ids: Array
) -> Tensor:
    """Computes the logits of nodes from all their neighbours, each at the rank that has it; collective.

    Args:
        model, topology, bounds: as in `infer_exact`.
        features: this rank's rows and the exchange.
        node_ids: ids[n] global, the same at all ranks.

    Returns:
        f32[n, num_classes] at every rank, in the order of `node_ids`.
    """
    lane, nodes = (
        features.exchange.lane,
        PartNodes(topology, features.owned, features.exchange.lane, bounds.ends(topology)),
    )
    order = np.argsort(node_ids, kind="stable")
    ascending, places, found = np.asarray(node_ids)[order], [], []
    bounds.progress.start("evaluate", num_passes(model) * nodes.num_nodes, "rows")
    for each in exact_ranges(model, topology, features, bounds, nodes):
        computed = nodes.node_ids(each.low, each.high)
        # Ids may be wanted more than once.
        first, last = (np.searchsorted(ascending, computed, side) for side in ("left", "right"))
        rows = np.repeat(np.arange(len(computed)), last - first)
        starts = np.repeat(first - np.cumsum(last - first) + (last - first), last - first)
        places.append(order[starts + np.arange(len(rows))])
        found.append(each.logits[torch.from_numpy(rows)])
    bounds.progress.done()
    return _collected(places, found, len(node_ids), lane)


def infer_sampled_by_parts(
    model: Model,
    topology: Topology,
    features: ShardedSource,
    bounds: Bounds,
    node_ids: Array,
    sampler: AnySampler,
    plan: EpochPlan,
) -> Tensor:
    """Computes the logits of nodes from sampled neighbours, batch b at rank b mod ranks; collective.

    Args:
        model, topology, features, bounds, node_ids: as in `infer_exact_by_parts`.
        sampler: draws on the evaluation stream.
        plan: batches of the places of the nodes.

    Returns:
        f32[n, num_classes] at every rank, in the order of `node_ids`.
    """
    assert plan.stream == Stream.EVAL
    lane, device, places, found = features.exchange.lane, bounds.device, [], []
    planned = list(plan.batches(0))
    own = planned[lane.rank :: lane.world]
    bounds.progress.start("evaluate", len(own), "batches")
    for turn in range(-(-len(planned) // lane.world)):
        if turn >= len(own):  # the others' rows go on being exchanged
            features.gather(RowIds(node_ids[:0]), torch.empty((0, features.width)), device.traffic)
            continue
        seeds = node_ids[own[turn].seeds]
        blocks = sampler.sample(own[turn].key, seeds, transpose="none")
        attach_weights(blocks, topology, model.edge_weight)
        with torch.no_grad(), device.evaluating(), computing(bounds.dtype, device.torch_device):
            x = torch.empty((blocks[0].num_src, features.width), dtype=dtype_of(model), device=device.torch_device)
            features.gather(RowIds(blocks[0].src_ids), x, device.traffic)
            out = widened(model(send_blocks(blocks, device, device.traffic), x, StepRandom(0, training=False)))
        found.append(device.fetch(out, LOGITS, device.traffic))
        places.append(own[turn].seeds)
        bounds.progress.advance(1)
    bounds.progress.done()
    return _collected(places, found, len(node_ids), lane)


def _collected(places: Sequence[Array], found: Sequence[Tensor], count: int, lane: Lane) -> Tensor:
    """Returns f32[count, C] of all ranks' rows, each at its place."""
    where = np.concatenate([*places, np.empty(0, np.int64)]).astype(np.int64)
    rows = torch.cat(list(found)).contiguous().numpy() if found else np.empty((0, 0), np.float32)
    sent = np.array([rows.shape[1], rows.itemsize], np.int64).tobytes() + where.tobytes() + rows.tobytes()
    logits = None
    for piece in lane.gather_any(sent):
        width, itemsize = np.frombuffer(piece, np.int64, 2).tolist()
        if width == 0:
            continue
        number = (len(piece) - 16) // (8 + width * itemsize)
        there = np.frombuffer(piece, np.int64, number, 16)
        values = np.frombuffer(piece, f"f{itemsize}", number * width, 16 + 8 * number).reshape(number, width)
        logits = np.empty((count, width), values.dtype) if logits is None else logits
        logits[there] = values
    assert logits is not None
    return torch.from_numpy(logits)
