"""One layer of neighbour sampling for any nodes whose rows are at hand, and blocks of what was drawn elsewhere or before.

`Sampler` draws a batch from the whole topology at once. If a machine has the rows of some nodes alone (FastSample, section 3.3, its
baseline), or reads them range by range (assets/sampling/sequential.py), it draws layer by layer: `LayerSampler` returns the neighbours of
any nodes in global ids, and `Renamer` makes the blocks of a batch of them. Draws are keyed by batch, layer and node (kernels/rng.py), so
the blocks have the bytes of those of `Sampler` on the whole topology, in whatever order rows are asked for.

Cost: O(edges) without a sort. Memory of a Renamer: a hashed map of 16 to 32 bytes per source of the largest batch and an id for each; while
it names a layer 8 bytes and an id per edge. Do not train with it: the fused sampler does both steps at once.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from graphmill.kernels import _native
from graphmill.kernels.arrays import as_ids
from graphmill.kernels.errors import InputError
from graphmill.kernels.ranges import node_ranges
from graphmill.kernels.rng import key
from graphmill.kernels.sampling.relations import Fanout, most_of_row
from graphmill.kernels.types import Array, BatchKey, Block, Topology


class TopologyRows(NamedTuple):
    """The rows of consecutive nodes.

    Attributes:
        indptr: i64[n + 1], first edge of each row and the end of the last, counted over the whole graph.
        indices: ids[m], global in-neighbours: edges first_edge to first_edge + m - 1 of the graph. What no asked row has may be anything.
        num_nodes: number of nodes of the whole graph.
        first_node, first_edge: node of the first row, and edge of the first index.
        edge_types: u8[m], relations of the edges, for fan-outs per relation; else None.
        table: u32[m, 2], alias tables of the edges, if they are drawn by weight; else None.
        support: i32[n], number of neighbours with weight of each node; None if all have.
    """

    indptr: Array
    indices: Array
    num_nodes: int
    first_node: int = 0
    first_edge: int = 0
    edge_types: Array | None = None
    table: Array | None = None
    support: Array | None = None


class DrawnRows(NamedTuple):
    """The neighbours drawn of some nodes, node after node.

    Attributes:
        counts: i32[n], number of neighbours of each node.
        sources: ids[sum of counts], global.
        position: i64[sum of counts], place of each edge in the graph; None unless asked for.
        share: f32[sum of counts], share of each edge in the mean of its row, if edges are drawn by weight; else None.
    """

    counts: Array
    sources: Array
    position: Array | None = None
    share: Array | None = None


def rows_in_order(topology: Topology, table: Array | None = None) -> Iterator[TopologyRows]:
    """Yields the rows of all nodes once, in order.

    Args:
        table: u32[E, 2], alias tables of the edges, or None.
    """
    for low, high in node_ranges(topology.num_nodes):
        ends = np.asarray(topology.indptr[low : high + 1])
        edges = slice(int(ends[0]), int(ends[-1]))
        tables = None if table is None else table[edges]
        yield TopologyRows(ends, topology.indices[edges], topology.num_nodes, low, edges.start, table=tables)


def unweighted_rows(topology: Topology) -> TopologyRows:
    """Returns all rows of a topology; raises InputError if it has edge weights or types."""
    if topology.weights is not None or topology.edge_types is not None:
        raise InputError("the graph has edge weights or types", "use a scheme that keeps the whole topology")
    return TopologyRows(topology.indptr, topology.indices, topology.num_nodes)


class LayerSampler:
    """Draws the neighbours of one layer.

    Args:
        fanout: number of neighbours per node, or of each relation; -1 takes all.
        layer: index of the block that they are for, 0 for the one that consumes features.
        replace: whether to draw with replacement: a node with neighbours draws exactly `fanout`, repeats included.
    """

    def __init__(self, fanout: Fanout, layer: int, *, seed: int, replace: bool = False):
        self.fanout, self.layer, self.seed, self.replace = fanout, layer, seed, replace

    def draw(self, rows: TopologyRows, batch: BatchKey, node_ids: Array, *, positions: bool = False) -> DrawnRows:
        """Returns the neighbours of nodes ids[n], each of which has its row among `rows`.

        Args:
            positions: whether the places of edges in the graph are returned.

        Raises:
            InputError: a node's row is not among the rows, or the rows are not sound.
        """
        by_relation = [] if isinstance(self.fanout, int) else list(self.fanout)
        indptr, indices, *arrays = [
            None if each is None else np.require(each, requirements=["C", "A"])
            for each in (rows.indptr, rows.indices, rows.edge_types, rows.table, rows.support)
        ]
        place = rows.first_node, rows.first_edge, rows.num_nodes
        nodes = np.ascontiguousarray(as_ids(node_ids, "node_ids"), rows.indices.dtype)
        layer_key = key(self.seed, batch.stream, batch.epoch, batch.step, self.layer)
        how = layer_key, most_of_row(self.fanout), by_relation, self.replace, positions
        given: Any = indptr, indices, place, *arrays, nodes, *how
        return DrawnRows(*_native.draw_rows(*given))


class Renamer:
    """Turns the drawn neighbours of the layers of a batch into blocks, from the seeds downwards; one thread uses it at a time.

    Args:
        num_nodes: number of nodes of the graph.
        dtype: type of its node ids.
    """

    def __init__(self, num_nodes: int, dtype: np.dtype):
        self.dtype = np.dtype(dtype)
        self._native = (_native.Renamer32 if self.dtype == np.int32 else _native.Renamer64)(num_nodes)

    @property
    def nodes(self) -> Array:
        """ids[n], all nodes that have a local id, in its order."""
        return self._native.nodes()

    def begin(self, seeds: Array) -> None:
        """Names the seeds ids[b] of a batch, global and distinct."""
        self._native.begin(np.ascontiguousarray(seeds, self.dtype))

    def block(self, counts: Array, sources: Array, order: Array | None = None) -> tuple[Block, Array]:
        """Returns the block of the layer under all nodes that have a name, whose new sources get names, and the order of its edges.

        Args:
            counts: i32[n], neighbours of each node.
            sources: ids[sum of counts] global.
            order: i64[n], the local id of each node that counts and sources are of; None if these are in the order of local ids.

        Returns:
            The block, and i64[edges], the place of each of its edges among `sources`.

        Raises:
            InputError: counts, sources and order do not fit each other, or the block would need local ids beyond int32.
        """
        end = np.empty(len(counts), np.int32)
        indices, places = self._native.name(order, counts, np.ascontiguousarray(sources, self.dtype), end)
        src_ids, start = self.nodes, np.zeros(len(end), np.int32)
        start[1:] = end[:-1]
        sizes: Any = {"num_dst": len(end), "num_src": len(src_ids)}
        return Block(**sizes, start=start, end=end, indices=indices, src_ids=src_ids), places
