"""The end of every layer, after its convolution: residual, norm, activation, dropout. A layer that gives logits has the residual only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphmill.trainers.models.masks import LayerRandom
from graphmill.trainers.models.products import Map

Activation = Literal["relu", "gelu", "elu", "leaky_relu", "tanh"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "elu": functional.elu,
    "leaky_relu": functional.leaky_relu,
    "tanh": lambda h: h.tanh(),
}


@dataclass(frozen=True, kw_only=True)
class LayerOptions:
    """A train table's options of each layer."""

    # Probability that an activation is dropped.
    dropout: float = 0.0
    # Between convolution and activation; batch = statistics of the mini-batch.
    norm: Literal["none", "layer", "batch"] = "none"
    # Adds the layer's own input rows, through a linear map if the widths differ; "linear" = through one in any case.
    residual: bool | Literal["linear"] = False
    # Function of the hidden values.
    activation: Activation = "relu"
    # Attention heads; only `gat` has them.
    heads: int = 1
    # Probability that an attention weight is dropped.
    attention_dropout: float = 0.0
    # Whether the data's edge weights multiply messages.
    edge_weight: bool = False
    # The layer gives logits: neither norm nor activation nor dropout.
    last: bool = False


class Finish(nn.Module):
    """h + residual, then norm, activation and keyed dropout, from in_width to out_width columns."""

    def __init__(self, in_width: int, out_width: int, options: LayerOptions):
        super().__init__()
        self.options = options
        linear = options.residual == "linear"
        mapped = options.residual and (linear or in_width != out_width)
        self.skip = Map(in_width, out_width, bias=linear) if mapped else None
        norms = {"none": lambda width: None, "layer": nn.LayerNorm, "batch": BatchNorm}
        self.norm = None if options.last else norms[options.norm](out_width)

    def forward(self, h: Tensor, h_dst: Tensor, rng: LayerRandom, bias: Tensor | None = None) -> Tensor:
        """Returns float[num_dst, out_width].

        Args:
            h: float[num_dst, out_width], the convolution's result, which may be overwritten.
            h_dst: float[num_dst, in_width], the layer's own input rows.
            bias: float[out_width], added to h; None if h has it.
        """
        whole = self.options.residual or self.options.last or self.norm is not None
        if bias is not None and (whole or self.options.activation != "relu"):
            h, bias = h.add_(bias), None
        if self.options.residual:
            h = h + (h_dst if self.skip is None else self.skip(h_dst))
        return h if rng.before_norm else self.end(h, rng, bias)

    def end(
        self, h: Tensor, rng: LayerRandom, bias: Tensor | None = None, moments: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """The part of `forward` after the residual: float[num_dst, out_width].

        Args:
            bias: for a ReLU without a norm alone.
            moments: mean and variance, float[out_width] each, of all rows of the step, of which h has some; None if h has all.
        """
        if self.options.last:
            return h
        if isinstance(self.norm, BatchNorm):
            h = self.norm(h, rng.training, moments)
        elif self.norm is not None:
            h = self.norm(h)
        if self.options.activation == "relu":
            # Convolutions and norms do not read their results for a gradient, so ReLU and dropout take their place: matrices less to write.
            return rng.relu_dropout(h, bias, self.options.dropout)
        return rng.dropout(ACTIVATIONS[self.options.activation](h), self.options.dropout)

    @property
    def tells_gradient(self) -> bool:
        """Whether `backward` works: the gradient of h follows from the result."""
        options = self.options
        return not options.residual and (options.last or (self.norm is None and options.activation == "relu"))

    def backward(self, grad: Tensor, out: Tensor, rng: LayerRandom) -> Tensor:
        """Returns the gradient of h, float[num_dst, out_width], from that of the result `out`, without a forward pass."""
        if self.options.last:
            return grad
        return rng.relu_dropout_backward(grad, out, self.options.dropout)


class RowMoments(NamedTuple):
    """Count, mean and variance of the columns of rows; `squares`, float64[F] as `mean`, are sums of squared distances to the mean."""

    count: int
    mean: Tensor
    squares: Tensor

    @property
    def unbiased(self) -> Tensor:
        """Mean, and variance without bias, float64[2, F]; of more than one row."""
        return torch.stack([self.mean, self.squares / (self.count - 1)])

    @staticmethod
    def of(rows: Tensor) -> RowMoments:
        """Returns the moments of float[n, F]; n is at least 1."""
        variance, mean = torch.var_mean(rows.detach().double(), 0, correction=0)
        return RowMoments(len(rows), mean, variance * len(rows))

    def joined(self, other: RowMoments) -> RowMoments:
        """Returns the moments of the rows of both (Chan, Golub and LeVeque, 1979)."""
        count, apart = self.count + other.count, other.mean - self.mean
        mean = self.mean + apart * (other.count / count)
        return RowMoments(count, mean, self.squares + other.squares + apart**2 * (self.count * other.count / count))


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation that gets `training` as an argument.

    Its statistics are those of one mini-batch, so a step group is not one large batch. A batch of one row has no variance: it is normalised
    by the running statistics, as in evaluation. If the rows of a step are in several places, their moments are computed before (`moments`),
    and `follow` moves the running statistics once.
    """

    # Mean and variance without bias, float[2, F], of each training batch, which `follow` is to be called with in the order of
    # batches; None if a batch moves the running statistics itself.
    waiting: list[Tensor] | None = None

    def forward(self, input: Tensor, training: bool = False, moments: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Normalises the columns of input: float[n, F]; updates the running statistics while training, unless `moments` are given."""
        if moments is not None:
            return functional.batch_norm(input, *moments, self.weight, self.bias, eps=self.eps)
        training = training and len(input) > 1
        if training and self.waiting is not None:
            found = torch.zeros((2, input.shape[1]), dtype=self.weight.dtype, device=input.device)
            self.waiting.append(found)
            return functional.batch_norm(input, found[0], found[1], self.weight, self.bias, True, 1.0, self.eps)
        return functional.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, training, self.momentum or 0.1, self.eps
        )

    @torch.no_grad()
    def follow(self, mean: Tensor, variance: Tensor) -> None:
        """Moves the running statistics by those of the rows of a step, float[F] each; the variance is without bias."""
        assert self.running_mean is not None and self.running_var is not None
        share = self.momentum or 0.1
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(variance, share)
