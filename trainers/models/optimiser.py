"""Optimisers without torch's compiler.

Torch excludes methods of its optimisers from `torch.compile`, and imports the whole compiler to do so when the first of them is called:
over a second in every process that trains, and 70 MiB. Nothing here is compiled, so the unwrapped methods are called.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from graphmill.trainers.recipe.config import TrainConfig

MARKED = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
"""Methods of an optimiser that torch wraps, besides `step`."""


def without_compiler(kind: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    """Returns a class of optimisers with the same arithmetic that does not import torch's compiler."""
    plain: dict[str, Any] = {name: inspect.unwrap(getattr(kind, name)) for name in MARKED}
    # The wrapper of `step` switches gradients off as well.
    plain["step"] = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), plain)


def make_optimiser(parameters: Iterable[torch.nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
    """Returns the optimiser of a train table, as torch.optim computes it."""
    keys: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay}
    parameters = [*parameters] or [
        torch.nn.Parameter(torch.empty(0))
    ]  # torch refuses a model whose rows of nodes are all it has
    if config.optimizer == "sgd":
        return without_compiler(torch.optim.SGD)(parameters, momentum=config.momentum, **keys)  # pyright: ignore[reportCallIssue]
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return without_compiler(kind)(parameters, betas=config.betas, **keys)  # pyright: ignore[reportCallIssue]


def cut_gradients(parameters: Iterable[torch.nn.Parameter], length: float, others: Sequence[torch.Tensor] = ()) -> None:
    """Scales the gradients of parameters, and other gradients, so that their length together is at most `length`; 0 leaves them."""
    found = [*(parameter.grad for parameter in parameters if parameter.grad is not None), *others]
    if not length or not found:
        return
    whole = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(grad) for grad in found]))
    factor = (length / (whole + 1e-6)).clamp(max=1.0)
    for grad in found:
        grad.mul_(factor)
