"""The nodes that exact inference of some nodes computes, layer by layer, and blocks of the wanted rows of a range.

The last layer is computed for the nodes that are asked for. A layer below is computed for the nodes that the layer above reads: the same
ones and all their in-neighbours. So the sets grow downwards, and each node's neighbours are walked once.

Ranges are cut as for all nodes, and matrix products keep their shapes: the rounding of a product may depend on its number of rows, and the
logits of a node are to be the same bits whatever nodes are asked for beside it. The work that is left out is that of ranges without a
wanted node, and in the others the input rows and edges of the nodes that are not wanted.

A layer's rows are kept for the nodes of its set alone (`NeededRows`), so they fit in memory where those of all nodes would not.

Memory: N / 4 bytes per layer and once more, and N bytes while the sets are made, for ranges of the nodes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import Array, BatchKey, Block, Stream
from graphmill.trainers.inference.windows import Rows

EDGE_BYTES = 64
"""Bytes of a walked edge: its local id and place in a block, its source, and the sampler's map."""

RANGE_WORDS = 1 << 14
"""Numbers of a set of bits whose nodes are listed at one time."""


@dataclass(frozen=True, kw_only=True)
class NeededNodes:
    """Sets of nodes, as bits."""

    # u64[ceil(N / 64)] each, node v is bit v mod 64 of number v / 64: sets[0] are the nodes whose features are read, sets[l + 1]
    # those that layer l computes.
    sets: tuple[Array, ...]
    # Number of nodes of each set.
    num_nodes: tuple[int, ...]
    # Number of in-edges of the nodes that each layer computes.
    num_edges: tuple[int, ...]

    def holds(self, level: int, node_ids: Array) -> Array:
        """Returns bool[n], whether each node of ids[n] is in the set of a level."""
        return (self.sets[level][node_ids >> 6] >> (node_ids & 63).astype(np.uint64) & np.uint64(1)).astype(bool)

    def flags(self, level: int, low: int, high: int) -> Array:
        """Returns bool[high - low], whether each node from low to high is in a set."""
        words = self.sets[level][low >> 6 : (high + 63) >> 6]
        return _unpacked(words)[low & 63 :][: high - low]

    def places(self, level: int, node_ids: Array) -> Array:
        """Returns i64[n], for each node the number of nodes with lower ids in a set."""
        word = node_ids >> 6
        lower = (np.uint64(1) << (node_ids & 63).astype(np.uint64)) - np.uint64(1)
        return self._before[level][word] + np.bitwise_count(self.sets[level][word] & lower)

    @cached_property
    def _before(self) -> tuple[Array, ...]:
        counts = (np.bitwise_count(words).astype(np.int64) for words in self.sets)
        return tuple(np.cumsum(each) - each for each in counts)


class NeededRows(Rows):
    """Rows of the nodes of a set alone, in the order of their ids; as many are held as the set has nodes."""

    def __init__(self, held: Any, needed: NeededNodes, level: int):
        self.held, self._needed, self._level = held, needed, level
        self.width, self.dtype, self.blocks = held.width, held.dtype, getattr(held, "blocks", None)

    @property
    def num_rows(self) -> int:
        """Number of nodes of the set."""
        return self._needed.num_nodes[self._level]

    def places(self, node_ids: Array) -> Array:
        """Returns i64[n], the row of each node; that of some other node for those that are not in the set."""
        return np.minimum(self._needed.places(self._level, node_ids), self.num_rows - 1)

    def write(self, low: int, rows: Tensor, first: int = 0) -> None:
        """Puts columns first, first + 1, ... of the rows of nodes low, low + 1, ...; those of other nodes are left out."""
        found, start = self._found(low, low + len(rows))
        self.held.write(start, rows if len(found) == len(rows) else rows[torch.from_numpy(found)], first)

    def gather(self, node_ids: Array, threads: int) -> Tensor:
        """Returns float[n, width], row i of node_ids[i]; rows of nodes that are not in the set mean nothing."""
        return self.held.gather(self.places(node_ids), threads)

    def read(self, low: int, high: int) -> Tensor:
        """Returns float[high - low, width], the rows of nodes low to high; zeros for nodes that are not in the set."""
        found, start = self._found(low, high)
        rows = self.held.read(start, start + len(found))
        return rows if len(found) == high - low else spread_rows(rows, found, high - low)

    def block(self, number: int) -> Tensor:
        """Returns a block of columns of all rows (`ColumnRows`)."""
        return self.held.block(number)

    def columns(self, first: int, last: int) -> Tensor:
        """Returns some columns of all rows."""
        return self.held.columns(first, last)

    def _found(self, low: int, high: int) -> tuple[Array, int]:
        """Returns the places in a range of nodes that are in the set, and the row of the first."""
        found = np.flatnonzero(self._needed.flags(self._level, low, high))
        return found, int(self._needed.places(self._level, low + found[:1])[0]) if len(found) else 0


def spread_rows(rows: Tensor, places: Array, count: int) -> Tensor:
    """Returns float[count, width] of zeros with rows at the places."""
    out = rows.new_zeros((count, rows.shape[1]))
    out[torch.from_numpy(places)] = rows
    return out


def find_needed(sampler: Sampler, ends: Array, wanted: Array, layers: int, memory_bytes: int) -> NeededNodes:
    """Returns the nodes that each layer computes for some nodes.

    Args:
        sampler: gives the neighbours that exact inference counts, one layer of them.
        ends: i64[N+1], upper bounds of the ends of each node's edges.
        wanted: ids[n], the nodes whose outputs of the last layer are asked for.
        memory_bytes: bound on the memory of the edges that are walked at once, but for those of a single node.
    """
    sets, counts, edge_counts = [], [], []
    for bits, count, edges in _levels(sampler, ends, wanted, layers, memory_bytes):
        sets.insert(0, bits)
        counts.insert(0, count)
        edge_counts.insert(0, edges)
    return NeededNodes(sets=tuple(sets), num_nodes=tuple(counts), num_edges=tuple(edge_counts[1:]))


def exact_levels(
    sampler: Sampler, ends: Array, wanted: Array, layers: int, memory_bytes: int
) -> Iterator[tuple[int, int]]:
    """Yields the nodes and their in-edges that each layer computes for exact inference of some nodes, from the last layer down.

    The graph is walked as far as the result is read. Arguments are those of `find_needed`.
    """
    num_nodes = len(ends) - 1
    if not pays(len(wanted), num_nodes):
        yield from [(num_nodes, int(ends[-1]))] * layers
        return
    for _, count, edges in islice(_levels(sampler, ends, wanted, layers, memory_bytes), layers):
        yield count, edges


def pays(num_wanted: int, num_nodes: int) -> bool:
    """Returns whether inference of some nodes skips the others; from half of the graph on the layers below need nearly all."""
    return 0 < num_wanted < num_nodes / 2


def _levels(
    sampler: Sampler, ends: Array, wanted: Array, layers: int, memory_bytes: int
) -> Iterator[tuple[Array, int, int]]:
    """Yields the nodes of each set from the last one down: their bits, their number, and the number of their in-edges.

    The first set, which no layer computes, comes last, with 0 edges. Arguments are those of `find_needed`.
    """
    num_nodes, most = len(ends) - 1, max(1, memory_bytes // EDGE_BYTES)
    marked, edges = np.zeros(num_nodes, bool), 0
    marked[wanted] = True
    bits = _packed(marked)
    walked = np.zeros_like(bits)
    for _ in range(layers):
        added = bits & ~walked
        edges += sum(int((ends[part + 1] - ends[part]).sum()) for part in _members(added))
        yield bits, int(np.count_nonzero(marked)), edges
        for part in _members(added):
            degrees = ends[part + 1] - ends[part]
            cuts = np.flatnonzero(np.diff(np.cumsum(degrees) // most, prepend=0))
            for seeds in np.split(part, cuts):
                if len(seeds):
                    (block,) = sampler.sample(BatchKey(Stream.EVAL, 0, 0), seeds, transpose="none")
                    marked[block.src_ids] = True
        walked, bits = bits, _packed(marked)
    yield bits, int(np.count_nonzero(marked)), 0


def _members(bits: Array) -> Iterator[Array]:
    """Yields i64[n], the nodes of a set of bits in ascending order, range by range."""
    for low in range(0, len(bits), RANGE_WORDS):
        found = np.flatnonzero(_unpacked(bits[low : low + RANGE_WORDS]))
        if len(found):
            yield 64 * low + found


def _packed(marked: Array) -> Array:
    """Returns u64[ceil(n / 64)], the bits of bool[n]."""
    packed = np.packbits(marked, bitorder="little")
    return np.pad(packed, (0, -len(packed) % 8)).view("<u8")


def _unpacked(words: Array) -> Array:
    """Returns bool[64 n], the bits of u64[n]."""
    return np.unpackbits(words.view(np.uint8), bitorder="little").view(bool)


def spread(block: Block, seeds: Array, wanted: Array) -> tuple[Block, Array]:
    """Returns a block of all nodes of a range in which the unwanted ones have no edges, and the place of each source of the small block.

    Args:
        block: the block of the wanted nodes, unpruned.
        seeds: ids[n], the nodes of the range; they are the first sources of the result. An unwanted one that a wanted one reads is a
            source once more.
        wanted: bool[n].

    Returns:
        the block, and i64[block.num_src], the places in its sources.
    """
    kept, count = np.flatnonzero(wanted), len(seeds)
    places = np.concatenate([kept, count + np.arange(block.num_src - len(kept))])
    end = np.zeros(count, np.int32)
    end[kept] = block.end
    end = np.maximum.accumulate(end) if count else end
    start = np.zeros(count, np.int32)
    start[1:] = end[:-1]
    return replace(
        block,
        num_dst=count,
        num_src=count + block.num_src - len(kept),
        start=start,
        end=end,
        indices=places[block.indices].astype(np.int32),
        src_ids=np.concatenate([seeds, block.src_ids[len(kept) :]]),
    ), places
