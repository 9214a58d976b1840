"""Batch normalisation of a layer whose rows are in chunks: the moments of all rows first, then the end of the layer row by row.

    forward    h of all chunks -> moments, added in the order of steps and parts -> normalised, activated and dropped rows
    backward   gradients of these -> those of weight and bias, which are the two sums over all rows that h's gradient needs -> those of h

Moments and sums are over all rows of all devices and ranks, in one order, so the bits are those of one process. Evaluations normalise each
row by the running statistics, and need none of these passes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from graphmill.trainers.models.layers.finish import BatchNorm, RowMoments
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.products import widened
from graphmill.trainers.record.ledger import COMPUTE, Line
from graphmill.trainers.techniques.fullgraph.passes.chunk_pass import ChunkPass, Passes, T
from graphmill.trainers.techniques.fullgraph.passes.layer_passes import PassedRows, backward_from, given_gradient
from graphmill.trainers.techniques.fullgraph.passes.replicas import OF_COPIES, OF_PARAMETERS, RankGradients
from graphmill.trainers.techniques.fullgraph.rows.host_rows import IDS, KeptRows
from graphmill.trainers.techniques.fullgraph.rows.supply import Supply


def batch_norm_of(layer: Any) -> BatchNorm | None:
    """Returns the batch normalisation at the end of a layer, None without one."""
    norm = getattr(getattr(layer, "finish", None), "norm", None)
    return norm if isinstance(norm, BatchNorm) else None


@dataclass
class NormPass(ChunkPass[T]):
    """A pass over what the batch normalisation of a layer reads."""

    # The layer's rows, of which `before_norm` is read.
    rows: PassedRows
    # The masks.
    random: StepRandom

    def read(self, supply: Supply) -> Tensor:
        """Returns the rows of a chunk that are normalised, float[v, F]."""
        assert self.rows.before_norm is not None
        return supply.loaded(self.rows.before_norm, Line("h2d", "output", self.phase, self.rows.index + 1))

    @property
    def phase(self) -> Any:
        """The phase, in the ledger."""
        return "backward" if self.down else "forward"

    def ended(self, supply: Supply, h: Tensor) -> Tensor:
        """Returns the end of the layer for the rows of a chunk."""
        layer: Any = self.model_on(supply).layers[self.rows.index]
        device = supply.place.device
        (ids,) = device.send([supply.ids], IDS, self.mover.ledger)
        masks = self.random.layer(self.rows.index + 1, ids)
        end: Any = layer.finish.end(h, masks, moments=self.mean_and_variance(supply, h.dtype))
        return widened(layer.ended(end) if hasattr(layer, "ended") else end)

    def mean_and_variance(self, supply: Supply, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Returns those of all rows on a part's device, float[F] each."""
        moments, device = self.rows.moments, supply.place.device
        assert moments is not None
        both = torch.stack([moments.mean, moments.squares / moments.count]).to(dtype)
        mean, variance = device.send_tensor(
            both, Line("h2d", "parameter", self.phase, self.rows.index + 1), self.mover.ledger
        )
        return mean, variance


@dataclass
class MomentsPass(NormPass[RowMoments]):
    """Computes the moments of all rows."""

    found: dict[str, RowMoments] = field(default_factory=dict)

    def chunk(self, supply: Supply) -> RowMoments:
        """Returns the moments of a chunk."""
        with self.mover.span(supply.part, COMPUTE, supply.step):
            return RowMoments.of(self.read(supply))

    def leave(self, supply: Supply, found: RowMoments) -> None:
        """Fetches them, by the chunk's place in the order."""
        line = Line("d2h", "parameter", "forward", self.rows.index + 1)
        both = self.mover.to_host(torch.stack([found.mean, found.squares]), line, supply.part)()
        self.found[f"{supply.step:09} {supply.part:09}"] = RowMoments(found.count, *both)

    def total(self) -> RowMoments:
        """Returns the moments of the rows of all devices and ranks, added in the order of steps and parts."""
        gradients, found = self.passes.gradients, self.found
        if isinstance(gradients, RankGradients):
            with _disable_current_modes():  # messages are in the host's memory
                own = {name: torch.stack([each.mean, each.squares]) for name, each in found.items()}
                counts = {f"{name} n": torch.tensor(each.count) for name, each in found.items()}
                pieces = gradients.lane.gather_any(save(own | counts))
                of_others = [len(each) for rank, each in enumerate(pieces) if rank != gradients.lane.rank]
                self.mover.ledger.crossed(OF_PARAMETERS, sum(of_others), requests=len(of_others))
                named = {name: tensor for piece in pieces for name, tensor in load(piece).items()}
            found = {
                name: RowMoments(int(named[f"{name} n"].item()), *each)
                for name, each in named.items()
                if each.ndim == 2
            }
        return reduce(RowMoments.joined, (found[name] for name in sorted(found)))


@dataclass
class EndPass(NormPass[Tensor]):
    """Normalises the rows, and computes the rest of the layer's end."""

    def chunk(self, supply: Supply) -> Tensor:
        """Returns the layer's output for a chunk."""
        h = self.read(supply)
        with self.computing(supply):
            return self.ended(supply, h)

    def leave(self, supply: Supply, found: Tensor) -> None:
        """Keeps it."""
        assert self.rows.output is not None
        self.store(supply, found, self.rows.output, Line("d2h", "output", "forward", self.rows.index))


@dataclass
class FactorsPass(NormPass[None]):
    """Adds the gradients of the normalisation's weight and bias to the model."""

    above: KeptRows
    down = parts_down = differentiates = True

    def chunk(self, supply: Supply) -> None:
        """Differentiates the end of a chunk's rows."""
        h, above = self.read(supply), self.gradient(supply)
        with self.computing(supply):
            out = self.ended(supply, h)
        backward_from(out, above)

    def gradient(self, supply: Supply) -> Tensor:
        """Returns the gradient of the layer's output for a chunk."""
        return supply.loaded(self.above, Line("h2d", "gradient", "backward", self.rows.index + 1))


@dataclass
class EndBackwardPass(FactorsPass):
    """Computes the gradients of what is normalised, from the sums over all rows that `FactorsPass` left in the model."""

    # Receives the gradients.
    below: KeptRows
    parts_down = differentiates = False

    def chunk(self, supply: Supply) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Returns the gradient of a chunk's rows."""
        norm, on = batch_norm_of(self.rows.layer), batch_norm_of(self.model_on(supply).layers[self.rows.index])
        moments, h, above, device = self.rows.moments, self.read(supply), self.gradient(supply), supply.place.device
        assert norm is not None and on is not None and moments is not None
        with torch.enable_grad():
            h = h.detach().requires_grad_()
            with self.computing(supply):
                out = self.ended(supply, h)
            (found,) = torch.autograd.grad(given_gradient(out, above), [h])
        mean, variance = self.mean_and_variance(supply, h.dtype)
        scale = (variance + norm.eps).rsqrt()
        sums = (norm.weight.grad, norm.bias.grad)
        of_weight, of_bias = (
            device.send_tensor(each, OF_COPIES, self.mover.ledger) for each in sums if each is not None
        )
        h = (h.detach() - mean) * scale
        return found - (on.weight.detach() * scale / moments.count) * (of_bias + h * of_weight)

    def leave(self, supply: Supply, found: Tensor) -> None:
        """Keeps the gradient."""
        self.store(supply, found, self.below, Line("d2h", "own_gradient", "backward", self.rows.index + 1))


def normalise(passes: Passes, rows: PassedRows, random: StepRandom) -> None:
    """Computes the output of a layer from what its batch normalisation reads, and moves the running statistics; all ranks call it."""
    norm = batch_norm_of(rows.layer)
    assert norm is not None and rows.output is not None
    rows.before_norm, rows.output = rows.output, passes.new_rows(rows.output.width)
    found = MomentsPass(passes, rows, random)
    found.run()
    rows.moments = found.total()
    if rows.moments.count > 1:
        unbiased, device = rows.moments.unbiased.to(norm.weight.dtype), passes.replicas.devices[0]
        line = Line("h2d", "parameter", "forward", rows.index + 1)
        norm.follow(*device.send_tensor(unbiased, line, passes.mover.ledger))
    EndPass(passes, rows, random).run()


def normalise_backward(passes: Passes, rows: PassedRows, above: KeptRows, random: StepRandom) -> KeptRows:
    """Returns the gradients of what a layer's batch normalisation reads, and adds those of its factors to the model."""
    FactorsPass(passes, rows, random, above).run()
    below = passes.new_rows(above.width)
    EndBackwardPass(passes, rows, random, above, below).run()
    rows.before_norm = None
    return below
