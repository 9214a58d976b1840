"""Fan-outs per relation on a GPU: the bytes of `graphmill.kernels.sampling.sample.Sampler`; kernels/sampling/relations.py has the rule.

A thread goes through the runs of a destination's row, whose ends it finds by binary search in the relations. The rest is as for one number
per layer (kernels/sampling/sample_cuda.py). A layer in which a relation has the number -1 waits for its number of edges, as one of -1 does.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.relations import Fanout, layer_fanouts, most_of_row
from graphmill.kernels.sampling.sample_cuda import Batch, CudaSampler, Edges
from graphmill.kernels.types import Topology


class RowFanout(int):
    """The most neighbours of a row, -1 for all; `numbers` are those per relation, i32[R] on the device, or None for one number."""

    numbers: Any = None


class CudaRelationSampler(CudaSampler):
    """Samples blocks on a device with fan-outs per relation, see `CudaSampler`; edge_types, u8[E], are there or in pinned host memory."""

    SOURCE = "sampling/relations"

    def __init__(
        self,
        topology: Topology,
        fanouts: Sequence[int | Sequence[int]],
        *,
        seed: int,
        device: CudaDevice,
        replace: bool = False,
    ):
        layers = layer_fanouts(fanouts)
        super().__init__(topology, [-1 for _ in layers], seed=seed, device=device, replace=replace)
        if topology.edge_types is None:
            raise InputError("fanouts per relation, but the edges have no relations", "give one number per layer")
        self._types = np.uint64(device.rows(topology.edge_types.reshape(1, -1), "edge_types").pointer)
        self.fanouts = tuple(self._sent(fanout) for fanout in layers)

    def _sent(self, fanout: Fanout) -> RowFanout:
        sent = RowFanout(most_of_row(fanout))
        if not isinstance(fanout, int):
            sent.numbers = self.device.upload(np.array(fanout, np.int32))
        return sent

    def _count(self, most: int, fanout: int, layer_key: np.uint64, batch: Batch) -> Any:
        numbers = getattr(fanout, "numbers", None)
        if numbers is None:
            return super()._count(most, fanout, layer_key, batch)
        taken = self.device.empty((most,), np.int32)
        rows = self._indptr, self._types, self._at(batch.nodes), self._at(batch.state)
        how = self._at(numbers), np.int32(len(numbers)), np.int32(fanout < 0), np.int32(most)
        self._launch("count_runs", most, *rows, *how, self._at(taken), source=self.SOURCE)
        return taken

    def _choose(self, most: int, fanout: int, layer_key: np.uint64, batch: Batch, edges: Edges) -> Any:
        numbers = getattr(fanout, "numbers", None)
        if numbers is None:
            return super()._choose(most, fanout, layer_key, batch, edges)
        graph = self._indptr, self._indices, self._types, self._count_nodes(), self._at(batch.nodes)
        how = (
            layer_key,
            self._at(numbers),
            np.int32(len(numbers)),
            batch.asked,
            self._at(edges.ends),
            self._at(edges.scratch),
        )
        reached = self._at(edges.reached), self._at(edges.rows), self._at(edges.positions)
        self._launch(
            "choose_runs", most, *graph, *how, *reached, self._at(self._map), self._at(batch.state), source=self.SOURCE
        )
