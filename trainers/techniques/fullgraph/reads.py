"""The host data that a pass of a layer reads for each step and leaves behind, and the rows of a chunk's own nodes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from graphmill.kernels.types import Array, Block
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.models.backward import backward_from
from graphmill.trainers.models.precision import widened
from graphmill.trainers.record.ledger import Ledger, Line
from graphmill.trainers.techniques.fullgraph.buffers import Loadable
from graphmill.trainers.techniques.fullgraph.host_rows import HostRows
from graphmill.trainers.techniques.fullgraph.supply import HostRequest

BUFFER, ABOVE, AGGREGATE, OWN = "neighbours", "gradients", "aggregates", "own rows"
"""The host data of a step: rows of the buffer; for its own nodes the gradients of outputs, cached aggregates and inputs."""


@dataclass(kw_only=True)
class PassedRows:
    """What a layer's forward pass leaves on the host.

    Attributes:
        output: the rows of its output; after the forward pass for a backward pass that reads them.
        aggregates: its aggregates, if they are cached.
        mapped: its mapped rows, if the backward pass reads them.
    """

    output: HostRows | None = None
    aggregates: HostRows | None = None
    mapped: Loadable | None = None


@dataclass(frozen=True, kw_only=True)
class Reads:
    """The host data that a pass of a layer reads.

    Attributes:
        index, layer: the layer.
        rows: its input rows.
        source: the rows of the buffer: the input rows, or the mapped ones.
        aggregates: its aggregates where they are known; the buffer is not filled then.
        apart: whether its map is a pass of its own.
        output: its output rows, if the backward pass may read them.
    """

    index: int
    layer: Any
    rows: Loadable
    source: Loadable
    aggregates: HostRows | None
    apart: bool
    output: HostRows | None = None

    def of(self, ids: Array, neighbours: Array, phase: Literal["forward", "backward"]) -> dict[str, HostRequest]:
        """Returns the requests of a step, from its nodes and the nodes whose rows its buffer loads."""
        found: dict[str, HostRequest] = {}
        if self.aggregates is None:
            found[BUFFER] = HostRequest(self.source, neighbours, Line("h2d", "neighbour", phase, self.index))
        else:
            found[AGGREGATE] = HostRequest(self.aggregates, ids, Line("h2d", "checkpoint", phase, self.index))
        if self.layer.reads_own and (self.apart or self.aggregates is not None):
            found[OWN] = HostRequest(self.rows, ids, Line("h2d", "output", phase, self.index))
        return found

    def backward(self, gradients: HostRows, ids: Array, neighbours: Array) -> dict[str, HostRequest]:
        """Returns the requests of a step of the backward pass, which reads the gradients of its nodes' output rows, too."""
        above = HostRequest(gradients, ids, Line("h2d", "gradient", "backward", self.index))
        return {ABOVE: above} | self.of(ids, neighbours, "backward")

    def own(self, held: Tensor, block: Block, ids: Array, device: Device) -> Tensor | None:
        """Returns the rows of a chunk's own nodes, which the buffer holds among others; None if nothing reads them.

        Args:
            held: float[num_src, F], rows of the buffer.
            block: the chunk's block.
            ids: ids[num_dst], the nodes.
            device: the device that computes.
        """
        if self.apart or not self.layer.reads_own:
            return None
        found = self.rows.in_place(ids, device)
        return held[torch.as_tensor(block.dst_pos, device=held.device).long()] if found is None else found

    def result(self, ids: Array, device: Device) -> Tensor | None:
        """Returns the output rows of a chunk, where they are or collected, if the gradient of the update follows from them; else None.

        Nothing is booked as crossing: `output` is given where the device computes in the memory in which they are.
        """
        layer = self.layer
        if self.output is None or not hasattr(layer, "update_backward") or not layer.finish.tells_gradient:
            return None
        return self.output.stage(ids, device, Ledger())[0]


def differentiated(
    context: AbstractContextManager[None],
    function: Callable[[Tensor, Tensor], Tensor],
    rows: Tensor,
    own: Tensor | None,
    above: Tensor,
    needed: tuple[bool, bool],
) -> tuple[Tensor | None, Tensor | None]:
    """Adds the gradients of a function's parameters; returns those of its arguments.

    Args:
        context: the context of the forward pass.
        function: makes output rows from other rows and from own ones.
        rows, own: its arguments; no columns stand for own rows that nothing reads.
        above: gradient of its output.
        needed: whether the gradients of rows and own are needed.
    """
    with torch.enable_grad():
        with context:
            rows = rows.detach().requires_grad_(needed[0])
            own = None if own is None else own.detach().requires_grad_(needed[1])
            out = function(rows, rows[:, :0] if own is None else own)
        backward_from(widened(out), above)
    return rows.grad, None if own is None else own.grad


def splits(layer: Any, apart: bool) -> bool:
    """Returns whether the gradient of a layer's aggregate needs no forward pass, so that the update alone is differentiated.

    Args:
        layer: the layer.
        apart: whether its map is a pass of its own, and the aggregate is that of mapped rows.
    """
    free = getattr(layer, "sums_projected", False) if apart else layer.cacheable
    return free and hasattr(layer, "aggregate_backward")
