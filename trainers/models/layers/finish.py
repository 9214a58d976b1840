"""The end of every layer, after its convolution: residual, norm, activation, dropout. A layer that gives logits has the residual only."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

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
    """h + residual, then norm, activation and keyed dropout.

    Args:
        in_width, out_width: columns of the layer's input and output rows.
    """

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
        return self.end(h, rng, bias)

    def end(self, h: Tensor, rng: LayerRandom, bias: Tensor | None = None) -> Tensor:
        """The part of `forward` after the residual: float[num_dst, out_width]; `bias` is for a ReLU without a norm alone."""
        if self.options.last:
            return h
        if isinstance(self.norm, BatchNorm):
            h = self.norm(h, rng.training)
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


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation that gets `training` as an argument.

    Its statistics are those of one mini-batch, so a step group is not one large batch, and rows cannot be cut into chunks. A batch of one
    row has no variance: it is normalised by the running statistics, as in evaluation.
    """

    def forward(self, input: Tensor, training: bool = False) -> Tensor:
        """Normalises the columns of input: float[n, F]; updates the running statistics while training."""
        training = training and len(input) > 1
        return functional.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, training, self.momentum or 0.1, self.eps
        )
