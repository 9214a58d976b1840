"""A learnable row for each node of the types without features: the table of rows, their gradients and their optimiser.

A batch reads the rows of its own nodes, so a step has gradients of few rows, and only these rows and their moments change. The rows are no
parameters of the module: torch would make a gradient of the whole table. They are in its state nevertheless, and so in checkpoints, in the
saved model and wherever that is read. Replicas of a model in one process share the table, as they share parameters.

The gradient of a row that several destinations read is summed by the layers. Gradients of batches are added in batch order, as those of
parameters are: ((g0 + g1) + g2) + ...

Memory: rows, two moments of each, and the best rows so far; of a table in a file (trainers/models/rows/row_file.py) none of these; per
batch of an optimiser step the gradients of its input rows.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.assets.features.read import NodeTypes
from graphmill.kernels.rng import absorb_ids, draws
from graphmill.kernels.rng import key as rng_key
from graphmill.kernels.types import Stream
from graphmill.trainers.models.rows.row_file import Initial, RowFile

FILLED_VALUES, UPDATED_VALUES = 1 << 19, 1 << 16
"""Initial values that are drawn at a time, and values that an update computes at a time; both fit in a processor's cache."""


class RowGradient(NamedTuple):
    """The gradient float[k, H] of distinct rows of the table, i64[k]."""

    rows: Tensor
    values: Tensor


class RowTable:
    """The rows, float[n, H], which copies of a module share, and two moments of each once they are trained: in memory, or in a file.

    Args:
        num_rows, width: n and H.

    Attributes:
        trained: whether gradients are kept for an optimiser.
        initial: the initial values of rows i64[k], float32[k, H]; they are computed when they are needed.
        file: the file that has the rows and their moments; None if they are in memory.
    """

    def __init__(self, num_rows: int, width: int):
        self.shape, self.trained = (num_rows, width), False
        self.initial: Initial = lambda rows: torch.zeros(len(rows), width)
        self.file: RowFile | None = None
        self._values: Tensor | None = None
        self._like = torch.empty(0)  # of the type and on the device of the values
        self.mean = self.square = self._like

    def __deepcopy__(self, memo: Any) -> RowTable:
        return self

    @property
    def values(self) -> Tensor:
        """The rows in memory."""
        assert self.file is None, "the rows are in a file"
        if self._values is None:
            self._values = self._like.new_zeros(self.shape)
            for rows in torch.arange(self.shape[0]).split(max(1, FILLED_VALUES // max(1, self.shape[1]))):
                self._values[rows[0] : rows[-1] + 1] = self.initial(rows)
        return self._values

    @values.setter
    def values(self, values: Tensor) -> None:
        self._values = self._like = values

    @property
    def dtype(self) -> torch.dtype:
        """The type of the values."""
        return self._like.dtype

    @property
    def device(self) -> torch.device:
        """The device of the values."""
        return self._like.device

    def give_to(self, file: RowFile) -> None:
        """Has a new file keep the rows and their moments from now on."""
        assert self._values is None and not self.trained
        self.file = file

    def take(self, values: Tensor) -> None:
        """Takes values of rows, float[n, H]; a table that has none yet takes the tensor itself, which may be mapped."""
        if self._values is None and not self.trained:
            self._values = values.to(self._like)
        else:
            self.values.copy_(values)

    def change(self, fn: Callable[[Tensor], Tensor]) -> None:
        """Gives the values another type, or another device."""
        self._like = fn(self._like)
        self._values = None if self._values is None else fn(self._values)

    def train(self) -> None:
        """Adds moments of 0, and has gradients kept from now on."""
        self.trained = True
        if self.file is None:
            self.mean, self.square = (torch.zeros_like(self.values) for _ in range(2))

    def read(self, rows: Tensor) -> Tensor:
        """Returns float[k, H], a copy of rows i64[k]."""
        if self.file is not None:
            return self.file.read(rows)
        if self._values is None and not self.trained:
            return self.initial(rows.cpu()).to(self._like)
        return self.values.index_select(0, rows)

    def records(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns float[k, H] each: copies of rows i64[k] and of their two moments."""
        if self.file is not None:
            return self.file.records(rows)
        values, mean, square = (each.index_select(0, rows) for each in (self.values, self.mean, self.square))
        return values, mean, square

    def write(self, rows: Tensor, values: Tensor, mean: Tensor, square: Tensor) -> None:
        """Replaces distinct rows i64[k] and their two moments by float[k, H] each."""
        if self.file is not None:
            self.file.write(rows, values, mean, square)
            return
        for table, found in ((self.values, values), (self.mean, mean), (self.square, square)):
            table.index_copy_(0, rows, found)


class LearntRows(nn.Module):
    """The rows of the nodes of all types without features, by type and node.

    Args:
        width: H, columns of a row.
        init: the matrix of the initial values, Glorot uniform: a "row", or the "table" of all rows of a type.

    Attributes:
        name: name of the rows in the state of the model.
        gradients: gradients of the batches of the present optimiser step, in batch order; backward passes add to it.
    """

    def __init__(self, types: NodeTypes, width: int, init: Literal["row", "table"] = "row"):
        super().__init__()
        self.init = init
        self.ranges = [(types.starts[each], types.starts[each + 1]) for each in types.featureless]
        self.name, self.table = "rows", RowTable(sum(high - low for low, high in self.ranges), width)
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
        rows = rows.to(self.table.device)
        if not (training and self.table.trained and torch.is_grad_enabled()):
            return self.table.read(rows)
        anchor = torch.empty(0, device=rows.device, requires_grad=True)
        return _ReadRows.apply(anchor, self.table, rows, self.gradients)  # pyright: ignore[reportReturnType]

    def taken(self) -> list[RowGradient]:
        """Returns the gradients since the last call, and removes them from the module."""
        found = list(self.gradients)
        self.gradients.clear()
        return found

    def fill(self, seed: int, name: str) -> None:
        """Gives the rows their initial values, a function of seed, name and node id, within the bound of `init`."""
        word, width = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"), self.table.shape[1]
        key, columns = rng_key(seed, Stream.INIT, word), np.arange(width)
        sizes = [high - low if self.init == "table" else 1 for low, high in self.ranges]
        bounds = torch.tensor([math.sqrt(6.0 / (size + width)) for size in sizes])
        ends = np.cumsum([high - low for low, high in self.ranges])
        # Nodes before those of a range that have no row here.
        nodes_before = np.array([high for _, high in self.ranges]) - ends

        def initial(rows: Tensor) -> Tensor:
            found = torch.empty(len(rows), width)
            step = max(1, FILLED_VALUES // max(1, width))
            for low in range(0, len(rows), step):
                part = rows[low : low + step].numpy()
                of_type = np.searchsorted(ends, part, "right")
                ids = part + nodes_before[of_type]
                bits = draws(absorb_ids(key, ids)[:, None], columns) >> np.uint64(40)
                drawn = torch.from_numpy(bits.astype(np.float32) * np.float32(2.0**-24))
                found[low : low + step] = (drawn * 2 - 1) * bounds[torch.from_numpy(of_type)][:, None]
            return found

        self.name, self.table.initial = f"{name}.rows", initial

    def _apply(self, fn: Any, recurse: bool = True) -> LearntRows:
        self.table.change(fn)
        return super()._apply(fn, recurse)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        if self.table.file is None:
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
        if self.table.file is not None:
            return
        found, shape = state_dict.get(f"{prefix}rows"), list(self.table.shape)
        if found is None:
            missing_keys.append(f"{prefix}rows")
        elif list(found.shape) != shape:
            error_msgs.append(f"{prefix}rows: rows {list(found.shape)}, and the graph needs {shape}")
        else:
            with torch.no_grad():
                self.table.take(found)


class _ReadRows(torch.autograd.Function):
    """Copies rows out of a table, and puts their gradient into a list: the table itself gets none."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, table: RowTable, rows: Tensor, gradients: list[RowGradient]) -> Tensor:
        ctx.rows, ctx.gradients = rows, gradients
        return table.read(rows)

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
        nodes.table.train()

    def gradient(self, seeds: int) -> RowGradient | None:
        """Returns the gradient of an optimiser step over a number of seeds, None without any; removes it from the module."""
        found = summed(self.nodes.taken())
        return None if found is None else RowGradient(found.rows, found.values / seeds)

    @torch.no_grad()
    def step(self, gradient: RowGradient, rate: float, number: int) -> None:
        """Updates rows by their mean gradient over the seeds, in the step of this number in the run, from 1."""
        table, size = self.nodes.table, rate * math.sqrt(1 - self.beta2**number) / (1 - self.beta1**number)
        # A file is asked for many rows at a time.
        most = UPDATED_VALUES if table.file is None else FILLED_VALUES
        count = max(1, most // max(1, gradient.values.shape[1]))
        for rows, values in zip(gradient.rows.split(count), gradient.values.split(count), strict=True):
            old, mean, square = table.records(rows)
            # As old + (new - old) * (1 - beta): torch's order of roundings.
            mean = values.sub(mean).mul_(1 - self.beta1).add_(mean)
            square = values.pow(2).sub_(square).mul_(1 - self.beta2).add_(square)
            table.write(rows, mean.div(square.sqrt().add_(self.eps)).mul_(-size).add_(old), mean, square)

    def state(self) -> dict[str, Tensor]:
        """Returns the moments, float[n, H] each, by name; of rows in a file their states, u8[n], when the disk has them."""
        table = self.nodes.table
        if table.file is not None:
            return {"rows/states": table.file.sync()}
        return {"rows/mean": table.mean, "rows/square": table.square}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned; raises ValueError if a file lacks."""
        table = self.nodes.table
        if table.file is not None:
            table.file.restore(state["rows/states"])
        else:
            table.mean.copy_(state["rows/mean"])
            table.square.copy_(state["rows/square"])


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
