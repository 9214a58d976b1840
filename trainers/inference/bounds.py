"""The bounds of inference: memory, threads, a device; trainers/inference/exact.py describes how the memory is divided."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from graphmill.assets.building.stage import Progress, Silent
from graphmill.assets.sampling.config import Neighbours
from graphmill.assets.sampling.drawing import Drawing
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.assets.storage.system.control_group import free_bytes
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import Array, BatchKey, Block, Topology
from graphmill.trainers.batches.edge_rows import EdgeRows, open_edge_rows
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.devices.malloc import return_freed_memory
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.inference.kept import RowLog
from graphmill.trainers.models.products import computing, kept_dtype, widened
from graphmill.trainers.recipe.costs.exact import PAGES_BYTES, Needs, fitting_workspace
from graphmill.trainers.record.ledger import Line

INPUT_ROWS, OUTPUT_ROWS = Line("h2d", "feature"), Line("d2h", "logit")
ALL = Drawing(neighbours=Neighbours(fanouts=(-1,)))


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The bounds of inference.

    Attributes:
        workspace_bytes: W of trainers/inference/exact.py, in bytes.
        folder: folder of files for layers that do not fit; None keeps all in memory.
        progress: receives every range of every layer, or every batch.
        device: the device that computes; layers between two passes stay on the host.
        dtype: the key of the train table.
        drawing: the way in which mini-batches draw neighbours, which defines the whole neighbourhood; None = every neighbour, equally.
        kept: keeps what is computed for the case of a kill; None keeps nothing.
        needs: function that counts the bytes of exact inference; None if they are not known.
        edge_rows: the rows of edges; None if the model reads none.
    """

    workspace_bytes: int
    threads: int
    folder: Path | None = None
    progress: Progress = field(default_factory=Silent)
    device: Device = field(default_factory=LogicalDevice)
    dtype: str = "float32"
    drawing: Drawing | None = None
    kept: RowLog | None = None
    needs: Needs | None = None
    edge_rows: EdgeRows | None = None

    @property
    def fitting_bytes(self) -> int:
        """The workspace, or half of the memory that is free now if that is less: for what has the same bits in any memory."""
        free = free_bytes()
        return self.workspace_bytes if free is None else min(self.workspace_bytes, free // 2)

    def fitting_workspace(self, rows: Sequence[int]) -> int:
        """Returns the largest workspace with which exact inference fits the memory that is free now; `fitting_bytes` if that is not known.

        If memory is short, what a training has freed is given back first: it is kept for other sizes of tensors.

        Args:
            rows: numbers of rows of the features and of the outputs of each layer.
        """
        if self.needs is None or (free := free_bytes()) is None:
            return self.fitting_bytes
        needs = partial(self.needs, rows=rows)
        if needs(self.workspace_bytes) > free - PAGES_BYTES:
            return_freed_memory()
            free = free_bytes() or 0
        return fitting_workspace(needs, self.workspace_bytes, free - PAGES_BYTES)

    def with_edges(self, edges: FeatureTable | None) -> Bounds:
        """Returns the bounds of a model that reads these rows of edges; itself without any."""
        if edges is None:
            return self
        return replace(self, edge_rows=open_edge_rows(edges, kept_dtype(self.dtype), self.threads))

    def whole(self, topology: Topology, layers: int = 1) -> Sampler:
        """Returns the sampler that gives nodes their whole neighbourhoods."""
        return (self.drawing or ALL).whole(topology, layers, threads=self.threads)

    def sampled(
        self, sampler: AnySampler, key: BatchKey, node_ids: Array, times: Array | None = None
    ) -> tuple[Block, ...]:
        """Returns the blocks of nodes on the host, without transposes; their edges have ids if the model reads rows of edges.

        Args:
            times: f64[n], the time as of which each node is seen; None for its own, or for a sampler that knows no times.
        """
        more: dict[str, Any] = {} if self.edge_rows is None else {"edge_ids": True}
        return sampler.sample(key, node_ids, transpose="none", **more, **({} if times is None else {"times": times}))

    def give_edges(self, blocks: Sequence[Block]) -> None:
        """Gives blocks the rows of their edges, if the model reads some."""
        if self.edge_rows is not None:
            self.edge_rows.give(blocks, self.device)

    def ends(self, topology: Topology) -> Array:
        """Returns i64[N+1], upper bounds of the ends of each node's edges: `indptr`, or a fixed number per node if walks choose sources."""
        most = None if self.drawing is None else self.drawing.most_evaluated
        return topology.indptr if most is None else np.arange(topology.num_nodes + 1, dtype=np.int64) * most

    def computing(self) -> AbstractContextManager[Any]:
        """Returns the context of a forward pass."""
        return computing(self.dtype, self.device.torch_device)

    def sent(self, rows: Tensor) -> Tensor:
        """Returns rows in the device's memory."""
        return self.device.send_tensor(rows, INPUT_ROWS, self.device.traffic)

    def fetched(self, rows: Tensor) -> Tensor:
        """Returns rows that the device computed, on the host."""
        return self.device.fetch(widened(rows), OUTPUT_ROWS, self.device.traffic)
