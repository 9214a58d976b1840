"""Adam without torch's compiler.

Torch excludes methods of its optimisers from `torch.compile`, and imports the whole compiler to do so when the first of them is called:
over a second in every process that trains, and 70 MiB. Nothing here is compiled, so the unwrapped methods are called.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch

MARKED = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
"""Methods of an optimiser that torch wraps, besides `step`."""


def without_compiler(kind: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    """Returns a class of optimisers with the same arithmetic that does not import torch's compiler."""
    plain: dict[str, Any] = {name: inspect.unwrap(getattr(kind, name)) for name in MARKED}
    # The wrapper of `step` switches gradients off as well.
    plain["step"] = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), plain)


def make_adam(parameters: Iterable[torch.nn.Parameter], lr: float, weight_decay: float = 0.0) -> torch.optim.Optimizer:
    """Returns Adam (Kingma and Ba) over parameters, as torch.optim.Adam computes it.

    Args:
        parameters: the parameters that are trained.
        lr: learning rate.
        weight_decay: factor by which the parameters are added to their gradients.
    """
    return without_compiler(torch.optim.Adam)(parameters, lr=lr, weight_decay=weight_decay)  # pyright: ignore[reportCallIssue]
