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

from graphmill.kernels.types import Array
from graphmill.trainers.models.backward import backward_from
from graphmill.trainers.models.ops import add_gradient
from graphmill.trainers.models.precision import BF16, computing, widened
from graphmill.trainers.record.ledger import Line
from graphmill.trainers.record.timeline import COMPUTE
from graphmill.trainers.techniques.fullgraph.buffers import Loadable, Mover
from graphmill.trainers.techniques.fullgraph.chunk_gradients import ChunkGradients
from graphmill.trainers.techniques.fullgraph.host_rows import HostRows
from graphmill.trainers.techniques.fullgraph.lists import Walk
from graphmill.trainers.techniques.fullgraph.places import Place
from graphmill.trainers.techniques.fullgraph.replicas import Replicas


def maps_apart(layer: Any, in_width: int) -> bool:
    """Returns whether a layer's map is a pass of its own: where it makes rows no wider than the in_width columns that it reads."""
    return getattr(layer, "maps_apart", False) and layer.projected_width <= in_width


@dataclass(frozen=True, kw_only=True)
class MapPasses:
    """The passes of a layer's map over the own nodes of all chunks.

    Attributes:
        replicas, walk, mover, dtype, gradients: as for `Passes`.
    """

    replicas: Replicas
    walk: Walk
    mover: Mover
    dtype: str
    gradients: ChunkGradients | None = None

    def forward(self, index: int, rows: Loadable, out: HostRows) -> HostRows:
        """Returns `out` with the mapped rows of all nodes.

        Args:
            index: number of the layer.
            rows: the rows that it reads.
        """
        line = Line("d2h", "output", "forward", index)

        def mapped(place: Place) -> Tensor:
            with place.active(), torch.no_grad():
                read = self.mover.loaded(
                    rows, chunks[place.part], Line("h2d", "output", "forward", index), place.part, j
                )
                with self._computing(place, j):
                    return widened(self._layer(place, index).project(read))

        for j, chunks in enumerate(self._chunks()):
            for place, found in self.mover.at_places.each(mapped, chunks):
                self.mover.store(found, chunks[place.part], out, line, place.part, j)
                del found
        self.mover.settle()
        return out

    def backward(self, index: int, rows: Loadable, gradients: HostRows, sums: HostRows | None) -> None:
        """Adds the gradients of the map's parameters to the model, and those of the rows that it reads to the host's.

        Args:
            index, rows: those of the forward pass.
            gradients: gradients of the mapped rows.
            sums: receives the gradients of the rows, which its nodes' own have been written to if it reads own rows; None if they are
                not needed.
        """
        line, reads_own = Line("h2d", "output", "backward", index), self.replicas.model.layers[index].reads_own
        leave = self.mover.add if reads_own else self.mover.store

        def differentiated(place: Place) -> Tensor | None:
            part, ids = place.part, chunks[place.part]
            adding = nullcontext() if self.gradients is None else self.gradients.of(place)
            with adding, place.active():
                above = self.mover.loaded(gradients, ids, Line("h2d", "gradient", "backward", index), part, j)
                read = self.mover.loaded(rows, ids, line, part, j)
                into = None if sums is None or reads_own else sums.in_place(ids, place.device, "work")
                with self._computing(place, j):
                    return self._differentiated(self._layer(place, index), read, above, sums is not None, into)

        for j, chunks in reversed([*enumerate(self._chunks())]):
            for place, found in self.mover.at_places.each(differentiated, chunks, down=True):
                if sums is not None:
                    assert found is not None
                    kind = Line("d2h", "own_gradient", "backward", index)
                    leave(found, chunks[place.part], sums, kind, place.part, j)
                del found
            if self.gradients is not None:
                self.gradients.add(down=True)
        self.mover.settle()
        self.replicas.wait()

    def _layer(self, place: Place, index: int) -> Any:
        """Returns a layer of the model on a part's device."""
        return self.replicas.on(place.device).layers[index]

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
        backward_from(mapped, above)
        return read.grad

    def _chunks(self) -> list[dict[int, Array]]:
        """Returns part -> ids of its chunk's nodes, step by step, for the chunks that have some."""
        found = (
            {place.part: self.walk.dst_ids[place.part][j] for place in self.mover.places}
            for j in range(self.walk.num_steps)
        )
        return [{part: ids for part, ids in of_step.items() if len(ids)} for of_step in found]

    @contextmanager
    def _computing(self, place: Place, j: int) -> Iterator[None]:
        with self.mover.span(place.part, COMPUTE, j), computing(self.dtype, place.device.torch_device):
            yield
