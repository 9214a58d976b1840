"""The supply of a step: its inputs, loaded onto a device while the step before it is computed (HongTu, sections 4.3 and 6; double buffers).

A part's buffer holds rows in place, so that those which stay are never moved; new rows cannot be written into it before the step that uses
it is done. They are loaded into separate memory instead, on a loader's thread and, on a GPU, a stream of its own, and are put in their
places when their step begins. The chunk's block and the rows that a backward pass reads of its nodes are loaded likewise. One step is
computed while the next is loaded: a device holds two supplies at most.

If a device shares the host's memory and no link is modelled, loading is a copy by the same cores, and nothing is loaded ahead: rows go
straight to their places. The transfers, and every bit of the result, are the same in both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from graphmill.kernels.blocks.transpose import order_weights, transpose
from graphmill.kernels.types import Array, Block, Topology
from graphmill.trainers.batches.batch import DATA_WEIGHTS, attach_weights, block_bytes, send_blocks
from graphmill.trainers.batches.edge_rows import EdgeRows, place_edges
from graphmill.trainers.batches.flow import Task, Work, flow
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.record.ledger import Ledger, Line
from graphmill.trainers.rows.source import RowIds
from graphmill.trainers.techniques.fullgraph.rows.buffers import Mover
from graphmill.trainers.techniques.fullgraph.rows.host_rows import HostRows, Place
from graphmill.trainers.techniques.fullgraph.rows.lists import Steps

LOADER = "loader"


class ChunkBlocks:
    """Prepares the blocks of steps, and keeps as many of them on the host as a bound allows; the others are made anew in every pass.

    Threads may ask for blocks of different steps at once.

    Args:
        topology: the graph, whose degrees decide the weights.
        model: the model, which needs weights or relations on the edges.
        most_bytes: bound on the bytes of kept blocks.
        edge_rows: the rows of edges, which each pass that computes aggregates gathers anew; None if the model reads none.
    """

    def __init__(
        self, steps: Steps, topology: Topology, model: LayeredModel, most_bytes: int, edge_rows: EdgeRows | None = None
    ):
        self.steps, self.topology, self.model, self.edge_rows = steps, topology, model, edge_rows
        self._kept: dict[tuple[int, int], _Made] = {}
        self._free_bytes, self._lock = most_bytes, Lock()

    @contextmanager
    def on(self, part: int, step: int, device: Device, ledger: Ledger, aggregates: bool = True) -> Iterator[Block]:
        """Yields the block of a step, with its transpose, while it is on a device.

        Args:
            aggregates: whether aggregates are computed from it, for which it has the rows of its edges, if the model reads some.
        """
        made = self._kept.get((part, step))
        if made is None:
            made = self._made(part, step)
            found = made.block
            ordered = found.weight.nbytes if found.weight is not None and sums_back(self.model, found, device) else 0
            num_bytes = block_bytes((found,)) + made.edge_ids.nbytes + ordered
            with self._lock:
                stays = num_bytes <= self._free_bytes
                self._free_bytes -= num_bytes * stays
            if stays:
                if ordered:
                    order_weights(found)
                self._kept[part, step] = made
        rows = self.edge_rows if aggregates else None
        held = block_bytes((made.block,)) + (0 if rows is None else rows.num_bytes(len(made.edge_ids)))
        with device.holding(held, "topology"):
            block = send_blocks((made.block,), device, ledger)[0]
            if rows is not None:  # the kept block is left without them
                gathered = rows.gather(RowIds(made.edge_ids), len(made.edge_ids), device, ledger)
                block = replace(block, edge_rows=gathered)
            yield block

    def _made(self, part: int, step: int) -> _Made:
        chunk = self.steps.step(part, step)
        # Unused rows do not belong to a node; any node's number is valid for them.
        block, topology = transpose(replace(chunk.block, src_ids=np.maximum(chunk.block.src_ids, 0))), self.topology
        weighs = self.model.edge_weight in DATA_WEIGHTS or self.model.reads_weights
        if weighs and topology.weights is not None:
            block.weight = _of_edges(topology.weights, topology, chunk.dst_ids)
        attach_weights((block,), topology, self.model.edge_weight)
        if self.model.reads_relations and topology.edge_types is not None:
            block.edge_type = _of_edges(topology.edge_types, topology, chunk.dst_ids)
        edge_ids = np.zeros(0, np.int64)
        if self.edge_rows is not None:
            block.edge_id = _of_edges(topology.edge_ids, topology, chunk.dst_ids)
            edge_ids, block.edge_id = place_edges((block,)), None
        return _Made(block, edge_ids)


class _Made(NamedTuple):
    # The block of a step on the host.
    block: Block
    # i64[U], the edges whose rows it reads, ascending; none without rows of edges.
    edge_ids: Array


def sums_back(model: LayeredModel, block: Block, device: Device) -> bool:
    """Returns whether weighted sums of a model over a block of the host send their gradients back on this machine's own cores."""
    return device.holds(block.indices) and any(hasattr(layer, "aggregate_backward") for layer in model.layers)


def _of_edges(values: Array | None, topology: Topology, node_ids: Array) -> Array:
    """Returns [edges], the values [E] of the edges of nodes, row by row in the order of the graph, which is that of a chunk."""
    starts, ends = topology.indptr[node_ids], topology.indptr[node_ids + 1]
    lengths = ends - starts
    before = np.cumsum(lengths) - lengths
    assert values is not None
    return values[np.arange(lengths.sum()) + np.repeat(starts - before, lengths)]


@dataclass(kw_only=True)
class Supply:
    """What a pass asks for in a step for one part: rows of the host by name, and the chunk's block. They come ahead, or on demand.

    Attributes:
        ids: ids[v], the nodes that the pass computes; without any it needs no block.
        aggregates: whether aggregates are computed from the block.
    """

    mover: Mover
    blocks: ChunkBlocks
    place: Place
    step: int
    ids: Array
    aggregates: bool = True
    _asked: dict[str, tuple[HostRows, Array, Line]] = field(default_factory=dict)
    _staged: dict[str, Tensor] = field(default_factory=dict)
    _block: Block | None = None
    _held: ExitStack = field(default_factory=ExitStack)

    @property
    def part(self) -> int:
        """Number of the part."""
        return self.place.part

    def ask(self, name: str, rows: HostRows, ids: Array, line: Line) -> None:
        """Asks for rows of nodes under a name; `line` books them."""
        self._asked[name] = rows, ids, line

    def bring(self) -> Supply:
        """Loads everything; called on a loader's thread."""
        device = self.place.device
        with device.working(), device.preparing():
            for name, (rows, ids, line) in self._asked.items():
                if len(ids):
                    self._staged[name] = self.mover.staged(rows.stage, ids, line, self.part)
            if len(self.ids):
                self._block = self._sent_block()
            handed = [*self._staged.values(), *([] if self._block is None else [self._block.src_ids])]
            device.hand_over(handed)
        return self

    def fill(self, name: str, buffer: Tensor, places: Array | None) -> None:
        """Writes the rows named `name` to rows of a buffer."""
        rows, ids, line = self._asked[name]
        if not len(ids):
            return
        if name not in self._staged and rows.loads_to(self.place.device):
            with self.mover.span(self.part, "h2d", self.step):
                self.mover.staged(partial(rows.load, out=buffer, places=places), ids, line, self.part)
            return
        taken = self.take(name)
        assert taken is not None
        self.mover.put(taken, buffer, places, self.part)

    def take(self, name: str) -> Tensor | None:
        """Returns the rows named `name`, float[c, F] on the device; None if the pass does not ask for them."""
        if name not in self._asked:
            return None
        rows, ids, line = self._asked[name]
        staged = self._staged.pop(name, None)
        if staged is None:
            return self.mover.loaded(rows, ids, line, self.part, self.step)
        return rows.finish(staged, ids, self.place.device, self.mover.ledger)

    def loaded(self, rows: HostRows, line: Line) -> Tensor:
        """Returns rows of the nodes that the pass computes, float[v, F] on the device, loaded now."""
        return self.mover.loaded(rows, self.ids, line, self.part, self.step)

    @contextmanager
    def block(self) -> Iterator[Block]:
        """Yields the chunk's block, with its transpose, while it is on the device."""
        with self._held:
            block, self._block = self._block or self._sent_block(), None
            yield block

    def _sent_block(self) -> Block:
        block = self.blocks.on(self.part, self.step, self.place.device, self.mover.ledger, self.aggregates)
        return self._held.enter_context(block)

    def close(self) -> None:
        """Releases the unused inputs."""
        self._staged.clear()
        self._block = None
        self._held.close()


def supplies_ahead(
    mover: Mover, order: Sequence[int], supply: Callable[[Place, int], Supply]
) -> Iterator[tuple[int, list[Supply]]]:
    """Yields every step of a pass with the supplies of all parts, which are loaded while the step before is computed.

    Args:
        supply: returns what the pass asks for in a step for the part of a place.

    Raises:
        OverBudget: a device lacks memory for a supply.
    """
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
