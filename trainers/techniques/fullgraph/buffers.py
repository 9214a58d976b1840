"""The buffer of a part, and the transfers between it, its peers and the host (HongTu, Algorithms 2 and 3).

A part has one buffer per pass: its transition rows and the rows that its chunk reads, merged, in the places that the chunk steps define.
Every transfer is booked on the ledger, delayed to a modelled link's speed, and has a phase of its own in the time-line: `h2d`, `d2d`,
`d2h`, and `accumulate`, the host's additions (Figure 9's H2D, D2D and CPU; `compute` is its GPU).

Rows that leave a device are collected at once and arrive later, if devices have a link to the host: they move while the device computes the
next chunk, and are stored or added when that chunk's rows leave. The order of additions is that of the steps and parts in any case.

Parts of one device exchange rows in its memory. That is not a transfer, so nothing is booked for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from kernels.rows.move_rows import add_rows, place_rows, take_rows
from kernels.types import Array
from trainers.devices.link import Link
from trainers.devices.logical import LogicalDevice
from trainers.devices.protocol import Device, kernel_array
from trainers.record.ledger import Ledger, Line
from trainers.record.timeline import STEP, Timeline
from trainers.techniques.fullgraph.host_rows import IDS, HostRows
from trainers.techniques.fullgraph.lists import Incoming

Load = Callable[[Array, Device, Ledger], tuple[Tensor, int]]
"""(ids, device, ledger) -> their rows on the device, and the bytes that crossed the link for them."""


class Loadable(Protocol):
    """Rows on the host that are loaded into buffers.

    Attributes:
        width: number of columns in the buffer.
    """

    width: int

    def stage(self, ids: Array, device: Device, ledger: Ledger) -> tuple[Tensor, int]:
        """Returns rows of nodes on a device, on any thread, which are not to be changed; then the bytes that cross the link for it."""
        ...

    def in_place(self, ids: Array, device: Device) -> Tensor | None:
        """Returns finished rows of nodes where they are; None if a device needs a copy."""
        ...

    def loads_to(self, device: Device) -> bool:
        """Returns whether `load` works: rows need no work between the host and their places in a device's buffer."""
        ...

    def load(self, ids: Array, device: Device, ledger: Ledger, out: Tensor, places: Array | None) -> tuple[Tensor, int]:
        """Writes finished rows of nodes to rows `places` of a buffer; returns it and the bytes that crossed the link."""
        ...

    def finish(self, staged: Tensor, ids: Array, device: Device, ledger: Ledger) -> Tensor:
        """Returns staged rows in the form that the buffer holds, on the thread that computes."""
        ...


@dataclass(frozen=True, kw_only=True)
class Place:
    """The place in which a part computes.

    Attributes:
        part: i, number of the part.
        device: its device.
        several: whether other devices compute as well, so that each books its own memory.
    """

    part: int
    device: Device
    several: bool

    @contextmanager
    def active(self) -> Iterator[None]:
        """Returns a context in which memory is booked on this device."""
        if not (self.several and isinstance(self.device, LogicalDevice)):
            yield
            return
        with _disable_current_modes(), self.device.active():
            yield


class Mover:
    """Moves rows, and records every transfer.

    Args:
        places: the places of all parts.
        ledger, timeline: receive every transfer.
        peer_gbps: speed at which each device receives rows of the others, in GB/s; None for the machine's own speed.
        threads: number of the kernels' threads.
        overlap: whether rows move while a device computes, if that has a link to the host.

    Attributes:
        overlaps: whether they do.
    """

    def __init__(
        self,
        places: Sequence[Place],
        ledger: Ledger,
        timeline: Timeline,
        peer_gbps: float | None,
        threads: int,
        overlap: bool = True,
    ):
        self.places, self.ledger, self.timeline, self.threads = places, ledger, timeline, threads
        self._peer_links = {} if peer_gbps is None else {each.device.index: Link(peer_gbps) for each in places}
        self.overlaps = overlap and any(each.device.remote or each.device.link("h2d") for each in places)
        # (part, step, function that waits for rows and stores or adds them)
        self._leaving: deque[tuple[int, int, Callable[[], None]]] = deque()

    def span(self, part: int, phase: str, step: int) -> AbstractContextManager[None]:
        """Returns a span of the time-line for the work of a part's device, or of the host for it, in a step."""
        return self.timeline.span(f"device {self.places[part].device.index}", phase, step)

    def staged(self, load: Load, ids: Array, line: Line, part: int) -> Tensor:
        """Loads rows of nodes onto a part's device by `load`; on any thread, which records the span."""
        device = self.places[part].device
        link = device.link("h2d")
        since = 0 if link is None else link.now()
        out, num_bytes = load(ids, device, self.ledger)
        self.ledger.crossed(line, num_bytes, requests=len(ids))
        if link is not None:
            link.carry(num_bytes, since)
        return out

    def loaded(self, rows: Loadable, ids: Array, line: Line, part: int, step: int) -> Tensor:
        """Returns rows of nodes on a part's device."""
        with self.span(part, "h2d", step):
            found = self.staged(rows.stage, ids, line, part)
        return rows.finish(found, ids, self.places[part].device, self.ledger)

    def put(self, rows: Tensor, buffer: Tensor, places: Array | None, part: int) -> None:
        """Writes rows that are on a part's device to rows of its buffer."""
        listed = None if places is None else self._sent([places], part)[0]
        place_rows(_array(rows), None, _array(buffer), listed, self.threads)

    def fetch(self, buffers: Sequence[Tensor], lists: Sequence[Incoming], line: Line, step: int) -> None:
        """Copies rows of peers' buffers into the buffers of all parts, which receive them at the same time (Algorithm 2, lines 7 to 9)."""
        with self._exchange(buffers[0], line, step) as book:
            for part, incoming in enumerate(lists):
                with self.places[part].active(), self.span(part, "d2d", step):
                    for peer, theirs, mine in incoming.fetch:
                        listed = self._sent([theirs, mine], part)
                        place_rows(_array(buffers[peer]), listed[0], _array(buffers[part]), listed[1], self.threads)
                        book(part, peer, len(mine))

    def pull(self, buffers: Sequence[Tensor], lists: Sequence[Incoming], line: Line, step: int) -> None:
        """Moves the gradients of fetched rows to their owners, peer after peer (Algorithm 3, lines 3 to 5)."""
        moves = [(part, *each) for part, incoming in enumerate(lists) for each in incoming.fetch]
        with self._exchange(buffers[0], line, step) as book:
            for part, owner, theirs, mine in sorted(moves, key=lambda move: (move[1] - move[0]) % len(buffers)):
                with self.span(owner, "d2d", step), self.places[owner].active():
                    rows = self._taken(buffers[part], mine, part)
                    target = self._sent([theirs], owner)[0]
                    add_rows(_array(rows), None, _array(buffers[owner]), target, self.threads)
                    book(owner, part, len(mine))

    def flush(self, buffer: Tensor, incoming: Incoming, sums: HostRows, line: Line, part: int, step: int) -> None:
        """Moves gradients out of a part's buffer and adds them to the host's (Algorithm 3, lines 7 to 9)."""
        if not len(incoming.rows):
            return

        def add(found: Tensor) -> None:
            with self.timeline.span(STEP, "accumulate", step):
                sums.add(incoming.ids, found)

        with self.places[part].active():
            self._leave(self._taken(buffer, incoming.rows, part), line, part, step, add)

    def store(self, rows: Tensor, ids: Array, kept: HostRows, line: Line, part: int, step: int) -> None:
        """Moves rows that a part computed to the host."""
        self._leave(rows, line, part, step, lambda found: kept.store(ids, found))

    def add(self, rows: Tensor, ids: Array, sums: HostRows, line: Line, part: int, step: int) -> None:
        """Moves gradients of a part's own nodes to the host and adds them to those there."""
        self._leave(rows, line, part, step, lambda found: sums.add(ids, found))

    def settle(self) -> None:
        """Waits for all rows that are on their way to the host, and stores or adds them."""
        while self._leaving:
            self._leaving.popleft()[-1]()

    def _leave(self, rows: Tensor, line: Line, part: int, step: int, done: Callable[[Tensor], None]) -> None:
        """Sends rows to the host, after those of the part's step before have arrived."""
        while any(other == part and before != step for other, before, _ in self._leaving):
            self._leaving.popleft()[-1]()
        link, num_bytes = self.places[part].device.link("d2h"), rows.nbytes
        since = 0 if link is None else link.now()
        with self.span(part, "d2h", step):
            arrived = self.to_host(rows, line, part)

        def arrive() -> None:
            with self.span(part, "d2h", step):
                found = arrived()
                if link is not None:
                    link.carry(num_bytes, since)
            done(found)

        self._leaving.append((part, step, arrive))
        if not self.overlaps:
            self.settle()

    def to_host(self, rows: Tensor, line: Line, part: int) -> Callable[[], Tensor]:
        """Starts to move rows of a part's device to the host, and books their bytes; returns a function that waits and returns them."""
        device = self.places[part].device
        if not device.remote:
            self.ledger.crossed(line, rows.nbytes)
        return device.fetch_later(rows, line, self.ledger)

    def _taken(self, buffer: Tensor, rows: Array, part: int) -> Tensor:
        """Returns rows of a buffer side by side, and leaves zeros in their places (section 6, compaction)."""
        device = self.places[part].device
        out = torch.empty((len(rows), buffer.shape[1]), dtype=buffer.dtype, device=device.torch_device)
        (listed,) = self._sent([rows], part)
        take_rows(_array(buffer), listed, _array(out), self.threads)
        return out

    def _sent(self, lists: Sequence[Array], part: int) -> list[Array]:
        return self.places[part].device.send(lists, IDS, self.ledger)

    @contextmanager
    def _exchange(self, buffer: Tensor, line: Line, step: int) -> Iterator[Callable[[int, int, int], None]]:
        """Yields a function that books rows: (receiving part, giving part, their number). Then waits until every device has its rows.

        All devices receive at once; in Algorithms 2 and 3 no two of them read one device at the same time.
        """
        since = next((link.now() for link in self._peer_links.values()), 0)
        crossed = [0 for _ in self.places]

        def book(part: int, peer: int, num_rows: int) -> None:
            if self.places[part].device is not self.places[peer].device:
                num_bytes = num_rows * buffer.shape[1] * buffer.element_size()
                self.ledger.crossed(line, num_bytes, requests=num_rows)
                crossed[part] += num_bytes

        yield book
        for place, num_bytes in zip(self.places, crossed, strict=True):
            if num_bytes and self._peer_links:
                with self.span(place.part, "d2d", step):
                    self._peer_links[place.device.index].carry(num_bytes, since)


def _array(tensor: Tensor) -> Any:
    """Returns a tensor as kernels take it; a view of another device's rows books nothing on the active device."""
    with _disable_current_modes():
        return kernel_array(tensor)
