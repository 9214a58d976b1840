"""Weighted sampling on a GPU: the bytes of `graphmill.kernels.sampling.weighted.WeightedSampler`.

Three launches per layer stand in the place of the uniform choice. A thread draws the positions of a destination by its alias table, until
there are enough or repeats were rejected for too long; a warp draws the missing positions of such rows from the masses that are left; a
thread takes the edges, and the shares of rows that are taken whole. Masses are added up by atomics on integers, so their order does not
matter.

The tables lie where the topology lies, on the device or in pinned host memory. Scratch: 8 bytes per edge of a layer, and MASS_BYTES for the
masses of rows, more if eight of the longest row need more.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.cuda.launch import BLOCK
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.alias import AliasTables
from graphmill.kernels.sampling.sample_cuda import Batch, CudaSampler, Edges
from graphmill.kernels.types import Topology

MASS_BYTES = 1 << 26
WARPS = BLOCK // 32


class CudaWeightedSampler(CudaSampler):
    """Samples blocks on a device, neighbours in proportion to weights; see `CudaSampler` for the rest.

    Args:
        tables: alias tables of the topology: `table` on the device or in pinned host memory, `support` on the device.
        fanouts: neighbours per node, from the seeds outwards; -1 takes all that have weight.
        longest: length of the topology's longest row.
    """

    SOURCE = "sampling/weighted"

    def __init__(
        self,
        topology: Topology,
        tables: AliasTables,
        fanouts: Sequence[int],
        *,
        seed: int,
        device: CudaDevice,
        longest: int,
        replace: bool = False,
    ):
        super().__init__(topology, fanouts, seed=seed, device=device, replace=replace)
        if tuple(tables.table.shape) != (topology.num_edges, 2):
            problem = (
                f"tables are [{', '.join(map(str, tables.table.shape))}], the graph has {topology.num_edges} edges"
            )
            raise InputError(problem, "give the tables of this graph")
        self.tables, self._longest = tables, max(1, longest)
        self._table = np.uint64(device.rows(tables.table, "table").pointer)

    def _count(self, most: int, fanout: int, layer_key: np.uint64, batch: Batch) -> Any:
        taken = self.device.empty((most,), np.int32)
        rows = self._indptr, self._at(self.tables.support), self._at(batch.nodes), self._at(batch.state)
        how = np.int32(fanout), np.int32(self._replace)
        self._launch("count_weighty", most, *rows, *how, np.int32(most), self._at(taken), source=self.SOURCE)
        return taken

    def _choose(self, most: int, fanout: int, layer_key: np.uint64, batch: Batch, edges: Edges) -> Any:
        device, support, space = self.device, self._at(self.tables.support), edges.reached.shape[0]
        found, chosen, state = device.empty((most,), np.int32), self._at(edges.scratch), self._at(batch.state)
        nodes, ends, how = self._at(batch.nodes), self._at(edges.ends), (np.int32(fanout), np.int32(self._replace))
        row = self._indptr, self._table, support, nodes, layer_key, *how, ends
        self._launch("draw_weighted", most, *row, chosen, self._at(found), state, source=self.SOURCE)
        if fanout > 0 and not self._replace and most:
            self._draw_rest((nodes, layer_key, ends), chosen, self._at(found), state)
        share, mass = device.empty((space,), np.float32), device.empty((space,), np.int64)
        made = *(self._at(each) for each in (edges.reached, edges.rows, edges.positions, share, self._map)), state
        rows = self._indptr, self._indices, self._count_nodes(), self._table, support, nodes, *how, batch.asked, ends
        self._launch("take_weighted", most, *rows, chosen, self._at(mass), *made, source=self.SOURCE)
        return share

    def _draw_rest(self, rows: Sequence[Any], chosen: Any, found: Any, state: Any) -> None:
        """Draws the positions that rejection left, by as many blocks as have space for the masses of a row per warp."""
        blocks = max(1, min(MASS_BYTES // (8 * self._longest * WARPS), 8 * self.device.num_multiprocessors))
        masses = self.device.empty((blocks * WARPS * self._longest,), np.int64)
        kernel = self.device.kernel(self.SOURCE, "draw_rest", self._defines)
        scratch = np.int64(self._longest), self._at(masses)
        kernel((blocks,), (BLOCK,), (self._indptr, self._table, *rows, *scratch, chosen, found, state))
