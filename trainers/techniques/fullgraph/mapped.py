"""Layers that map rows before they sum them: every node's row is mapped once, with its own chunk, and not in each chunk that reads it.

A chunk then loads mapped rows as neighbours, and its backward pass sends the gradients of mapped rows back. The map itself and its gradient
are row-wise passes over the chunks' own nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernels.types import Array
from trainers.models.ops import add_gradient
from trainers.models.precision import BF16, computing, widened
from trainers.record.ledger import Line
from trainers.record.timeline import COMPUTE
from trainers.techniques.fullgraph.buffers import Loadable, Mover, Place
from trainers.techniques.fullgraph.chunk_gradients import ChunkGradients
from trainers.techniques.fullgraph.host_rows import HostRows
from trainers.techniques.fullgraph.lists import Walk


def maps_apart(layer: Any, in_width: int) -> bool:
    """Returns whether a layer's map is a pass of its own: where it makes rows no wider than the in_width columns that it reads."""
    return getattr(layer, "maps_apart", False) and layer.projected_width <= in_width


@dataclass(frozen=True, kw_only=True)
class MapPasses:
    """The passes of a layer's map over the own nodes of all chunks.

    Attributes:
        walk, mover, dtype, gradients: as for `Passes`.
    """

    walk: Walk
    mover: Mover
    dtype: str
    gradients: ChunkGradients | None = None

    def forward(self, layer: Any, index: int, rows: Loadable, out: HostRows) -> HostRows:
        """Returns `out` with the mapped rows of all nodes.

        Args:
            layer, index: the layer and its number.
            rows: the rows that it reads.
        """
        for place, j, ids in (each for of_step in self._chunks() for each in of_step):
            with place.active(), torch.no_grad():
                read = self.mover.loaded(rows, ids, Line("h2d", "output", "forward", index), place.part, j)
                with self._computing(place, j):
                    mapped = widened(layer.project(read))
                self.mover.store(mapped, ids, out, Line("d2h", "output", "forward", index), place.part, j)
        self.mover.settle()
        return out

    def backward(self, layer: Any, index: int, rows: Loadable, gradients: HostRows, sums: HostRows | None) -> None:
        """Adds the gradients of the map's parameters to the model, and those of the rows that it reads to the host's.

        Args:
            layer, index, rows: those of the forward pass.
            gradients: gradients of the mapped rows.
            sums: receives the gradients of the rows, which its nodes' own have been written to if it reads own rows; None if they are
                not needed.
        """
        line = Line("h2d", "output", "backward", index)
        leave = self.mover.add if layer.reads_own else self.mover.store
        for of_step in reversed(self._chunks()):
            for place, j, ids in reversed(of_step):
                adding = nullcontext() if self.gradients is None else self.gradients.of(place.part)
                with adding, place.active():
                    above = self.mover.loaded(gradients, ids, Line("h2d", "gradient", "backward", index), place.part, j)
                    read = self.mover.loaded(rows, ids, line, place.part, j)
                    into = None if sums is None or layer.reads_own else sums.in_place(ids, place.device, "work")
                    with self._computing(place, j):
                        found = self._differentiated(layer, read, above, sums is not None, into)
                    if sums is not None:
                        assert found is not None
                        leave(found, ids, sums, Line("d2h", "own_gradient", "backward", index), place.part, j)
            if self.gradients is not None:
                self.gradients.add(down=True)
        self.mover.settle()

    def _differentiated(
        self, layer: Any, read: Tensor, above: Tensor, needed: bool, into: Tensor | None
    ) -> Tensor | None:
        """Adds the gradient of the map's parameters; returns that of the rows, if it is needed, in `into` if that is given."""
        if self.dtype != BF16:
            # A product has gradients that need none of its results: the map is not computed again.
            with torch.no_grad():
                add_gradient(layer.map_weight, above.T @ read)
                return torch.mm(above, layer.map_weight, out=into) if needed else None
        read = read.detach().requires_grad_(needed)
        with torch.enable_grad():
            mapped = widened(layer.project(read))
        mapped.backward(above)
        return read.grad

    def _chunks(self) -> list[list[tuple[Place, int, Array]]]:
        """Returns every part's place, the step, and the ids of the chunk's nodes, step by step, for the chunks that have some."""
        steps = range(self.walk.num_steps)
        found = ([(place, j, self.walk.dst_ids[place.part][j]) for place in self.mover.places] for j in steps)
        return [[each for each in of_step if len(each[2])] for of_step in found]

    @contextmanager
    def _computing(self, place: Place, j: int) -> Iterator[None]:
        with self.mover.span(place.part, COMPUTE, j), computing(self.dtype, place.device.torch_device):
            yield
