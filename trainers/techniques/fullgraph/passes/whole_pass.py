"""One pass over the whole graph, forwards and backwards: the body of an epoch (HongTu, Algorithm 1, lines 6 to 21).

The row-wise ends of a model are also computed chunk by chunk: a projection of the features before the first layer, and the head after the
last one, on the nodes of each chunk alone that a loss reads. A head that reads the outputs of all layers gives each of them a
gradient, which waits on the host, for these nodes alone, until the backward pass reaches that layer.

Losses give gradients to the outputs of layers. A node's loss reads its own logits alone, so each chunk computes those of its training
nodes. A link's reads the outputs of nodes in any chunks. So the outputs of all ends of an epoch's links, and of their negatives, come to
the host first; the pairs follow, some at a time, on the first device, and add to the gradients of these outputs; then a pass over the
chunks takes the gradients through the model's head. The pairs that are computed together follow from the recipe alone, and so does the
order of all sums.

Memory on the host, in files like the rows of layers if memory is short: outputs and gradients of the n distinct ends, 2 n H values. If
ranks share the parts each has those of all ends, and computes all pairs: every rank adds the same gradients to the head of links.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.links.edge_seeds import EdgeSeeds, distinct
from graphmill.kernels.sampling.epoch_plan import Plan
from graphmill.kernels.types import Array
from graphmill.trainers.batches.batch import LABELS
from graphmill.trainers.inference.domain import Piece, collected_of_ranks
from graphmill.trainers.inference.gathered import EVALUATION
from graphmill.trainers.models.loss import loss_value
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.record.ledger import COMPUTE, Ledger, Line
from graphmill.trainers.techniques.fullgraph.memory import pairs_at_once
from graphmill.trainers.techniques.fullgraph.passes.chunk_pass import Passes
from graphmill.trainers.techniques.fullgraph.passes.layer_passes import (
    BackwardPass,
    ForwardPass,
    PassedRows,
    SumPass,
    given_gradient,
)
from graphmill.trainers.techniques.fullgraph.passes.norm_passes import batch_norm_of, normalise, normalise_backward
from graphmill.trainers.techniques.fullgraph.passes.replicas import Summed, loss_on
from graphmill.trainers.techniques.fullgraph.passes.row_passes import (
    InputRows,
    LogitsPass,
    LossPass,
    MapBackwardPass,
    MapPass,
    ProjectionBackwardPass,
    ProjectionPass,
    maps_apart,
)
from graphmill.trainers.techniques.fullgraph.rows.host_rows import HostRows, KeptRows

Found = tuple[float | Tensor, list[list[tuple[Array, Array]]]]
"""The sum of the losses, float64[] if a device holds it; and for each output (ids[c], gradients float[c, F]) of pieces of its nodes."""


class Losses(Protocol):
    """The losses of a training's seeds.

    Attributes:
        num_seeds: number of seeds of this rank's parts.
    """

    num_seeds: int

    def __call__(self, outputs: Sequence[KeptRows], random: StepRandom) -> Found:
        """Adds the gradients of the model's head, and returns the losses; all ranks call it.

        Args:
            outputs: the outputs that the head reads: of all layers if the model `jumps`, else of the last one.
        """
        ...


class NodeLosses:
    """The losses of training nodes.

    Args:
        labels: labels of all nodes (assets/tasks/labels.py).
        train_ids: ids[n], the training nodes.
        loss: sums the losses of nodes; its tensors are on the first device.
    """

    def __init__(self, passes: Passes, labels: Array, train_ids: Array, loss: Summed):
        self.passes, self.labels = passes, labels
        self.losses = {device.index: loss_on(loss, device) for device in passes.replicas.devices}
        self.trained = torch.zeros(len(labels), dtype=torch.bool).numpy()
        self.trained[train_ids] = True
        self.num_seeds = len(passes.own(train_ids))

    def __call__(self, outputs: Sequence[KeptRows], random: StepRandom) -> Found:
        """As `Losses`."""
        head = LossPass(self.passes, outputs, self.trained, lambda ids: self.labels[ids], self.losses)
        head.run()
        return head.total, head.from_head


class PairLosses:
    """The losses of training links.

    Args:
        loss: sums the losses of pairs; its head is that of the first device's model.
        edges: the links with the rule of their negatives.
        plan: one batch of all links in each epoch.
    """

    def __init__(self, passes: Passes, loss: Summed, edges: EdgeSeeds, plan: Plan):
        self.passes, self.loss, self.edges, self.plan = passes, loss, edges, plan
        # A link belongs to the part of its target.
        self.num_seeds = len(passes.own(edges.target))

    def __call__(self, outputs: Sequence[KeptRows], random: StepRandom) -> Found:
        """As `Losses`."""
        item = next(self.plan.batches(random.train_epoch))
        links = self.edges.batch(item.key, item.seeds)
        with torch.no_grad():
            ends = head_rows(self.passes, outputs, links.nodes)
        loss, gradients = self._scored(links.nodes, links.scored, ends)
        del ends
        return loss, self._through_head(outputs, links.nodes, gradients)

    def _scored(self, node_ids: Array, pairs: Array, ends: Tensor) -> tuple[float | Tensor, KeptRows]:
        """Returns the sum of the losses, and their gradients of the ends' outputs.

        Args:
            node_ids: ids[n], the ends.
            pairs: i32[p, 1 + k, 3], places of two ends and relation of each link, and of its negatives after it.
            ends: float[n, H], the outputs.
        """
        passes, mover, place = self.passes, self.passes.mover, self.passes.mover.places[0]
        gradients, total = passes.zeros(ends.shape[1], node_ids), 0.0
        step = pairs_at_once(pairs.shape[1], ends.shape[1])
        for low in range(0, len(pairs), step):
            part = pairs[low : low + step].copy()
            places, local = distinct(part[..., :2].reshape(-1))
            part[..., :2] = local.reshape(part[..., :2].shape)
            with place.active(), mover.span(place.part, COMPUTE, 0):
                (labels,) = place.device.send([part], LABELS, mover.ledger)
                rows = place.device.send_tensor(ends[torch.from_numpy(places).long()], ENDS, mover.ledger)
                loss = self.loss(rows.requires_grad_(), torch.as_tensor(labels))
                loss.backward()
                assert rows.grad is not None
                gradients.add(node_ids[places], place.device.fetch(rows.grad, OF_ENDS, mover.ledger))
            total = total + loss_value(loss)
        return total, gradients

    def _through_head(
        self, outputs: Sequence[KeptRows], node_ids: Array, gradients: KeptRows
    ) -> list[list[tuple[Array, Array]]]:
        """Returns the gradients of the outputs that the model's head reads, of this rank's nodes, from those of its results."""
        passes = self.passes
        own = passes.own(node_ids)
        if passes.model.readout is None:
            values = gradients.values if passes.rows_of is None else gradients.values[own]
            return [[(node_ids[own], values)]]
        given: Any = {device.index: given_gradient for device in passes.replicas.devices}
        head = LossPass(passes, outputs, _chosen(passes, node_ids), gradients.copied, given)
        head.run()
        return head.from_head


ENDS, OF_ENDS = Line("h2d", "logit"), Line("d2h", "logit", "backward")


def head_rows(passes: Passes, outputs: Sequence[KeptRows], node_ids: Array) -> Tensor:
    """Returns the results of the model's head, float[n, C] on the host or in a file; all ranks call it, and each gets all rows.

    Args:
        node_ids: ids[n], distinct.
    """
    own, lane = passes.own(node_ids), passes.mover.lane
    head = LogitsPass(passes, outputs, _chosen(passes, node_ids), node_ids[own])
    head.run()
    rows = None if head.kept is None else torch.from_numpy(head.kept.values)
    if lane is not None:
        return collected_of_ranks(lane, [] if rows is None else [Piece(own, rows)], len(node_ids))
    assert rows is not None, "there is at least one node"
    return rows


def _chosen(passes: Passes, node_ids: Array) -> Array:
    """Returns bool[N], whether each node is one of some nodes."""
    found = np.zeros(passes.blocks.topology.num_nodes, bool)
    found[node_ids] = True
    return found


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
