"""A learnable row for each node of the types without features: the table of rows, their gradients and their optimiser.

A batch reads the rows of its own nodes, so a step has gradients of few rows, and only these rows and their moments change. The rows are no
parameters of the module: torch would make a gradient of the whole table. They are in its state nevertheless, and so in checkpoints, in the
saved model and wherever that is read. Replicas of a model in one process share the table, as they share parameters.

The gradient of a row that several destinations read is summed by the layers. Gradients of batches are added in batch order, as those of
parameters are: ((g0 + g1) + g2) + ...

Memory: rows, two moments of each, and the best rows so far; per batch of an optimiser step the gradients of its input rows.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.assets.features.read import NodeTypes
from graphmill.kernels.rng import absorb_ids, draws
from graphmill.kernels.rng import key as rng_key
from graphmill.kernels.types import Stream

FILLED_VALUES, UPDATED_VALUES = 1 << 19, 1 << 16
"""Initial values that are drawn at a time, and values that an update computes at a time; both fit in a processor's cache."""


class RowGradient(NamedTuple):
    """The gradient float[k, H] of distinct rows of the table, i64[k]."""

    rows: Tensor
    values: Tensor


class RowTable:
    """The rows, float[n, H], which copies of a module share; if `trained`, gradients are kept for an optimiser."""

    def __init__(self, values: Tensor):
        self.values, self.trained = values, False

    def __deepcopy__(self, memo: Any) -> RowTable:
        return self


class LearntRows(nn.Module):
    """The rows of the nodes of all types without features, by type and node.

    Args:
        width: H, columns of a row.

    Attributes:
        gradients: gradients of the batches of the present optimiser step, in batch order; backward passes add to it.
    """

    def __init__(self, types: NodeTypes, width: int):
        super().__init__()
        self.ranges = [(types.starts[each], types.starts[each + 1]) for each in types.featureless]
        self.table = RowTable(torch.zeros(sum(high - low for low, high in self.ranges), width))
        self.gradients: list[RowGradient] = []

    def rows_of(self, parts: Sequence[Tensor]) -> Tensor:
        """Returns i64[n], the rows of nodes: `parts` has the nodes of each type without features, in the order of types."""
        found, first = [], 0
        for nodes, (low, high) in zip(parts, self.ranges, strict=True):
            found.append(nodes.long() - (low - first))
            first += high - low
        return torch.cat(found)

    def forward(self, rows: Tensor, training: bool) -> Tensor:
        """Returns float[n, H], a copy of rows[n], distinct ones; in training their gradients come to `gradients`."""
        rows = rows.to(self.table.values.device)
        if not (training and self.table.trained and torch.is_grad_enabled()):
            return self.table.values.index_select(0, rows)
        anchor = torch.empty(0, device=rows.device, requires_grad=True)
        return _ReadRows.apply(anchor, self.table.values, rows, self.gradients)  # pyright: ignore[reportReturnType]

    def taken(self) -> list[RowGradient]:
        """Returns the gradients since the last call, and removes them from the module."""
        found = list(self.gradients)
        self.gradients.clear()
        return found

    def fill(self, seed: int, name: str) -> None:
        """Fills the rows with their initial values, a function of seed, name and node id: Glorot uniform for a matrix of one row."""
        values, place = self.table.values, 0
        word = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
        key, width = rng_key(seed, Stream.INIT, word), values.shape[1]
        bound, columns = math.sqrt(6.0 / (1 + width)), np.arange(width)
        step = max(1, FILLED_VALUES // max(1, width))
        for first, end in self.ranges:
            for low in range(first, end, step):
                ids = np.arange(low, min(low + step, end))
                bits = draws(absorb_ids(key, ids)[:, None], columns) >> np.uint64(40)
                drawn = torch.from_numpy(bits.astype(np.float32) * np.float32(2.0**-24))
                values[place : place + len(ids)] = (drawn * 2 - 1) * bound
                place += len(ids)

    def _apply(self, fn: Any, recurse: bool = True) -> LearntRows:
        self.table.values = fn(self.table.values)
        return super()._apply(fn, recurse)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        destination[f"{prefix}rows"] = self.table.values

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Mapping[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        found, shape = state_dict.get(f"{prefix}rows"), list(self.table.values.shape)
        if found is None:
            missing_keys.append(f"{prefix}rows")
        elif list(found.shape) != shape:
            error_msgs.append(f"{prefix}rows: rows {list(found.shape)}, and the graph needs {shape}")
        else:
            with torch.no_grad():
                self.table.values.copy_(found)


class _ReadRows(torch.autograd.Function):
    """Copies rows out of a table, and puts their gradient into a list: the table itself gets none."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, table: Tensor, rows: Tensor, gradients: list[RowGradient]) -> Tensor:
        ctx.rows, ctx.gradients = rows, gradients
        return table.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, None, None]:
        ctx.gradients.append(RowGradient(ctx.rows, grads[0]))
        return None, None, None, None


class RowAdam:
    """Adam for the rows of a table that have gradients, as torch.optim.SparseAdam computes it, to the bit.

    Other rows and their moments stay as they are. The correction of the moments' bias counts the optimiser steps of the run, not those of
    a row. There is no weight decay: it would change every row at every step.
    """

    def __init__(self, nodes: LearntRows, betas: Sequence[float] = (0.9, 0.999), eps: float = 1e-8):
        self.nodes, (self.beta1, self.beta2), self.eps = nodes, betas, eps
        nodes.table.trained = True
        self.mean, self.square = (torch.zeros_like(nodes.table.values) for _ in range(2))

    def gradient(self, seeds: int) -> RowGradient | None:
        """Returns the gradient of an optimiser step over a number of seeds, None without any; removes it from the module."""
        found = summed(self.nodes.taken())
        return None if found is None else RowGradient(found.rows, found.values / seeds)

    @torch.no_grad()
    def step(self, gradient: RowGradient, rate: float, number: int) -> None:
        """Updates rows by their mean gradient over the seeds, in the step of this number in the run, from 1."""
        size = rate * math.sqrt(1 - self.beta2**number) / (1 - self.beta1**number)
        count = max(1, UPDATED_VALUES // max(1, gradient.values.shape[1]))
        for rows, values in zip(gradient.rows.split(count), gradient.values.split(count), strict=True):
            mean, square = (moments.index_select(0, rows) for moments in (self.mean, self.square))
            # As old + (new - old) * (1 - beta): torch's order of roundings.
            mean = values.sub(mean).mul_(1 - self.beta1).add_(mean)
            square = values.pow(2).sub_(square).mul_(1 - self.beta2).add_(square)
            self.mean.index_copy_(0, rows, mean)
            self.square.index_copy_(0, rows, square)
            self.nodes.table.values.index_add_(0, rows, mean.div_(square.sqrt_().add_(self.eps)).mul_(-size))

    def state(self) -> dict[str, Tensor]:
        """Returns the moments, float[n, H] each, by name."""
        return {"rows/mean": self.mean, "rows/square": self.square}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restores the moments that `state` returned."""
        self.mean.copy_(state["rows/mean"])
        self.square.copy_(state["rows/square"])


def summed(gradients: Sequence[RowGradient]) -> RowGradient | None:
    """Returns the sum of gradients in their order, ((g0 + g1) + g2) + ...; None for none."""
    if len(gradients) < 2:
        return gradients[0] if gradients else None
    rows, places = torch.unique(torch.cat([each.rows for each in gradients]), return_inverse=True)
    values = gradients[0].values.new_zeros((len(rows), gradients[0].values.shape[1]))
    # The rows of one gradient are distinct, so each addition here has one order.
    for each, found in zip(gradients, places.split([len(each.rows) for each in gradients]), strict=True):
        values.index_add_(0, found, each.values)
    return RowGradient(rows, values)


def node_rows(model: nn.Module) -> LearntRows | None:
    """Returns the learnable rows of a model's nodes, None if it has none."""
    return next((each for each in model.modules() if isinstance(each, LearntRows)), None)
