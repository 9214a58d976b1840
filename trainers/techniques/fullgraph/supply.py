"""The supply of a step: its inputs, loaded onto a device while the step before it is computed (HongTu, sections 4.3 and 6; double buffers).

A part's buffer holds rows in place, so that those which stay are never moved; new rows cannot be written into it before the step that uses
it is done. They are loaded into separate memory instead, on a loader's thread and, on a GPU, a stream of its own, and are put in their
places when their step begins. The chunk's block and the rows that a backward pass reads of its nodes are loaded likewise. One step is
computed while the next is loaded: a device holds two supplies at most.

If a device shares the host's memory and no link is modelled, loading is a copy by the same cores, and nothing is loaded ahead: rows go
straight to their places. The transfers, and every bit of the result, are the same in both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from graphmill.kernels.sampling.transpose import order_weights, transpose
from graphmill.kernels.types import Array, Block, Topology
from graphmill.trainers.batches.batch import DATA_WEIGHTS, attach_weights, block_bytes
from graphmill.trainers.batches.flow import Task, Work, flow
from graphmill.trainers.batches.send import send_blocks
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.record.ledger import Ledger, Line
from graphmill.trainers.techniques.fullgraph.buffers import Loadable, Mover
from graphmill.trainers.techniques.fullgraph.lists import Steps
from graphmill.trainers.techniques.fullgraph.places import Place

LOADER = "loader"


class ChunkBlocks:
    """Prepares the blocks of steps, and keeps as many of them on the host as a bound allows; the others are made anew in every pass.

    Threads may ask for blocks of different steps at once.

    Args:
        steps: the source of chunks.
        topology: the graph, whose degrees decide the weights.
        model: the model, which needs weights or relations on the edges.
        most_bytes: bound on the bytes of kept blocks.
    """

    def __init__(self, steps: Steps, topology: Topology, model: LayeredModel, most_bytes: int):
        self.steps, self.topology, self.model = steps, topology, model
        self._kept: dict[tuple[int, int], Block] = {}
        self._free_bytes, self._lock = most_bytes, Lock()

    @contextmanager
    def on(self, part: int, step: int, device: Device, ledger: Ledger) -> Iterator[Block]:
        """Yields the block of a step, with its transpose, while it is on a device."""
        found = self._kept.get((part, step))
        if found is None:
            found = self._made(part, step)
            ordered = found.weight.nbytes if found.weight is not None and sums_back(self.model, device) else 0
            num_bytes = block_bytes((found,)) + ordered
            with self._lock:
                stays = num_bytes <= self._free_bytes
                self._free_bytes -= num_bytes * stays
            if stays:
                if ordered:
                    order_weights(found)
                self._kept[part, step] = found
        with device.holding(block_bytes((found,)), "topology"):
            yield send_blocks((found,), device, ledger)[0]

    def _made(self, part: int, step: int) -> Block:
        chunk = self.steps.step(part, step)
        # Unused rows do not belong to a node; any node's number is valid for them.
        block, topology = transpose(replace(chunk.block, src_ids=np.maximum(chunk.block.src_ids, 0))), self.topology
        if self.model.edge_weight in DATA_WEIGHTS and topology.weights is not None:
            block.weight = _of_edges(topology.weights, topology, chunk.dst_ids)
        attach_weights((block,), topology, self.model.edge_weight)
        if self.model.reads_relations:
            block.edge_type = _of_edges(topology.edge_types, topology, chunk.dst_ids)
        return block


def sums_back(model: LayeredModel, device: Device) -> bool:
    """Returns whether weighted sums of a model send their gradients back on this machine's own cores."""
    return not device.remote and any(hasattr(layer, "aggregate_backward") for layer in model.layers)


def _of_edges(values: Array | None, topology: Topology, node_ids: Array) -> Array:
    """Returns [edges], the values [E] of the edges of nodes, row by row in the order of the graph, which is that of a chunk."""
    starts, ends = topology.indptr[node_ids], topology.indptr[node_ids + 1]
    lengths = ends - starts
    before = np.cumsum(lengths) - lengths
    assert values is not None
    return values[np.arange(lengths.sum()) + np.repeat(starts - before, lengths)]


class HostRequest(NamedTuple):
    """Rows of nodes that a step reads from the host.

    Attributes:
        rows: the rows of all nodes.
        ids: ids[c], the nodes.
        line: line of the ledger.
    """

    rows: Loadable
    ids: Array
    line: Line


@dataclass(kw_only=True)
class Supply:
    """The inputs of one part in one step, loaded ahead of it or on demand.

    Attributes:
        mover, blocks: the loaders of rows and blocks.
        place, step: the part and step that it belongs to.
        wanted: requested rows by name.
        has_block: whether the part has nodes in this step.
    """

    mover: Mover
    blocks: ChunkBlocks
    place: Place
    step: int
    wanted: Mapping[str, HostRequest]
    has_block: bool
    _staged: dict[str, Tensor] = field(default_factory=dict)
    _block: Block | None = None
    _held: ExitStack = field(default_factory=ExitStack)

    def bring(self) -> Supply:
        """Loads everything; called on a loader's thread."""
        device = self.place.device
        with device.working(), device.preparing():
            for name, (rows, ids, line) in self.wanted.items():
                if len(ids):
                    self._staged[name] = self.mover.staged(rows.stage, ids, line, self.place.part)
            if self.has_block:
                self._block = self._sent_block()
            handed = [*self._staged.values(), *([] if self._block is None else [self._block.src_ids])]
            device.hand_over(handed)
        return self

    def fill(self, name: str, buffer: Tensor, places: Array | None) -> None:
        """Writes the rows named `name` to rows of a buffer."""
        (rows, ids, line), part = self.wanted[name], self.place.part
        if not len(ids):
            return
        if name not in self._staged and rows.loads_to(self.place.device):
            with self.mover.span(part, "h2d", self.step):
                self.mover.staged(partial(rows.load, out=buffer, places=places), ids, line, part)
        else:
            self.mover.put(self.take(name), buffer, places, part)

    def asked(self, name: str) -> bool:
        """Returns whether rows named `name` belong to the step."""
        return name in self.wanted

    def take(self, name: str) -> Tensor:
        """Returns the rows named `name`, float[c, F] on the device."""
        rows, ids, line = self.wanted[name]
        staged = self._staged.pop(name, None)
        if staged is None:
            return self.mover.loaded(rows, ids, line, self.place.part, self.step)
        return rows.finish(staged, ids, self.place.device, self.mover.ledger)

    @contextmanager
    def block(self) -> Iterator[Block]:
        """Yields the chunk's block, with its transpose, while it is on the device."""
        with self._held:
            block, self._block = self._block or self._sent_block(), None
            yield block

    def _sent_block(self) -> Block:
        return self._held.enter_context(
            self.blocks.on(self.place.part, self.step, self.place.device, self.mover.ledger)
        )

    def close(self) -> None:
        """Releases the unused inputs."""
        self._staged.clear()
        self._block = None
        self._held.close()


def with_blocks(found: Sequence[Supply]) -> dict[int, Supply]:
    """Returns part -> supply of the parts that have nodes in a step."""
    return {supply.place.part: supply for supply in found if supply.has_block}


def supplies(
    mover: Mover,
    blocks: ChunkBlocks,
    dst_ids: Mapping[int, Sequence[Array]],
    order: Sequence[int],
    wanted: Callable[[int, int], Mapping[str, HostRequest]],
) -> Iterator[tuple[int, list[Supply]]]:
    """Yields every step of a pass with the supplies of all parts.

    Args:
        mover, blocks: the loaders of rows and blocks.
        dst_ids: node ids of each part's chunk in each step; an empty chunk needs no block.
        order: numbers of the steps.
        wanted: (part, step) -> requested rows by name.

    Raises:
        OverBudget: a device lacks memory for a supply.
    """

    def supply(place: Place, j: int) -> Supply:
        made = {"mover": mover, "blocks": blocks, "place": place, "step": j}
        return Supply(**made, wanted=wanted(place.part, j), has_block=len(dst_ids[place.part][j]) > 0)

    if not mover.overlaps:
        for j in order:
            yield j, [supply(place, j) for place in mover.places]
        return
    # A supply counts as one byte: the queue bounds their number, and devices their bytes.
    tasks = [
        Task(
            name=f"{LOADER} {place.part}",
            num_bytes=lambda item, value: 1,
            work=Work("h2d", lambda lane, item, value, place=place: supply(place, order[item.position]).bring()),
            most_waiting=1,
        )
        for place in mover.places
    ]
    # A flow needs only the positions of its planned items.
    planned: Any = [SimpleNamespace(position=position) for position in range(len(order))]
    with closing(flow(planned, tasks, 4 * len(tasks), mover.timeline)) as prepared:
        for item, found in prepared:
            yield order[item.position], list(found)
            for each in found:
                each.close()
            del found, each
