"""The loss of nodes: cross entropy, with weights of classes and label smoothing."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Loss:
    """The sum of the losses of nodes.

    Attributes:
        class_weights: float[num_classes] factors of the nodes' losses by class, on the device of the logits; None for equal ones.
        smoothing: share of each loss that goes to all classes alike (Szegedy et al., 2016, section 7).
    """

    class_weights: Tensor | None = None
    smoothing: float = 0.0

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Returns float[] from logits: float[n, num_classes] and labels: i64[n]."""
        return functional.cross_entropy(
            logits, labels, weight=self.class_weights, reduction="sum", label_smoothing=self.smoothing
        )


def loss_value(loss: Tensor) -> float | Tensor:
    """Returns a sum of losses as a number, or as a float64[] of the device that computes it, so that nothing waits for it."""
    return loss.item() if loss.device.type == "cpu" else loss.detach().double()
