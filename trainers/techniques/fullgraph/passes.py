"""Forward and backward passes of one layer over all chunks (HongTu, Algorithm 1 and section 4.2).

Between two passes everything is on the host: the output rows of every layer, the gradients of the layer that was done last, and the
aggregates of layers that are cached. A device holds one chunk of one layer: a buffer of neighbour rows, in the backward pass a buffer of
their gradients, and the layer's results.

The backward pass of a chunk starts from the gradients of its output rows. If the layer's aggregate has no parameters (`cacheable`) it is
loaded, or with `hybrid = false` computed again from the neighbours' rows, and only the update is differentiated by autograd; the gradient
of the aggregate then goes back to the neighbours by the kernel, without a forward pass. Both ways give the same bits, since the aggregate
is the same. If it has parameters (attention) the whole layer is computed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernels.types import Block
from trainers.models.layer import LayeredModel
from trainers.models.masks import StepRandom
from trainers.models.own import OwnLayers, seeded
from trainers.models.precision import computing, kept_dtype, widened
from trainers.record.ledger import Line
from trainers.record.timeline import COMPUTE
from trainers.techniques.fullgraph.buffers import Loadable, Mover, Place
from trainers.techniques.fullgraph.host_rows import HostRows
from trainers.techniques.fullgraph.lists import Incoming, Walk
from trainers.techniques.fullgraph.supply import ChunkBlocks, HostRequest, Supply, supplies

BUFFER, ABOVE, AGGREGATE, OWN = "neighbours", "gradients", "aggregates", "own rows"
"""The host data of a step: rows of the buffer; for its own nodes the gradients of outputs, cached aggregates and inputs."""


@dataclass(kw_only=True)
class Passes:
    """The shared state of the passes of all layers.

    Attributes:
        model: the model, on the devices.
        walk, blocks: nodes of the steps and rows that they move, and their blocks.
        mover: the mover of rows between the places of the parts.
        dtype: the key of the train table.
        hybrid: whether aggregates are cached if layers allow it.
        folder: folder of rows that do not fit into memory, None for memory.
    """

    model: LayeredModel
    walk: Walk
    blocks: ChunkBlocks
    mover: Mover
    dtype: str
    hybrid: bool
    folder: Path | None

    @property
    def num_steps(self) -> int:
        """Number of steps of a pass."""
        return len(self.walk.dst_ids[0])

    def host_rows(self, width: int) -> HostRows:
        """Returns rows of all nodes on the host, not yet written."""
        device, num_nodes = self.mover.places[0].device, self.blocks.topology.num_nodes
        return HostRows(num_nodes, width, kept_dtype(self.dtype), device, self.folder, self.mover.threads)

    @contextmanager
    def computing(self, index: int, place: Place, j: int, random: StepRandom) -> Iterator[None]:
        """Returns the context in which a chunk of a layer is computed, in both passes alike.

        A user's layers draw anew from torch's generator for each chunk, and draw the same again in its backward pass.
        """
        with self.mover.span(place.part, COMPUTE, j), computing(self.dtype, place.device.torch_device):
            if not isinstance(self.model, OwnLayers):
                yield
                return
            chunk = (index * len(self.mover.places) + place.part) * self.num_steps + j
            with seeded(replace(random, position=chunk + 1)):
                yield

    def forward(self, index: int, rows: Loadable, random: StepRandom) -> tuple[HostRows, HostRows | None]:
        """Computes a layer for all nodes.

        Args:
            index: number of the layer.
            rows: the rows that it reads.
            random: the masks.

        Returns:
            Its output rows, and its aggregates if they are cached.
        """
        layer: Any = self.model.layers[index]
        buffers, neighbours = self._buffers(rows.width), Line("h2d", "neighbour", "forward", index)
        kept: dict[str, HostRows] = {}

        def keep(kind: str, found: Tensor, part: int, j: int) -> None:
            if kind not in kept:
                kept[kind] = self.host_rows(found.shape[1])
            self.mover.store(
                found, self.walk.dst_ids[part][j], kept[kind], Line("d2h", kind, "forward", index), part, j
            )

        def wanted(part: int, j: int) -> dict[str, HostRequest]:
            return {BUFFER: HostRequest(rows, self.walk.lists[part][j].up.ids, neighbours)}

        for j, found in supplies(self.mover, self.blocks, self.walk.dst_ids, range(self.num_steps), wanted):
            self._bring(buffers, found, [each[j].up for each in self.walk.lists], neighbours, j)
            for place, supply in zip(self.mover.places, found, strict=True):
                part = place.part
                if not supply.has_block:
                    continue
                with place.active(), torch.no_grad(), supply.block() as block:
                    masks = random.layer(index + 1, block.dst_ids)
                    with self.computing(index, place, j, random):
                        h_src = buffers[part][: block.num_src]
                        agg = layer.aggregate(block, h_src, masks)
                        out = widened(layer.update(agg, _own(h_src, block), masks))
                    keep("output", out, part, j)
                    if self.hybrid and splits(layer):
                        keep("checkpoint", widened(agg), part, j)
                    del agg, out, h_src
        self.mover.settle()
        return kept["output"], kept.get("checkpoint")

    def backward(
        self,
        index: int,
        rows: Loadable,
        aggregates: HostRows | None,
        gradients: HostRows,
        sums: HostRows | None,
        random: StepRandom,
    ) -> None:
        """Adds the gradients of a layer's parameters to the model, and those of its input rows to the host's.

        Args:
            index: number of the layer.
            rows, random: those of its forward pass.
            aggregates: its cached aggregates, or None.
            gradients: gradients of its output rows.
            sums: receives the gradients of the rows that it reads; None if they are not needed.
        """
        reload = aggregates is None
        buffers = self._buffers(rows.width) if reload else []
        grads = self._buffers(rows.width) if sums is not None else []
        neighbours, leaving = Line("h2d", "neighbour", "backward", index), Line("d2h", "gradient", "backward", index)

        def wanted(part: int, j: int) -> dict[str, HostRequest]:
            ids = self.walk.dst_ids[part][j]
            found = {ABOVE: HostRequest(gradients, ids, Line("h2d", "gradient", "backward", index))}
            if aggregates is None:
                return found | {BUFFER: HostRequest(rows, self.walk.lists[part][j].down.ids, neighbours)}
            found[AGGREGATE] = HostRequest(aggregates, ids, Line("h2d", "checkpoint", "backward", index))
            if self.model.layers[index].reads_own:  # pyright: ignore[reportAttributeAccessIssue]
                found[OWN] = HostRequest(rows, ids, Line("h2d", "output", "backward", index))
            return found

        for j, found in supplies(self.mover, self.blocks, self.walk.dst_ids, range(self.num_steps)[::-1], wanted):
            if reload:
                self._bring(buffers, found, [each[j].down for each in self.walk.lists], neighbours, j)
            for place, supply in zip(self.mover.places, found, strict=True):
                if supply.has_block:
                    held = buffers[place.part] if reload else None
                    grad = grads[place.part] if grads else None
                    with place.active(), supply.block() as block:
                        self._chunk_backward(index, j, place, block, held, supply, grad, random)
            if sums is not None:
                up = [each[j].up for each in self.walk.lists]
                self.mover.pull(grads, up, Line("d2d", "gradient", "backward", index), j)
                for place in self.mover.places:
                    self.mover.flush(grads[place.part], up[place.part], sums, leaving, place.part, j)
        self.mover.settle()

    def _chunk_backward(
        self,
        index: int,
        j: int,
        place: Place,
        block: Block,
        held: Tensor | None,
        supply: Supply,
        grads: Tensor | None,
        random: StepRandom,
    ) -> None:
        layer: Any = self.model.layers[index]
        wanted, masks = grads is not None, random.layer(index + 1, block.dst_ids)
        above, agg, own, source = supply.take(ABOVE), None, None, None
        if held is None:
            agg = supply.take(AGGREGATE)
            if layer.reads_own:
                own = supply.take(OWN)
        else:
            own = _own(held[: block.num_src], block)
        with torch.enable_grad():
            with self.computing(index, place, j, random):
                own = None if own is None else own.detach().requires_grad_(wanted)
                if splits(layer):
                    if agg is None:
                        assert held is not None
                        with torch.no_grad():
                            agg = layer.aggregate(block, held[: block.num_src], masks)
                    agg = agg.detach().requires_grad_(wanted)
                    out = layer.update(agg, own, masks)
                else:
                    assert held is not None
                    source = held[: block.num_src].detach().requires_grad_(wanted)
                    out = layer.update(layer.aggregate(block, source, masks), own, masks)
            widened(out).backward(above)
            if grads is None:
                return
            if splits(layer):
                assert agg is not None and agg.grad is not None
                grads[: block.num_src] += layer.aggregate_backward(block, agg.grad)
            elif source is not None and source.grad is not None:
                grads[: block.num_src] += source.grad
            if own is not None and own.grad is not None:
                grads[torch.as_tensor(block.dst_pos, device=grads.device).long()] += own.grad

    def _bring(
        self, buffers: Sequence[Tensor], found: Sequence[Supply], lists: Sequence[Incoming], line: Line, j: int
    ) -> None:
        """Fills the buffers for a step (Algorithm 2)."""
        for place, supply, incoming in zip(self.mover.places, found, lists, strict=True):
            with place.active():
                supply.fill(BUFFER, buffers[place.part], incoming.rows)
        self.mover.fetch(buffers, lists, Line("d2d", line.kind, line.phase, line.layer), j)

    def _buffers(self, width: int) -> list[Tensor]:
        """Returns a buffer of zeros per part: unused rows must not hold NaN."""
        made = []
        for place, count in zip(self.mover.places, self.walk.buffer_rows, strict=True):
            with place.active():
                made.append(
                    place.device.alloc((count, width), getattr(torch, kept_dtype(self.dtype)), "buffer").zero_()
                )
        return made


def splits(layer: Any) -> bool:
    """Returns whether the gradient of a layer's aggregate needs no forward pass, so that the update alone is differentiated."""
    return layer.cacheable and hasattr(layer, "aggregate_backward")


def _own(h_src: Tensor, block: Block) -> Tensor:
    return h_src[torch.as_tensor(block.dst_pos, device=h_src.device).long()]
