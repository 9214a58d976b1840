"""Fused neighbour sampling on a GPU: the bytes of `graphmill.kernels.sampling.sample.Sampler`, without a host round trip inside a batch.

The topology lies on the device, or in pinned host memory that the device reads over the bus (UVA). A thread chooses the edges of one
destination by Floyd's algorithm, O(k log k) for k edges however many the row has, and reads only those. The graph is never changed.

Local ids have the order in which nodes are first reached, as on the CPU. Each edge offers its number to its source's entry of a map, where
the least one stays; running sums over the edges that stayed give the ids. Sizes of a layer stay on the device: arrays have space for
`fanout` edges per row, and are cut when the sizes of all layers come at the end, in one download, the one wait of a batch. A fanout of -1
needs one more, and the layers below it have space for its actual size. A cut that leaves less than half is a copy, so that a batch which
waits holds at most about twice its bytes.

Without such a fanout the launches of all layers are recorded and replayed by one call (recorded.py), if the sampler is asked to do so; the
arrays stay then, and a batch is a copy.

Memory that stays: 8 bytes per node for the map; of a sampler that records, 40 bytes per edge of the space of a batch. Work: O(space of the
layer), 40 bytes per edge of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphmill.kernels.arrays import dtype_name
from graphmill.kernels.blocks.transpose_cuda import transpose_cuda
from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.cuda.launch import ID_TYPES, launch
from graphmill.kernels.errors import InputError
from graphmill.kernels.rng import absorb, key
from graphmill.kernels.sampling.recorded import PIECE_BYTES, Recordings, copied
from graphmill.kernels.sampling.sample import Transposes, as_fanouts, seeds_of
from graphmill.kernels.types import Array, BatchKey, Block, Topology, Traffic

ENTRY_BYTES = 8
"""Bytes of an alias table per edge."""
LAST_STAMP = 2**32 - 2
SIZES = 5
"""Number of values about a layer at its end: destinations, edges, nodes, the first fault, entries of alias tables that were read so far."""
STATE = SIZES + 1
"""Number of values about a batch while it is sampled: the above, and the edges of a layer whose number only the graph knows."""
WORD, KEYS = 8, 2
"""Bytes of a number of a request, and the numbers before the keys of its layers: its stamp and how many seeds it has."""
LAYER_ARRAYS = 6
"""Number of arrays of a layer."""
WAIT_BYTES = 8
"""Bytes downloaded while a layer is sampled whose number of edges only the graph knows."""
MOST_EDGES = 2**31 - 1
TOO_MANY = "lower batch_size or fanouts: local ids are 32 bits wide"
FAULTS = {
    1: (
        "the edge at position {} of the topology has a relation without a fan-out",
        "give one number for each relation of the graph",
    ),
    2: (
        "the alias table of node {} does not fit its row",
        "run graphmill verify on the sampling tables, then build them again",
    ),
    3: ("position {} of the topology names no node of the graph", "build the graph anew"),
}
"""Kind of fault -> the problem at a place, and the remedy."""


@dataclass
class _Layer:
    """Arrays of a layer with space for more than it has; without edges' places or shares, and cut without rows, these are None."""

    starts: Any
    ends: Any
    local_ids: Any
    rows: Any
    positions: Any
    share: Any = None


@dataclass
class Batch:
    """State on the device that the launches of a batch share.

    Attributes:
        asked: address of the request: u64 stamp, number of seeds, key of each layer; then the seeds.
        nodes: ids[most], the nodes that have a local id so far come first; grows when a layer's number of edges is downloaded.
        state: i64[STATE]; kernels/cuda/sampling/layer.cuh lists its values.
    """

    asked: np.uint64
    nodes: Any
    state: Any


@dataclass
class UncutBatch:
    """A batch as it was drawn, its arrays not cut yet.

    Attributes:
        layers: from the seeds on.
        nodes: ids[most]; sizes: i64[L, SIZES].
    """

    layers: list[_Layer]
    nodes: Any
    sizes: Any


@dataclass(frozen=True)
class Edges:
    """Arrays that receive the edges of a layer.

    Attributes:
        ends: i32[most], running sums of the edges of each destination.
        scratch: u32[space]; reached: ids[space], sources; rows: i32[space], destinations.
        positions: i64[space], places in the topology, or None.
    """

    ends: Any
    scratch: Any
    reached: Any
    rows: Any
    positions: Any


class CudaSampler:
    """Samples the blocks of mini-batches on a device; one batch at a time.

    `table_reads`: entries of alias tables that the last batch read; 0 if neighbours are drawn without them.

    Args:
        topology: indptr i64[N+1] and indices ids[E] on the device or in pinned host memory; weights and edge types as well, if it has them.
        fanouts: neighbours per node, from the seeds outwards; -1 takes all.

    `records`: whether launches are recorded and replayed. The batches of one sampler then join one another.
    """

    EDGES = True
    """Whether an edge of a block is one of the graph, with its weight and type."""

    def __init__(
        self, topology: Topology, fanouts: Sequence[int], *, seed: int, device: CudaDevice, replace: bool = False
    ):
        self.table_reads = 0
        self.topology, self.fanouts, self.seed, self.device = topology, as_fanouts(fanouts), seed, device
        self._id_name = dtype_name(topology.indices.dtype)
        self._defines = {"ID": ID_TYPES[self._id_name], "REPLACE": str(int(replace))}
        self._replace = replace
        self._indptr, self._indices = (
            np.uint64(device.rows(array.reshape(1, -1), what).pointer)
            for array, what in ((topology.indptr, "indptr"), (topology.indices, "indices"))
        )
        self._map, self._stamp = device.empty((topology.num_nodes,), np.int64), 0
        self.records, self._pieces = False, 0
        self._recordings = Recordings(device, self._request_bytes, self._draw)

    def sample(self, batch: BatchKey, seeds: Any, *, transpose: Transposes = "hidden") -> tuple[Block, ...]:
        """Samples the blocks under the seeds; see `graphmill.kernels.sampling.sample.Sampler.sample`.

        Args:
            seeds: ids[b] global, in NumPy, each once.

        Returns:
            One Block per fanout, all arrays on the device.

        Raises:
            InputError: a seed or a neighbour is not a node of the graph, a seed is repeated, a row's table of weights does not fit it, or a
                block could have 2^31 edges.
        """
        seeds = self._check_seeds(seeds)
        request = self._request(batch, seeds)
        records = self.records and len(seeds) > 0 and not any(map(self.waits, self.fanouts))
        recording = self._recordings.of(len(seeds)) if records else None
        drawn = recording(request) if recording else self._draw(self.device.upload(request, waits=False), len(seeds))
        found = np.asarray(self.device.download(drawn.sizes))
        self.table_reads, self._pieces = int(found[-1][4]), 0
        fault = int(found[-1][3])
        if fault >= 0:
            problem, remedy = FAULTS[fault & 3]
            raise InputError(problem.format(fault >> 2), remedy)
        # Copied as well if it was launched piece by piece: what is booked does not tell which batch was a sampler's first.
        return self._cut(self._copied(drawn, found, transpose) if records else drawn, found, transpose)

    def _request(self, batch: BatchKey, seeds: Array) -> Array:
        """Returns u8[n], what a batch asks for, as the launches read it."""
        num_layers, batch_key = len(self.fanouts), key(self.seed, batch.stream, batch.epoch, batch.step)
        keys = [absorb(batch_key, num_layers - 1 - place) for place in range(num_layers)]
        head = np.array([int(self._next_stamp()), len(seeds), *keys], np.uint64)
        return np.concatenate([head.view(np.uint8), np.ascontiguousarray(seeds).view(np.uint8)])

    def _request_bytes(self, num_seeds: int) -> int:
        return WORD * (KEYS + len(self.fanouts)) + num_seeds * np.dtype(self._id_name).itemsize

    def _draw(self, request: Any, most: int) -> UncutBatch:
        """Launches the sampling of a batch of at most `most` seeds, by its request on the device."""
        device, num_layers, asked = self.device, len(self.fanouts), self._at(request)
        space = self._space_of_nodes(most, self.fanouts)
        nodes, state = device.empty((space,), self._id_name), device.empty((STATE,), np.int64)
        self._launch("begin", 1, self._at(state), asked)
        seeds = np.uint64(int(asked) + WORD * (KEYS + num_layers))
        self._launch("name_seeds", most, seeds, asked, self._at(self._map), self._at(nodes))
        sizes, drawing = device.empty((num_layers, SIZES), np.int64), Batch(asked, nodes, state)
        made = []
        for place in range(num_layers):
            layer_key = np.uint64(int(asked) + WORD * (KEYS + place))
            layer = self._layer(most, self.fanouts[place:], layer_key, drawing, sizes[place])
            made.append(layer)
            most = min(most + layer.local_ids.shape[0], self.topology.num_nodes)
        return UncutBatch(made, drawing.nodes, sizes)

    def traffic(self, seeds: Array) -> Traffic:
        """Returns the bytes that sampling a batch, the last one, moved, besides a topology that is read over the bus."""
        fetched = WORD * SIZES * len(self.fanouts) + WAIT_BYTES * sum(map(self.waits, self.fanouts))
        sent = self._request_bytes(len(seeds)) + PIECE_BYTES * self._pieces
        return Traffic(sent=sent, fetched=fetched, sends=2 if self._pieces else 1, fetches=1)

    def waits(self, fanout: int) -> bool:
        """Returns whether a layer's number of edges is downloaded while it is sampled, since only the graph knows it."""
        return fanout < 0

    def topology_bytes(self, blocks: Sequence[Block]) -> int:
        """Returns the bytes of the topology and its tables that sampling these blocks, the last ones, read."""
        row_ends, id_bytes = 16, np.dtype(self._id_name).itemsize
        edges = sum(row_ends * block.num_dst + len(block.indices) * id_bytes for block in blocks)
        return edges + ENTRY_BYTES * self.table_reads

    def _count(self, most: int, fanout: int, layer_key: np.uint64, batch: Batch) -> Any:
        """Returns i32[most]: number of edges of each destination, 0 behind the last one."""
        taken = self.device.empty((most,), np.int32)
        rows = self._indptr, self._at(batch.nodes), self._at(batch.state)
        self._launch("count", most, *rows, np.int32(fanout), np.int32(most), self._at(taken))
        return taken

    def _choose(self, most: int, fanout: int, layer_key: np.uint64, batch: Batch, edges: Edges) -> Any:
        """Fills the edges; returns f32[space], their shares, if they have shares of their own."""
        reached = self._at(edges.reached), self._at(edges.rows), self._at(edges.positions)
        graph = self._indptr, self._indices, self._count_nodes(), self._at(batch.nodes)
        how = layer_key, np.int32(fanout), batch.asked, self._at(edges.ends), self._at(edges.scratch)
        self._launch("choose", most, *graph, *how, *reached, self._at(self._map), self._at(batch.state))

    def _layer(self, most: int, fanouts: Sequence[int], layer_key: np.uint64, batch: Batch, sizes: Any) -> _Layer:
        """Samples one layer, of `most` destinations at most; fanouts: its own, and those of the layers below."""
        device, topology, state, asked, fanout = self.device, self.topology, batch.state, batch.asked, fanouts[0]
        wants = self.EDGES and (topology.weights is not None or topology.edge_types is not None)
        ends = device.running_sums(self._count(most, fanout, layer_key, batch))
        space = self._space(most, fanout)
        if space is None:
            space = int(device.download(state[SIZES:STATE])[0]) if most else 0
            if space > MOST_EDGES:
                problem = f"a layer takes all {space:,} neighbours of up to {most:,} nodes"
                raise InputError(problem, TOO_MANY)
            self._grow_nodes(batch, most, min(most + space, topology.num_nodes), fanouts[1:])
        self._launch("open_layer", 1, self._at(ends), np.int32(most), self._at(state))
        reached, of_row = device.empty((space,), self._id_name), device.empty((space,), np.int32)
        positions = device.empty((space,), np.int64) if wants else None
        scratch = device.empty((space,), np.int32)
        share = self._choose(most, fanout, layer_key, batch, Edges(ends, scratch, reached, of_row, positions))
        fresh, entries = device.empty((space,), np.int32), (asked, self._at(self._map), self._at(state))
        self._launch("find_new", space, self._at(reached), *entries, np.int32(space), self._at(fresh))
        ranks = device.running_sums(fresh)
        named = self._at(state), self._at(self._map), self._at(batch.nodes)
        self._launch("name_new", space, self._at(reached), self._at(fresh), self._at(ranks), asked, *named)
        # The ranks are not needed any more once the ids are known; the sizes need the last of them.
        local_ids = scratch
        self._launch("name_edges", space, self._at(reached), self._at(self._map), self._at(state), self._at(local_ids))
        self._launch("close_layer", 1, self._at(ranks), np.int32(space), self._at(state), self._at(sizes))
        starts = device.empty((most,), np.int32)
        self._launch("shift", most, self._at(ends), np.int32(most), self._at(starts))
        return _Layer(starts, ends, local_ids, of_row, positions, share)

    def _copied(self, drawn: UncutBatch, sizes: Any, transpose: Transposes) -> UncutBatch:
        """Returns the arrays of a batch, cut to its sizes, in memory of their own."""
        pieces: list[tuple[Any, int]] = [(drawn.nodes, int(sizes[-1][2]))]
        for number, layer in enumerate(drawn.layers):
            num_dst, num_edges = (int(size) for size in sizes[number][:2])
            rows = layer.rows if self._transposed(number, transpose) else None
            pieces += [(layer.starts, num_dst), (layer.ends, num_dst)]
            pieces += [(each, num_edges) for each in (layer.local_ids, rows, layer.positions, layer.share)]
        given = [piece for piece in pieces if piece[0] is not None]
        self._pieces = len(given)
        made = iter(copied(given, self.device, self._launch))
        nodes, *arrays = (None if array is None else next(made) for array, _ in pieces)
        layers = [_Layer(*arrays[place : place + LAYER_ARRAYS]) for place in range(0, len(arrays), LAYER_ARRAYS)]
        return UncutBatch(layers, nodes, drawn.sizes)

    def _transposed(self, number: int, transpose: Transposes) -> bool:
        """Returns whether the block of a layer, by its number from the seeds on, gets a transpose."""
        return transpose == "all" or (transpose == "hidden" and number < len(self.fanouts) - 1)

    def _cut(self, drawn: UncutBatch, sizes: Any, transpose: Transposes) -> tuple[Block, ...]:
        """Returns the blocks, their arrays cut to about their contents."""
        blocks, nodes = [], self._first(drawn.nodes, int(sizes[-1][2]))
        for number, layer in enumerate(drawn.layers):
            num_dst, num_edges, num_src = (int(size) for size in sizes[number][:3])
            graph, place = self.topology, None if layer.positions is None else layer.positions[:num_edges]
            block = Block(
                num_dst=num_dst,
                num_src=num_src,
                start=self._first(layer.starts, num_dst),
                end=self._first(layer.ends, num_dst),
                indices=self._first(layer.local_ids, num_edges),
                src_ids=nodes[:num_src],
                weight=None if place is None or graph.weights is None else graph.weights[place],
                share=None if layer.share is None else self._first(layer.share, num_edges),
                edge_type=None if place is None or graph.edge_types is None else graph.edge_types[place],
            )
            if self._transposed(number, transpose):
                block = transpose_cuda(block, self.device, layer.rows[:num_edges])
            blocks.insert(0, block)
        return tuple(blocks)

    def _first(self, array: Any, count: int) -> Any:
        """Returns the first elements of an array; in memory of their own if they are less than half of it."""
        if 2 * count >= len(array):
            return array[:count]
        return self.device.copy(array[:count])

    def _space_of_nodes(self, most: int, fanouts: Sequence[int]) -> int:
        """Returns the most nodes that layers make of `most`, up to the first layer whose size only the graph knows; at least 1."""
        for fanout in fanouts:
            space = self._space(most, fanout)
            if space is None:
                break
            most = min(most + space, self.topology.num_nodes)
        return max(1, most)

    def _grow_nodes(self, batch: Batch, num_nodes: int, most: int, fanouts: Sequence[int]) -> None:
        """Makes space for the nodes of a layer, `most` of them, and of those below; the first `num_nodes` are kept."""
        space, before = self._space_of_nodes(most, fanouts), batch.nodes
        if space > len(before):
            batch.nodes = self.device.empty((space,), self._id_name)
            batch.nodes[:num_nodes] = before[:num_nodes]

    def _space(self, most: int, fanout: int) -> int | None:
        """Returns the most edges of a layer of `most` destinations, None if only the graph knows."""
        if fanout < 0:
            return None
        space = most * fanout if self._replace else min(most * fanout, self.topology.num_edges)
        if space > MOST_EDGES:
            problem = f"a layer of up to {most:,} nodes with {fanout} neighbours each may have {space:,} edges"
            raise InputError(problem, TOO_MANY)
        return space

    def _check_seeds(self, seeds: Any) -> Array:
        """Returns the seeds in the topology's id type; a repeated one would have no place in arrays made for distinct nodes."""
        seeds = seeds_of(seeds, self.topology.num_nodes)
        ordered = np.sort(seeds)
        if (ordered[1:] == ordered[:-1]).any():
            again = np.ones(len(seeds), bool)
            again[np.unique(seeds, return_index=True)[1]] = False
            place = int(np.flatnonzero(again)[0])
            raise InputError(f"seed at position {place} is repeated: {seeds[place]}", "give each seed once")
        return seeds.astype(self._id_name, copy=False)

    def _next_stamp(self) -> np.uint64:
        """Returns a stamp below all before it; begins anew, with a fresh map, when there are none left."""
        if self._stamp == 0:
            self._launch("fill", self.topology.num_nodes, self._at(self._map), self._count_nodes())
            self._stamp = LAST_STAMP + 1
        self._stamp -= 1
        return np.uint64(self._stamp)

    def _count_nodes(self) -> np.int64:
        return np.int64(self.topology.num_nodes)

    def _at(self, array: Any) -> np.uint64:
        return np.uint64(0) if array is None or 0 in array.shape else np.uint64(self.device.pointer(array, "an array"))

    def _launch(self, name: str, threads: int, *arguments: Any, source: str = "sampling/sample") -> None:
        if threads:
            launch(self.device, source, name, threads, arguments, self._defines)
