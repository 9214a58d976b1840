"""Random walks on a GPU: the bytes of `graphmill.kernels.sampling.walk.WalkSampler`.

A thread walks a path, a thread counts the visits of one visited node, a thread ranks the visits of a destination, and its sources get their
places when the running sums over the numbers of sources are known.

Work beside the walks: paths * length comparisons per visit, `fanout` looks at the visits per destination; made for hundreds of visits per
destination, not for tens of thousands. Scratch: `fanout` numbers and 4 bytes and an id per visit, per destination.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.sample_cuda import MOST_EDGES, TOO_MANY, Batch, CudaSampler, Edges
from graphmill.kernels.sampling.walk import Walks
from graphmill.kernels.types import Block, Topology


class CudaWalkSampler(CudaSampler):
    """Samples blocks on a device whose sources are the nodes that walks visit most; see `CudaSampler` for the rest.

    Args:
        fanouts: largest number of sources per node, from the seeds outwards; -1 takes all that were visited.
    """

    EDGES = False
    SOURCE = "sampling/walk"

    def __init__(self, topology: Topology, walks: Walks, fanouts: Sequence[int], *, seed: int, device: CudaDevice):
        super().__init__(topology, fanouts, seed=seed, device=device)
        self.walks = walks
        self._walked: Any = ()

    def waits(self, fanout: int) -> bool:
        """Returns False: a node has no more sources than visits."""
        return False

    def topology_bytes(self, blocks: Sequence[Block]) -> int:
        """Returns the bytes of the topology that sampling these blocks read: row ends of every path's start, and of every step."""
        row_ends, id_bytes, walks = 16, np.dtype(self._id_name).itemsize, self.walks
        path = row_ends + walks.length * (row_ends + id_bytes)
        return sum(block.num_dst * walks.paths * path for block in blocks)

    def _count(self, most: int, fanout: int, layer_key: np.uint64, batch: Batch) -> Any:
        device, walks, visited = self.device, self.walks, self.walks.paths * self.walks.length
        keep, state, nodes = self._keep(fanout), self._at(batch.state), self._at(batch.nodes)
        visits, counts = device.empty((most * visited,), self._id_name), device.empty((most * visited,), np.int32)
        order, taken = device.empty((most * keep,), np.int32), device.empty((most,), np.int32)
        graph = self._indptr, self._indices, self._count_nodes(), nodes, layer_key
        how = np.int32(walks.paths), np.int32(walks.length), np.uint64(walks.threshold)
        self._launch("walk", most * walks.paths, *graph, *how, self._at(visits), state, source=self.SOURCE)
        seen = nodes, self._at(visits), np.int32(visited), state, self._at(counts)
        self._launch("count_visits", most * visited, *seen, source=self.SOURCE)
        ranked = np.int32(visited), np.int32(keep), state, np.int32(most)
        made = self._at(counts), self._at(order), self._at(taken)
        self._launch("rank_visits", most, *ranked, *made, source=self.SOURCE)
        self._walked = visits, counts, order
        return taken

    def _choose(self, most: int, fanout: int, layer_key: np.uint64, batch: Batch, edges: Edges) -> Any:
        share, (visits, counts, order) = self.device.empty((edges.reached.shape[0],), np.float32), self._walked
        visited, self._walked = self.walks.paths * self.walks.length, ()
        found = self._at(visits), self._at(counts), self._at(order), np.int32(visited), np.int32(self._keep(fanout))
        made = self._at(edges.reached), self._at(edges.rows), self._at(share), self._at(self._map)
        state = self._at(batch.state)
        self._launch("take_visited", most, *found, batch.asked, self._at(edges.ends), *made, state, source=self.SOURCE)
        return share

    def _keep(self, fanout: int) -> int:
        visited = self.walks.paths * self.walks.length
        return visited if fanout < 0 else min(fanout, visited)

    def _space(self, most: int, fanout: int) -> int | None:
        space = most * self._keep(fanout)
        if space > MOST_EDGES:
            problem = f"a layer of up to {most:,} nodes with {self._keep(fanout)} sources each may have {space:,} edges"
            raise InputError(problem, TOO_MANY)
        return space
