"""A backward pass from a gradient that is given.

`tensor.backward(gradient)` of torch compares shapes by its symbolic shapes, and loads a library of algebra for it: 45 MiB and about a
second, in each process of a full-graph training. So the pass begins at a number instead, whose gradient is the given one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _Given(torch.autograd.Function):
    """A number that has a given gradient with respect to a tensor."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(gradient)
        return out.new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return ctx.saved_tensors[0], None


def backward_from(out: Tensor, gradient: Tensor) -> None:
    """Adds the gradients of all that a tensor was made of, as `out.backward(gradient)` does, to the bit.

    Args:
        gradient: gradient of its shape and type.
    """
    assert out.shape == gradient.shape and out.dtype == gradient.dtype, "a gradient is of another tensor"
    number: Any = _Given.apply(out, gradient)
    number.backward()
