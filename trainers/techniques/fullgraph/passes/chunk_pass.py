"""A pass over all chunks, and what all passes share (HongTu, Algorithm 1 and section 4.2).

Between two passes everything is on the host: the output rows of every layer, the gradients of the layer that was done last, and the
aggregates of layers that are cached. A device holds one chunk of one layer.

There is one loop (`ChunkPass.run`). Kinds of passes say what a chunk asks for, computes and leaves: those of layers (layer_passes.py), of
maps of rows before or in a layer, and of the head (row_passes.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from graphmill.kernels.types import Array
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.own import OwnLayers
from graphmill.trainers.models.products import computing, kept_dtype
from graphmill.trainers.record.ledger import COMPUTE, Line
from graphmill.trainers.techniques.fullgraph.passes.replicas import ChunkGradients, Replicas
from graphmill.trainers.techniques.fullgraph.rows.buffers import Mover
from graphmill.trainers.techniques.fullgraph.rows.host_rows import KeptRows, Place
from graphmill.trainers.techniques.fullgraph.rows.lists import Walk
from graphmill.trainers.techniques.fullgraph.rows.supply import ChunkBlocks, Supply, supplies_ahead

T = TypeVar("T")


@dataclass(kw_only=True)
class Passes:
    """What all passes of a training share.

    Attributes:
        walk, blocks: nodes of the steps and rows that they move, and their blocks.
        mover: the mover of rows between the places of the parts.
        hybrid: whether aggregates are cached if layers allow it.
        folder: folder of rows that do not fit into memory, None for memory.
        gradients: adds the gradients of all devices' and ranks' chunks; None for one process with one model.
        rows_of: i32[N], the row of each node that this rank has on its host; None for all nodes.
    """

    replicas: Replicas
    walk: Walk
    blocks: ChunkBlocks
    mover: Mover
    dtype: str
    hybrid: bool
    folder: Path | None
    gradients: ChunkGradients | None = None
    rows_of: Array | None = None

    @property
    def model(self) -> LayeredModel:
        """The model of the first device."""
        return self.replicas.model

    @cached_property
    def num_nodes(self) -> int:
        """Number of nodes of this rank's parts."""
        return sum(len(ids) for of_part in self.walk.dst_ids.values() for ids in of_part)

    def own(self, node_ids: Array) -> Array:
        """Returns i64[n], the places among some nodes of those of this rank's parts."""
        return np.arange(len(node_ids)) if self.rows_of is None else np.flatnonzero(self.rows_of[node_ids] >= 0)

    def new_rows(self, width: int, node_ids: Array | None = None) -> KeptRows:
        """Returns rows on the host, not yet written.

        Args:
            node_ids: ids[n], distinct: the nodes that have one; None for all nodes of this rank's parts.
        """
        device, dtype, threads = self.mover.places[0].device, kept_dtype(self.dtype), self.mover.threads
        lends = not isinstance(self.model, OwnLayers)  # a user's layer may change the rows that it is given
        num_nodes = all_nodes = self.blocks.topology.num_nodes
        places = self.rows_of
        if node_ids is not None:
            places, num_nodes = np.full(all_nodes, -1, np.int32), len(node_ids)
            places[node_ids] = np.arange(num_nodes, dtype=np.int32)
        elif places is not None:
            num_nodes = self.num_nodes
        return KeptRows(num_nodes, width, dtype, device, self.folder, threads, lends, places)

    def zeros(self, width: int, node_ids: Array | None = None) -> KeptRows:
        """Returns rows of zeros on the host; arguments as in `new_rows`."""
        found = self.new_rows(width, node_ids)
        with _disable_current_modes():  # the host's memory is not booked on a device
            torch.from_numpy(found.values).zero_()
        return found

    def buffers(self, width: int) -> dict[int, Tensor]:
        """Returns a buffer of zeros per part: unused rows must not hold NaN."""
        made = {}
        for place in self.mover.places:
            shape = (self.walk.buffer_rows[place.part], width)
            with place.active():
                rows = place.device.alloc(shape, getattr(torch, kept_dtype(self.dtype)), "buffer")
                made[place.part] = rows.zero_()
        return made


@dataclass
class ChunkPass(Generic[T]):
    """One way over all chunks, step by step. A kind of pass has methods for what its chunks ask for, compute and leave.

    Attributes:
        down: whether steps run downwards.
        parts_down: whether parts take turns from the last one to the first.
        differentiates: whether chunks add to the gradients of the model's parameters; else torch's gradients are off.
        reads_blocks: whether chunks read their blocks; what they ask for is then loaded ahead, if transfers overlap computing.
    """

    passes: Passes
    down = parts_down = differentiates = reads_blocks = False

    @property
    def mover(self) -> Mover:
        """The mover of rows."""
        return self.passes.mover

    def nodes(self, part: int, j: int) -> Array:
        """Returns the nodes that are computed in a step for a part."""
        return self.passes.walk.dst_ids[part][j]

    def ask(self, supply: Supply) -> None:
        """Asks for what is loaded ahead for a part in a step; on any thread."""

    def begin(self, j: int, supplies: Mapping[int, Supply]) -> None:
        """Prepares a step for all parts."""

    def chunk(self, supply: Supply) -> T:
        """Computes a chunk that has nodes, on its device's thread."""
        raise NotImplementedError

    def leave(self, supply: Supply, found: T) -> None:
        """Takes the result of a chunk."""

    def end(self, j: int) -> None:
        """Ends a step, when the results of all chunks are taken."""
        if self.differentiates and self.passes.gradients is not None:
            self.passes.gradients.add(down=self.parts_down)

    def run(self) -> None:
        """Goes through all steps, and waits until all rows that left are on the host."""
        order = range(self.passes.walk.num_steps)
        for j, found in self._supplies(order[::-1] if self.down else order):
            self._step(j, {supply.part: supply for supply in found})
        self.mover.settle()

    def _step(self, j: int, supplies: Mapping[int, Supply]) -> None:
        self.begin(j, supplies)
        with_nodes = [part for part, supply in supplies.items() if len(supply.ids)]

        def computed(place: Place) -> T:
            with self._adding(place), place.active(), torch.set_grad_enabled(self.differentiates):
                return self.chunk(supplies[place.part])

        for place, found in self.mover.at_places.each(computed, with_nodes, down=self.parts_down):
            self.leave(supplies[place.part], found)
            del found
        self.end(j)

    def _supplies(self, order: Sequence[int]) -> Iterator[tuple[int, list[Supply]]]:
        if self.reads_blocks and self.mover.overlaps:
            yield from supplies_ahead(self.mover, order, self._supply)
            return
        for j in order:
            yield j, [self._supply(place, j) for place in self.mover.places]

    def _supply(self, place: Place, j: int) -> Supply:
        supply = Supply(mover=self.mover, blocks=self.passes.blocks, place=place, step=j, ids=self.nodes(place.part, j))
        self.ask(supply)
        return supply

    def _adding(self, place: Place) -> AbstractContextManager[None]:
        """Returns the context in which a part's chunk is computed; it takes the gradients, if other devices or ranks have some, too."""
        gradients = self.passes.gradients
        return gradients.of(place) if self.differentiates and gradients is not None else nullcontext()

    def precision(self, supply: Supply) -> AbstractContextManager[None]:
        """Returns the context of products on a part's device."""
        return computing(self.passes.dtype, supply.place.device.torch_device)

    @contextmanager
    def computing(self, supply: Supply) -> Iterator[None]:
        """Returns the context of a chunk's forward computation, which the time-line records."""
        with self.mover.span(supply.part, COMPUTE, supply.step), self.precision(supply):
            yield

    def model_on(self, supply: Supply) -> LayeredModel:
        """Returns the model on a part's device."""
        return self.passes.replicas.on(supply.place.device)

    def store(self, supply: Supply, rows: Tensor, kept: KeptRows, line: Line) -> None:
        """Moves rows of a chunk's nodes to the host."""
        self.mover.store(rows, supply.ids, kept, line, supply.part, supply.step)
