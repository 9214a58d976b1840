"""The losses of nodes: cross entropy of classes, binary cross entropy of several labels, and errors of numbers.

Each is a sum over nodes, since the loop divides a step's gradient once by its seeds. A node with several labels or numbers has the sum of
its known ones over their number C, so that without unknown values the loss of a step equals torch's with `reduction="mean"`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from graphmill.assets.graph.read import Graph
from graphmill.trainers.models.products import kept_dtype
from graphmill.trainers.recipe.known_mistakes import weights_mistake

if TYPE_CHECKING:
    from graphmill.trainers.recipe.config import TrainConfig

ErrorName = Literal["squared", "absolute", "huber"]
ERRORS: dict[ErrorName, Callable[..., Tensor]] = {
    "squared": functional.mse_loss,
    "absolute": functional.l1_loss,
    "huber": functional.huber_loss,
}
"""Name of an error -> torch's function; that of Huber is squared up to a distance of 1 and grows linearly beyond."""


@dataclass(frozen=True)
class Loss(ABC):
    """The sum of the losses of nodes; its tensors are on the device of the logits."""

    @abstractmethod
    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Returns float[] from logits: float[n, C] and the labels of the n nodes, as `step_values` gives them."""

    def of(self, model: nn.Module) -> Self:
        """Returns the loss of the outputs of a model, whose head it takes if it scores pairs of rows."""
        return self

    def sent(self, send: Callable[[Tensor], Tensor]) -> Self:
        """Returns the loss with each of its tensors as `send` returns it, to compute on another device."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        moved = {name: send(value) for name, value in values.items() if isinstance(value, Tensor)}
        return replace(self, **moved) if moved else self


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """The cross entropy of classes, with weights of classes and label smoothing."""

    # float[num_classes] factors of the nodes' losses by class; None for equal ones.
    class_weights: Tensor | None = None
    # Share of each loss that goes to all classes alike (Szegedy et al., 2016, section 7).
    smoothing: float = 0.0

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Returns float[] from logits: float[n, num_classes] and labels: int[n]."""
        return functional.cross_entropy(
            logits, labels.long(), weight=self.class_weights, reduction="sum", label_smoothing=self.smoothing
        )


@dataclass(frozen=True)
class BinaryCrossEntropy(Loss):
    """The binary cross entropy of several labels; a node's is the sum over its known labels, divided by C."""

    # float[C] factors of the labels that a node has; None for equal ones.
    pos_weight: Tensor | None = None

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Returns float[] from logits: float[n, C] and labels: i8[n, C], -1 unknown."""
        each = functional.binary_cross_entropy_with_logits(
            logits, labels.clamp_min(0).to(logits.dtype), pos_weight=self.pos_weight, reduction="none"
        )
        return each.where(labels >= 0, 0).sum() / logits.shape[1]


@dataclass(frozen=True)
class TargetError(Loss):
    """The error of standardised numbers; a node's is the sum over its known numbers, divided by T."""

    # float[T] of the training nodes' numbers; None for 0 and 1.
    mean: Tensor | None = None
    deviation: Tensor | None = None
    # The error of one number.
    error: ErrorName = "squared"

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Returns float[] from logits: float[n, T] and labels: f32[n, T], NaN unknown."""
        wanted = labels.to(logits.dtype)
        if self.mean is not None and self.deviation is not None:
            wanted = (wanted - self.mean) / self.deviation
        each = ERRORS[self.error](logits, wanted.nan_to_num(), reduction="none")
        return each.where(~torch.isnan(labels), 0).sum() / logits.shape[1]


PLAIN: dict[str, Loss] = {"classes": CrossEntropy(), "multilabel": BinaryCrossEntropy(), "regression": TargetError()}
"""Kind of task -> its loss without weights."""


def loss_value(loss: Tensor) -> float | Tensor:
    """Returns a sum of losses as a number, or as a float64[] of the device that computes it, so that nothing waits for it."""
    return loss.item() if loss.device.type == "cpu" else loss.detach().double()


def class_weights(train: TrainConfig, graph: Graph) -> torch.Tensor | None:
    """Returns float[num_classes], the factors of the seeds' losses, or None; raises InputError if the list has not one weight per class."""
    dtype = getattr(torch, kept_dtype(train.dtype))
    if train.class_weights == "none":
        return None
    if train.class_weights == "balanced":
        counts = np.bincount(graph.split_labels("train"), minlength=graph.num_classes)
        # A class without seeds does not enter a loss, so any weight is valid.
        return torch.from_numpy(counts.sum() / (graph.num_classes * np.maximum(counts, 1))).to(dtype)
    if mistake := weights_mistake(train, graph.num_classes, graph.class_names):
        raise mistake
    return torch.tensor(train.class_weights, dtype=dtype)
