"""Forward and backward passes of one layer over all chunks (HongTu, Algorithm 1 and section 4.2).

Between two passes everything is on the host: the output rows of every layer, the gradients of the layer that was done last, and the
aggregates of layers that are cached. A device holds one chunk of one layer: a buffer of neighbour rows, in the backward pass a buffer of
their gradients, and the layer's results.

The backward pass of a chunk starts from the gradients of its output rows. If the layer's aggregate has no parameters (`cacheable`) it is
loaded, or with `hybrid = false` computed again from the neighbours' rows, and only the update is differentiated by autograd; the gradient
of the aggregate then goes back to the neighbours by the kernel, without a forward pass. Both ways give the same bits, since the aggregate
is the same. If the update ends plainly, and its output lies where the device computes, its gradient follows from the output, and nothing
is computed again; the bits are those of autograd. If it has parameters (attention) the whole layer is computed again. A layer that maps
rows before it sums them has its map in a pass of its own (mapped.py), and the chunks read mapped rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from graphmill.kernels.types import Array, Block
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.masks import LayerRandom, StepRandom
from graphmill.trainers.models.own import OwnLayers, seeded
from graphmill.trainers.models.precision import BF16, computing, kept_dtype, widened
from graphmill.trainers.record.ledger import Ledger, Line
from graphmill.trainers.record.timeline import COMPUTE
from graphmill.trainers.techniques.fullgraph.buffers import Loadable, Mover
from graphmill.trainers.techniques.fullgraph.chunk_gradients import ChunkGradients
from graphmill.trainers.techniques.fullgraph.host_rows import HostRows
from graphmill.trainers.techniques.fullgraph.lists import Incoming, Trades, Walk
from graphmill.trainers.techniques.fullgraph.mapped import MapPasses, maps_apart
from graphmill.trainers.techniques.fullgraph.places import Place
from graphmill.trainers.techniques.fullgraph.reads import (
    ABOVE,
    AGGREGATE,
    BUFFER,
    OWN,
    PassedRows,
    Reads,
    differentiated,
    splits,
)
from graphmill.trainers.techniques.fullgraph.replicas import Replicas
from graphmill.trainers.techniques.fullgraph.supply import ChunkBlocks, HostRequest, Supply, supplies, with_blocks


@dataclass(kw_only=True)
class Passes:
    """The shared state of the passes of all layers.

    Attributes:
        replicas: the model, on each device.
        walk, blocks: nodes of the steps and rows that they move, and their blocks.
        mover: the mover of rows between the places of the parts.
        dtype: the key of the train table.
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

    @property
    def num_steps(self) -> int:
        """Number of steps of a pass."""
        return self.walk.num_steps

    @cached_property
    def num_nodes(self) -> int:
        """Number of nodes of this rank's parts."""
        return sum(len(ids) for of_part in self.walk.dst_ids.values() for ids in of_part)

    def host_rows(self, width: int) -> HostRows:
        """Returns rows of all nodes of this rank's parts on the host, not yet written."""
        device, dtype, threads = self.mover.places[0].device, kept_dtype(self.dtype), self.mover.threads
        lends = not isinstance(self.model, OwnLayers)  # a user's layer may change the rows that it is given
        num_nodes = self.blocks.topology.num_nodes if self.rows_of is None else self.num_nodes
        return HostRows(num_nodes, width, dtype, device, self.folder, threads, lends, self.rows_of)

    def adding(self, place: Place) -> AbstractContextManager[None]:
        """Returns a context in which a part's chunk is differentiated."""
        return nullcontext() if self.gradients is None else self.gradients.of(place)

    @contextmanager
    def computing(self, index: int, place: Place, j: int, random: StepRandom) -> Iterator[None]:
        """Returns the context in which a chunk of a layer is computed, in both passes alike.

        A user's layers draw anew from torch's generator for each chunk, and draw the same again in its backward pass. They compute on the
        CPU, one chunk at a time.
        """
        with self.mover.span(place.part, COMPUTE, j), computing(self.dtype, place.device.torch_device):
            if not isinstance(self.model, OwnLayers):
                yield
                return
            chunk = (index * self.walk.num_parts + place.part) * self.num_steps + j
            with seeded(replace(random, position=chunk + 1)):
                yield

    def maps_apart(self, index: int, rows: Loadable) -> bool:
        """Returns whether a layer's map is a pass of its own over the rows that it reads."""
        return maps_apart(self.model.layers[index], rows.width)

    def forward(self, index: int, rows: Loadable, random: StepRandom, summed: HostRows | None = None) -> PassedRows:
        """Computes a layer for all nodes.

        Args:
            index: number of the layer.
            rows: the rows that it reads.
            random: the masks.
            summed: its aggregates, if they are known.

        Returns:
            Its output rows, and what the backward pass reads.
        """
        layer: Any = self.model.layers[index]
        apart, made = self.maps_apart(index, rows), PassedRows(aggregates=summed)
        source = self._maps().forward(index, rows, self.host_rows(layer.projected_width)) if apart else rows
        keeps = summed is None and self.hybrid and splits(layer, apart)
        made.mapped = source if apart and not keeps else None
        reads = Reads(index=index, layer=layer, rows=rows, source=source, aggregates=summed, apart=apart)
        neighbours = Line("h2d", "neighbour", "forward", index)
        buffers = self._buffers(source.width) if summed is None else {}

        def keep(kind: str, found: Tensor, kept: HostRows | None, part: int, j: int) -> HostRows:
            kept = self.host_rows(found.shape[1]) if kept is None else kept
            self.mover.store(found, self.walk.dst_ids[part][j], kept, Line("d2h", kind, "forward", index), part, j)
            return kept

        def wanted(part: int, j: int) -> dict[str, HostRequest]:
            return reads.of(self.walk.dst_ids[part][j], self._up(part, j, source.sharded).ids, "forward")

        def chunk(place: Place) -> tuple[Tensor | None, Tensor]:
            with place.active(), torch.no_grad(), given[place.part].block() as block:
                held = buffers[place.part][: block.num_src] if summed is None else None
                agg, out = self._chunk_forward(reads, j, place, block, held, given[place.part], random)
                return widened(agg) if keeps else None, out

        for j, found in supplies(self.mover, self.blocks, self.walk.dst_ids, range(self.num_steps), wanted):
            given = with_blocks(found)
            if summed is None:
                self._bring(buffers, found, source, neighbours, j)
            for place, (agg, out) in self.mover.at_places.each(chunk, given):
                made.output = keep("output", out, made.output, place.part, j)
                if agg is not None:
                    made.aggregates = keep("checkpoint", agg, made.aggregates, place.part, j)
                del agg, out
        self.mover.settle()
        return made

    def _chunk_forward(
        self,
        reads: Reads,
        j: int,
        place: Place,
        block: Block,
        held: Tensor | None,
        supply: Supply,
        random: StepRandom,
    ) -> tuple[Tensor, Tensor]:
        """Returns a chunk's aggregate and output."""
        layer, masks = self._layer_of(place, reads.index), random.layer(reads.index + 1, block.dst_ids)
        known = supply.take(AGGREGATE) if held is None else None
        own = supply.take(OWN) if supply.asked(OWN) else None
        with self.computing(reads.index, place, j, random):
            if held is None:
                assert known is not None
                agg = known
            else:
                agg = self._aggregated(layer, block, held, masks, reads.apart)
                own = reads.own(held, block, self.walk.dst_ids[place.part][j], place.device) if own is None else own
            return agg, widened(layer.update(agg, agg[:, :0] if own is None else own, masks))

    def sums(self, index: int, rows: Loadable, ledger: Ledger, random: StepRandom) -> HostRows:
        """Returns the aggregates of a layer for all nodes, without its update.

        Args:
            index, rows, random: as in a forward pass.
            ledger: receives what moves, in place of the passes' own.
        """
        line, buffers, mover = Line("h2d", "neighbour", "forward", index), self._buffers(rows.width), self.mover
        found, kind = None, Line("d2h", "checkpoint", "forward", index)

        def wanted(part: int, j: int) -> dict[str, HostRequest]:
            return {BUFFER: HostRequest(rows, self._up(part, j, rows.sharded).ids, line)}

        def chunk(place: Place) -> Tensor:
            with place.active(), torch.no_grad(), given[place.part].block() as block:
                held = buffers[place.part][: block.num_src]
                with self.computing(index, place, j, random):
                    masks = random.layer(index + 1, block.dst_ids)
                    return widened(self._layer_of(place, index).aggregate(block, held, masks))

        with mover.beside(ledger):
            for j, brought in supplies(mover, self.blocks, self.walk.dst_ids, range(self.num_steps), wanted):
                given = with_blocks(brought)
                self._bring(buffers, brought, rows, line, j)
                for place, agg in mover.at_places.each(chunk, given):
                    found = self.host_rows(agg.shape[1]) if found is None else found
                    mover.store(agg, self.walk.dst_ids[place.part][j], found, kind, place.part, j)
                    del agg
            mover.settle()
        assert found is not None
        return found

    def backward(
        self,
        index: int,
        rows: Loadable,
        kept: PassedRows,
        gradients: HostRows,
        sums: HostRows | None,
        random: StepRandom,
    ) -> None:
        """Adds the gradients of a layer's parameters to the model, and those of its input rows to the host's.

        Args:
            index: number of the layer.
            rows, random: those of its forward pass.
            kept: what its forward pass kept.
            gradients: gradients of its output rows.
            sums: receives the gradients of the rows that it reads; None if they are not needed.
        """
        layer: Any = self.model.layers[index]
        apart, aggregates, source = self.maps_apart(index, rows), kept.aggregates, kept.mapped or rows
        below = self.zeros(layer.projected_width) if apart else sums
        kind = Line("d2h", "own_gradient", "backward", index)
        buffers = self._buffers(source.width) if aggregates is None else {}
        grads = self._buffers(below.width) if below is not None else {}
        reads = Reads(
            index=index, layer=layer, rows=rows, source=source, aggregates=aggregates, apart=apart, output=kept.output
        )

        def wanted(part: int, j: int) -> dict[str, HostRequest]:
            down = self.walk.lists[part][j].down.of(source.sharded)
            return reads.backward(gradients, self.walk.dst_ids[part][j], down.ids)

        def chunk(place: Place) -> Tensor | None:
            held, grad, supply = buffers.get(place.part), grads.get(place.part), given[place.part]
            with self.adding(place), place.active(), supply.block() as block:
                return self._chunk_backward(reads, j, place, block, held, supply, grad, sums, random)

        for j, found in supplies(self.mover, self.blocks, self.walk.dst_ids, range(self.num_steps)[::-1], wanted):
            given = with_blocks(found)
            if buffers:
                self._bring(buffers, found, source, Line("h2d", "neighbour", "backward", index), j)
            for place, own in self.mover.at_places.each(chunk, given):
                assert own is not None or sums is None or not (apart and layer.reads_own)
                if own is not None and sums is not None:  # these are the first: its own map adds to them
                    self.mover.store(own, self.walk.dst_ids[place.part][j], sums, kind, place.part, j)
                del own
            self._leave(index, j, grads, below)
        self.mover.settle()
        if apart and below is not None:
            self._maps().backward(index, rows, below, sums)

    def _up(self, part: int, j: int, sharded: bool) -> Incoming:
        """Returns the rows that enter a part's buffer on the way up."""
        return self.walk.lists[part][j].up.of(sharded)

    def _trade(self, j: int) -> Trades | None:
        """Returns the rows that cross between ranks in a step; None for one process."""
        return self.walk.trades[j] if self.walk.trades else None

    def _leave(self, index: int, j: int, grads: Mapping[int, Tensor], sums: HostRows | None) -> None:
        """Adds the gradients of a step's chunks to the model, and moves those of its rows, if they are needed (Algorithm 3).

        These go to their owners, and to the host if the next step does not need them.
        """
        if self.gradients is not None:
            self.gradients.add()
        if sums is None:
            return
        up, trades = {part: self._up(part, j, sums.sharded) for part in grads}, self._trade(j)
        line, num_parts = Line("d2d", "gradient", "backward", index), self.walk.num_parts
        came = self.mover.pull(grads, up, line, j, num_parts, None if trades is None else trades.up)
        for part in range(num_parts):
            if part in grads:
                line = Line("d2h", "gradient", "backward", index)
                self.mover.flush(grads[part], up[part], sums, line, part, j)
            elif part in came:
                self.mover.add_from_rank(came[part], sums, part, j)

    def _chunk_backward(
        self,
        reads: Reads,
        j: int,
        place: Place,
        block: Block,
        held: Tensor | None,
        supply: Supply,
        grads: Tensor | None,
        sums: HostRows | None,
        random: StepRandom,
    ) -> Tensor | None:
        """Differentiates a layer for a chunk; returns the gradient of its own rows where these are apart from the buffer."""
        layer, apart, ids = self._layer_of(place, reads.index), reads.apart, self.walk.dst_ids[place.part][j]
        masks, held = random.layer(reads.index + 1, block.dst_ids), None if held is None else held[: block.num_src]
        above, agg = supply.take(ABOVE), supply.take(AGGREGATE) if held is None else None
        own = supply.take(OWN) if supply.asked(OWN) else None
        if own is None and held is not None:
            own = reads.own(held, block, ids, place.device)
        context, needed = self.computing(reads.index, place, j, random), (grads is not None, sums is not None)
        if not splits(layer, apart):
            assert held is not None
            update = partial(self._layer, layer, block, masks, apart)
            of_rows, of_own = differentiated(context, update, held, own, above, needed)
        else:
            if agg is None:
                assert held is not None
                with self.computing(reads.index, place, j, random), torch.no_grad():
                    agg = self._aggregated(layer, block, held, masks, apart)
            out = reads.result(ids, place.device) if self.dtype != BF16 else None
            if out is None:
                of_agg, of_own = differentiated(
                    context, lambda rows, own: layer.update(rows, own, masks), agg, own, above, needed
                )
            else:
                with context, torch.no_grad():
                    of_agg, of_own = layer.update_backward(above, out, agg, own, masks, needed)
            of_rows = None if of_agg is None or grads is None else layer.aggregate_backward(block, of_agg)
        if grads is not None and of_rows is not None:
            grads[: block.num_src] += of_rows
            if of_own is not None and not apart:
                grads[torch.as_tensor(block.dst_pos, device=grads.device).long()] += of_own
        return of_own if apart else None

    def _layer_of(self, place: Place, index: int) -> Any:
        """Returns a layer of the model on a part's device."""
        return self.replicas.on(place.device).layers[index]

    def _layer(self, layer: Any, block: Block, masks: LayerRandom, apart: bool, rows: Tensor, own: Tensor) -> Tensor:
        """Returns a layer's output for a chunk."""
        return layer.update(self._aggregated(layer, block, rows, masks, apart), own, masks)

    def _aggregated(self, layer: Any, block: Block, rows: Tensor, masks: LayerRandom, apart: bool) -> Tensor:
        """Returns the aggregate of a chunk from the rows of its sources, which are mapped already if the map is apart."""
        if not apart:
            return layer.aggregate(block, rows, masks)
        # If products are computed from bfloat16, their results were bfloat16; the values are the same.
        return layer.aggregate_projected(block, rows.to(torch.bfloat16) if self.dtype == BF16 else rows, masks)

    def zeros(self, width: int) -> HostRows:
        """Returns rows of zeros of all nodes on the host."""
        found = self.host_rows(width)
        with _disable_current_modes():  # the host's memory is not booked on a device
            torch.from_numpy(found.values).zero_()
        return found

    def sums_below(self, index: int, rows: Loadable) -> HostRows:
        """Returns the sums that the gradients of the rows that a layer reads are added to.

        A layer whose map is a pass of its own gives every node's row a first gradient, in no need of zeros.
        """
        return self.host_rows(rows.width) if self.maps_apart(index, rows) else self.zeros(rows.width)

    def _maps(self) -> MapPasses:
        return MapPasses(
            replicas=self.replicas, walk=self.walk, mover=self.mover, dtype=self.dtype, gradients=self.gradients
        )

    def _bring(
        self, buffers: Mapping[int, Tensor], found: Sequence[Supply], source: Loadable, line: Line, j: int
    ) -> None:
        """Fills the buffers for a step (Algorithm 2)."""
        ways, trades = {part: self.walk.lists[part][j] for part in buffers}, self._trade(j)
        down = line.phase == "backward"
        lists = {part: (each.down if down else each.up).of(source.sharded) for part, each in ways.items()}
        given = {supply.place.part: supply for supply in found}

        def fill(place: Place) -> None:
            with place.active():
                given[place.part].fill(BUFFER, buffers[place.part], lists[place.part].rows)

        self.mover.at_places.run(fill)
        self.mover.fetch(buffers, lists, Line("d2d", line.kind, line.phase, line.layer), j)
        if trades is not None:
            self.mover.receive(buffers, trades.down if down else trades.up, source, line, j)

    def _buffers(self, width: int) -> dict[int, Tensor]:
        """Returns a buffer of zeros per part: unused rows must not hold NaN."""
        made = {}
        for place in self.mover.places:
            shape = (self.walk.buffer_rows[place.part], width)
            with place.active():
                rows = place.device.alloc(shape, getattr(torch, kept_dtype(self.dtype)), "buffer")
                made[place.part] = rows.zero_()
        return made
