"""The passes of a model's head, over some of the nodes: their logits, or the losses of training nodes with their gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.types import Array
from graphmill.trainers.batches.send import LABELS
from graphmill.trainers.inference.bounds import OUTPUT_ROWS
from graphmill.trainers.inference.domain import Piece
from graphmill.trainers.models.loss import loss_value
from graphmill.trainers.models.precision import widened
from graphmill.trainers.record.ledger import Ledger, Line
from graphmill.trainers.record.timeline import COMPUTE
from graphmill.trainers.techniques.fullgraph.passes.chunk_pass import ChunkPass, T
from graphmill.trainers.techniques.fullgraph.passes.replicas import Summed
from graphmill.trainers.techniques.fullgraph.rows.host_rows import KeptRows
from graphmill.trainers.techniques.fullgraph.rows.supply import Supply


@dataclass
class HeadPass(ChunkPass[T]):
    """A pass of the head.

    Attributes:
        outputs: the outputs that the head reads: of all layers if the model `jumps`, else of the last one.
        chosen: bool[N], the nodes.
    """

    outputs: Sequence[KeptRows]
    chosen: Array

    def nodes(self, part: int, j: int) -> Array:
        """Returns the chosen nodes of a chunk."""
        ids = super().nodes(part, j)
        return ids[self.chosen[ids]]

    def read(self, supply: Supply) -> list[Tensor]:
        """Returns the rows that the head reads for a chunk."""
        line = Line("h2d", "logit", "forward", len(self.passes.model.layers))
        return [supply.loaded(rows, line) for rows in self.outputs]

    def logits(self, supply: Supply, rows: list[Tensor]) -> Tensor:
        """Returns the logits of rows on a part's device."""
        with self.precision(supply):
            return widened(self.model_on(supply).head(rows))


@dataclass
class LogitsPass(HeadPass[Tensor]):
    """Computes logits.

    Attributes:
        ledger: receives their bytes.
        pieces: the logits of the chunks, whose places are the ids of nodes.
    """

    ledger: Ledger
    pieces: list[Piece] = field(default_factory=list)

    def chunk(self, supply: Supply) -> Tensor:
        """Returns the logits of a chunk's nodes."""
        return self.logits(supply, self.read(supply))

    def leave(self, supply: Supply, found: Tensor) -> None:
        """Fetches them."""
        self.pieces.append(Piece(supply.ids, supply.place.device.fetch(found, OUTPUT_ROWS, self.ledger)))


@dataclass
class LossPass(HeadPass[tuple[float | Tensor, list[Tensor]]]):
    """Computes the losses of training nodes, and the gradients that the head gives to the outputs that it reads.

    Attributes:
        labels: i32[N], labels of all nodes.
        losses: number of a device -> the loss there.
        total: the sum of the losses.
        from_head: (ids, gradients float[c, F]) per chunk, for each of `outputs`.
    """

    labels: Array
    losses: Mapping[int, Summed]
    total: float | Tensor = 0.0
    from_head: list[list[tuple[Array, Array]]] = field(default_factory=list)
    _of_parts: dict[int, float | Tensor] = field(default_factory=dict)
    differentiates = True

    def chunk(self, supply: Supply) -> tuple[float | Tensor, list[Tensor]]:
        """Returns the sum of the losses of a chunk's training nodes, and the rows that the head read, with their gradients."""
        leaves = [rows.requires_grad_() for rows in self.read(supply)]
        device = supply.place.device
        with self.mover.span(supply.part, COMPUTE, supply.step):
            logits = self.logits(supply, leaves)
            (labels,) = device.send([self.labels[supply.ids].astype(np.int64)], LABELS, self.mover.ledger)
            loss = self.losses[device.index](logits, torch.as_tensor(labels))
            loss.backward()
        return loss_value(loss), leaves

    def leave(self, supply: Supply, found: tuple[float | Tensor, list[Tensor]]) -> None:
        """Fetches the gradients, which wait on the host until the backward pass reaches their layer."""
        line = Line("d2h", "logit", "backward", len(self.passes.model.layers))
        self._of_parts[supply.part], leaves = found
        self.from_head = self.from_head or [[] for _ in leaves]
        for leaf, gradients in zip(leaves, self.from_head, strict=True):
            assert leaf.grad is not None
            # A copy, since on the CPU the device's memory is the host's.
            rows = self.mover.to_host(leaf.grad, line, supply.part)().numpy().copy()
            gradients.append((supply.ids, rows))

    def end(self, j: int) -> None:
        """Adds gradients and losses of all devices and ranks in the order of parts."""
        losses, self._of_parts, gradients = self._of_parts, {}, self.passes.gradients
        for loss in losses.values() if gradients is None else gradients.add(losses):
            self.total = self.total + loss
