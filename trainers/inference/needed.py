"""The nodes that exact inference of some nodes computes, layer by layer, and blocks of the wanted rows of a range.

The last layer is computed for the nodes that are asked for. A layer below is computed for the nodes that the layer above reads: the same
ones and all their in-neighbours. So the sets grow downwards, and each node's neighbours are walked once.

Ranges are cut as for all nodes, and matrix products keep their shapes: the rounding of a product may depend on its number of rows, and the
logits of a node are to be the same bits whatever nodes are asked for beside it. The work that is left out is that of ranges without a
wanted node, and in the others the input rows and edges of the nodes that are not wanted.

Memory: N / 8 bytes per layer and once more, and N bytes while the sets are made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kernels.sampling.sample import Sampler
from kernels.types import Array, BatchKey, Block, Stream

EDGE_BYTES = 64
"""Bytes of a walked edge: its local id and place in a block, its source, and the sampler's map."""


@dataclass(frozen=True, kw_only=True)
class NeededNodes:
    """Sets of nodes, as bits.

    Attributes:
        sets: u8[ceil(N / 8)] each: sets[0] are the nodes whose features are read, sets[l + 1] those that layer l computes.
        num_nodes: number of nodes of each set.
        num_edges: number of in-edges of the nodes that each layer computes.
    """

    sets: tuple[Array, ...]
    num_nodes: tuple[int, ...]
    num_edges: tuple[int, ...]

    def holds(self, level: int, node_ids: Array) -> Array:
        """Returns bool[n], whether each node is in a set.

        Args:
            level: number of the set.
            node_ids: ids[n], global.
        """
        return (self.sets[level][node_ids >> 3] >> (7 - (node_ids & 7)).astype(np.uint8) & 1).astype(bool)


def find_needed(sampler: Sampler, ends: Array, wanted: Array, layers: int, memory_bytes: int) -> NeededNodes:
    """Returns the nodes that each layer computes for some nodes.

    Args:
        sampler: gives the neighbours that exact inference counts, one layer of them.
        ends: i64[N+1], upper bounds of the ends of each node's edges.
        wanted: ids[n], the nodes whose outputs of the last layer are asked for.
        layers: number of layers.
        memory_bytes: bound on the memory of the edges that are walked at once, but for those of a single node.
    """
    num_nodes, most = len(ends) - 1, max(1, memory_bytes // EDGE_BYTES)
    marked = np.zeros(num_nodes, bool)
    marked[wanted] = True
    frontier, edges = np.flatnonzero(marked), 0
    sets, counts, edge_counts = [np.packbits(marked)], [len(frontier)], []
    for _ in range(layers):
        degrees = (ends[frontier + 1] - ends[frontier]).astype(np.int64)
        edges += int(degrees.sum())
        cuts = np.flatnonzero(np.diff(np.cumsum(degrees) // most, prepend=0)) if len(frontier) else []
        found = []
        for part in np.split(frontier, cuts):
            if not len(part):
                continue
            (block,) = sampler.sample(BatchKey(Stream.EVAL, 0, 0), part, transpose="none")
            new = block.src_ids[~marked[block.src_ids]]
            marked[new] = True
            found.append(new)
        frontier = np.sort(np.concatenate(found)) if found else frontier[:0]
        sets.insert(0, np.packbits(marked))
        counts.insert(0, counts[0] + len(frontier))
        edge_counts.insert(0, edges)
    return NeededNodes(sets=tuple(sets), num_nodes=tuple(counts), num_edges=tuple(edge_counts))


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
