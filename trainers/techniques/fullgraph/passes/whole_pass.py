"""One pass over the whole graph, forwards and backwards: the body of an epoch (HongTu, Algorithm 1, lines 6 to 21).

The row-wise ends of a model are also computed chunk by chunk: a projection of the features before the first layer, and the head after the
last one, on the nodes of each chunk alone that a loss reads (losses.py). A head that reads the outputs of all layers gives each of them a
gradient, which waits on the host, for these nodes alone, until the backward pass reaches that layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphmill.kernels.types import Array
from graphmill.trainers.inference.gathered import EVALUATION
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.techniques.fullgraph.passes.chunk_pass import Passes
from graphmill.trainers.techniques.fullgraph.passes.layer_passes import BackwardPass, ForwardPass, PassedRows, SumPass
from graphmill.trainers.techniques.fullgraph.passes.losses import Losses, head_rows
from graphmill.trainers.techniques.fullgraph.passes.norm_passes import batch_norm_of, normalise, normalise_backward
from graphmill.trainers.techniques.fullgraph.passes.row_passes import (
    InputRows,
    MapBackwardPass,
    MapPass,
    ProjectionBackwardPass,
    ProjectionPass,
    maps_apart,
)
from graphmill.trainers.techniques.fullgraph.rows.host_rows import HostRows, KeptRows


class WholePass:
    """Computes the gradients of a model's parameters, and the loss, over all training nodes.

    Attributes:
        summed: the first layer's aggregates, if they are the same in every pass and known.
    """

    def __init__(self, passes: Passes, inputs: InputRows, losses: Losses):
        self.summed: KeptRows | None = None
        self.passes, self.inputs, self.losses = passes, inputs, losses
        self.model, self.mover = passes.model, passes.mover

    def __call__(self, random: StepRandom) -> float | Tensor:
        """Adds the gradients to the model's parameters and returns the sum of the losses; float64[] if a device holds it."""
        self.inputs.random = random
        # Sets the mode of a user's modules, including the ends; an evaluation between two passes sets its own.
        model, passes = self.model, self.passes
        passes.replicas.update(self.mover.ledger, training=random.training)
        made: list[PassedRows] = []
        for index in range(len(model.layers)):
            made.append(self.forward(index, _output(made[-1]) if made else self._first_rows(), random))
        # Rows of a layer are freed with their last use.
        loss, from_head = self.losses([_output(rows) for rows in (made if model.jumps else made[-1:])], random)
        gradients: KeptRows | None = None
        while made:
            rows = made.pop()
            above = self._added(gradients, from_head.pop() if from_head else [], _output(rows).width)
            gradients = None
            if not self.mover.places[0].device.in_host_memory:
                rows.output = None
            if rows.index > 0 or model.projection is not None:
                # A map that is a pass of its own gives every node's row a first gradient, in no need of zeros.
                gradients = (passes.new_rows if rows.apart else passes.zeros)(rows.inputs.width)
            self.backward(rows, above, gradients, random)
            del rows, above
        if gradients is not None:
            ProjectionBackwardPass(passes, self.inputs, gradients).run()
            passes.replicas.wait()
        return loss

    def forward(self, index: int, inputs: HostRows, random: StepRandom, *, caches: bool | None = None) -> PassedRows:
        """Computes a layer for all nodes from the rows that it reads; aggregates are cached if the layer allows it, None as in training."""
        passes, layer = self.passes, self.model.layers[index]
        rows = PassedRows(index=index, layer=layer, inputs=inputs, apart=maps_apart(layer, inputs.width))
        rows.aggregates = self.summed if index == 0 else None
        rows.ends_apart = random.training and batch_norm_of(layer) is not None
        if rows.apart:
            rows.mapped = passes.new_rows(rows.layer.projected_width)
            MapPass(passes, inputs, rows.mapped, index=index).run()
        ForwardPass(passes, rows, random, passes.hybrid if caches is None else caches).run()
        if rows.ends_apart:
            normalise(passes, rows, random)
        return rows

    def backward(self, rows: PassedRows, above: KeptRows, sums: KeptRows | None, random: StepRandom) -> None:
        """Adds the gradients of a layer's parameters to the model, and those of its input rows to the host's.

        Args:
            sums: receives the gradients of the rows that it reads; None if they are not needed.
            random: the masks of the forward pass.
        """
        passes = self.passes
        if rows.ends_apart:
            above = normalise_backward(passes, rows, above, random)
        below = passes.zeros(rows.layer.projected_width) if rows.apart else sums
        BackwardPass(passes, rows, random, above, below, sums).run()
        if rows.apart and below is not None:
            MapBackwardPass(passes, rows, below, sums).run()
        passes.replicas.wait()

    def logits(self, node_ids: Array) -> Tensor:
        """Returns the logits of nodes, float[n, C] on the host or in a file, by a forward pass without dropout; all ranks call it.

        Nothing is kept for a backward pass, and nothing is booked as the training's.

        Args:
            node_ids: ids[n], distinct.
        """
        passes, traffic = self.passes, self.mover.places[0].device.traffic
        self.inputs.random = EVALUATION
        with self.mover.beside(traffic), torch.no_grad():
            passes.replicas.update(traffic, training=False)
            below, outputs = self._first_rows(), []
            for index in range(len(self.model.layers)):
                below = _output(self.forward(index, below, EVALUATION, caches=False))
                outputs = [*outputs, below] if self.model.jumps else [below]
            return head_rows(passes, outputs, node_ids)

    def first_sums(self, ledger: Ledger, random: StepRandom) -> KeptRows:
        """Returns the first layer's aggregates of all features; masks of any step do, since an aggregate that stays the same draws none."""
        self.inputs.random = random
        self.passes.replicas.update(ledger, training=random.training)
        rows = PassedRows(index=0, layer=self.model.layers[0], inputs=self.inputs, apart=False)
        with self.mover.beside(ledger):
            SumPass(self.passes, rows, random).run()
        assert rows.aggregates is not None
        return rows.aggregates

    def _first_rows(self) -> HostRows:
        """Returns the rows that the first layer reads: the features, or their projections."""
        if self.model.projection is None:
            return self.inputs
        rows = self.passes.new_rows(self.inputs.width)
        ProjectionPass(self.passes, self.inputs, rows).run()
        return rows

    def _added(self, gradients: KeptRows | None, from_head: Sequence[tuple[Array, Array]], width: int) -> KeptRows:
        """Returns the gradients of a layer's output, with those of the head added."""
        gradients = gradients or self.passes.zeros(width)
        for ids, rows in from_head:
            gradients.add(ids, torch.from_numpy(rows))
        return gradients


def _output(rows: PassedRows) -> KeptRows:
    """Returns the rows of a layer's output, which are there."""
    assert rows.output is not None
    return rows.output
