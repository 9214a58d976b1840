"""One layer of neighbour sampling for any nodes, in global ids, by one machine for another that has no topology of its own.

If the topology is cut (FastSample, section 3.3, its baseline), the machine that has a node's in-edges draws its neighbours for the others.
Draws are keyed by batch, layer and node (kernels/rng.py), so they are those of `Sampler` on the whole topology, and the blocks that the
receiver builds of the replies have its bytes. Layers are sampled in two steps here, an edge list first, since the replies are edge lists.

`Renamer` is the second step at the receiver: global ids become local ones in the order of their first edge. NumPy, O(edges) without a sort,
with 8 bytes per node of scratch. Do not train with it: the fused sampler does both steps at once.
"""

from typing import Any

import numpy as np

from graphmill.kernels.errors import InputError
from graphmill.kernels.rng import key
from graphmill.kernels.sampling.sample import TwoStepSampler
from graphmill.kernels.types import Array, BatchKey, Block, Topology


class LayerSampler:
    """Draws neighbours of nodes whose in-edges are here.

    Args:
        topology: all nodes, with the in-edges of some; without edge weights and types.
        fanout: number of neighbours per node, -1 takes all.
        layer: index of the block that they are for, 0 for the one that consumes features.
        replace: whether to draw with replacement: a node with neighbours draws exactly `fanout`, repeats included.

    Raises:
        InputError: the topology has weights or types, or the fanout is out of range.
    """

    def __init__(self, topology: Topology, fanout: int, layer: int, *, seed: int, replace: bool = False):
        if topology.weights is not None or topology.edge_types is not None:
            raise InputError("the graph has edge weights or types", "use a scheme that keeps the whole topology")
        self.layer, self.seed = layer, seed
        self._sampler = TwoStepSampler(topology, (fanout,), seed=seed, replace=replace)

    def neighbours(self, batch: BatchKey, node_ids: Any) -> tuple[Array, Array]:
        """Returns i32[n], the number of neighbours drawn of each of distinct nodes, ids[n], and their ids, node after node; all global."""
        nodes = self._sampler.check_seeds(node_ids)
        # A sampler absorbs the number of its block after the batch, which is 0 for a single one; absorbing starts with an exclusive or.
        batch_key = key(self.seed, batch.stream, batch.epoch, batch.step) ^ self.layer
        src_ids, ((_, _, start, end, indices, *_),) = self._sampler._native.sample(batch_key, nodes, 0, False)
        return end - start, src_ids[indices]


class Renamer:
    """Turns edge lists of the layers of a batch into blocks, from the seeds downwards."""

    def __init__(self, num_nodes: int):
        self._local, self._first = np.full(num_nodes, -1, np.int32), np.empty(num_nodes, np.int32)
        self.nodes: Array = np.empty(0, np.int32)

    def begin(self, seeds: Array) -> None:
        """Names the seeds ids[b] of a batch, global and distinct."""
        self._local[self.nodes] = -1
        self.nodes = seeds
        self._local[seeds] = np.arange(len(seeds), dtype=np.int32)

    def block(self, counts: Array, sources: Array) -> Block:
        """Returns the block of the layer under all nodes that have a name, and names its new sources.

        Args:
            counts: i32[n], neighbours of each node.
            sources: ids[sum of counts] global.
        """
        new = sources[self._local[sources] < 0]
        # Written from the last to the first, so the place of the first edge of each stays.
        self._first[new[::-1]] = np.arange(len(new) - 1, -1, -1, dtype=np.int32)
        added, num_dst = new[self._first[new] == np.arange(len(new))], len(self.nodes)
        self._local[added] = np.arange(num_dst, num_dst + len(added), dtype=np.int32)
        self.nodes = np.concatenate([self.nodes, added])
        ends = np.cumsum(counts, dtype=np.int64)
        return Block(
            num_dst=num_dst,
            num_src=len(self.nodes),
            start=(ends - counts).astype(np.int32),
            end=ends.astype(np.int32),
            indices=self._local[sources],
            src_ids=self.nodes,
        )
