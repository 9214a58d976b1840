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
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from kernels.types import Array, Block
from trainers.batches.flow import Task, Work, flow
from trainers.record.ledger import Line
from trainers.techniques.fullgraph.blocks import ChunkBlocks
from trainers.techniques.fullgraph.buffers import Loadable, Mover, Place

LOADER = "loader"


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


class Turn(NamedTuple):
    """The position of a step in a pass; a flow needs nothing else of its planned items."""

    position: int


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
        with device.preparing():
            for name, (rows, ids, line) in self.wanted.items():
                if len(ids):
                    self._staged[name] = self.mover.staged(rows, ids, line, self.place.part)
            if self.has_block:
                self._block = self._held.enter_context(
                    self.blocks.on(self.place.part, self.step, device, self.mover.ledger)
                )
            handed = [*self._staged.values(), *([] if self._block is None else [self._block.src_ids])]
            device.hand_over(handed)
        return self

    def fill(self, name: str, buffer: Tensor, places: Array | None) -> None:
        """Writes the rows named `name` to rows of a buffer."""
        rows, ids, line = self.wanted[name]
        staged = self._staged.pop(name, None)
        if staged is None:
            self.mover.load(rows, ids, buffer, places, line, self.place.part, self.step)
        else:
            self.mover.put(
                rows.finish(staged, ids, self.place.device, self.mover.ledger), buffer, places, self.place.part
            )

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
        if self._block is not None:
            block, self._block = self._block, None
            with self._held:
                yield block
            return
        with self.blocks.on(self.place.part, self.step, self.place.device, self.mover.ledger) as block:
            yield block

    def close(self) -> None:
        """Releases the unused inputs."""
        self._staged.clear()
        self._block = None
        self._held.close()


def supplies(
    mover: Mover,
    blocks: ChunkBlocks,
    places: Sequence[Place],
    order: Sequence[int],
    wanted: Callable[[int, int], Mapping[str, HostRequest]],
    has_block: Callable[[int, int], bool],
) -> Iterator[tuple[int, list[Supply]]]:
    """Yields every step of a pass with the supplies of all parts.

    Args:
        mover, blocks: the loaders of rows and blocks.
        places: the places of the parts.
        order: numbers of the steps.
        wanted: (part, step) -> requested rows by name.
        has_block: (part, step) -> whether the part has nodes in it.

    Raises:
        OverBudget: a device lacks memory for a supply.
    """

    def supply(place: Place, j: int) -> Supply:
        made = {"mover": mover, "blocks": blocks, "place": place, "step": j}
        return Supply(**made, wanted=wanted(place.part, j), has_block=has_block(place.part, j))

    if not mover.overlaps:
        for j in order:
            yield j, [supply(place, j) for place in places]
        return
    # A supply counts as one byte: the queue bounds their number, and devices their bytes.
    tasks = [
        Task(
            name=f"{LOADER} {place.part}",
            num_bytes=lambda item, value: 1,
            work=Work("h2d", lambda lane, item, value, place=place: supply(place, order[item.position]).bring()),
            most_waiting=1,
        )
        for place in places
    ]
    planned: Any = [Turn(position) for position in range(len(order))]
    with closing(flow(planned, tasks, 4 * len(tasks), mover.timeline)) as prepared:
        for item, found in prepared:
            yield order[item.position], list(found)
            for each in found:
                each.close()
            del found, each
