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
from typing import Any, NamedTuple, Protocol

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


class Loadable(Protocol):
    """Rows on the host that are loaded into buffers.

    Attributes:
        width: number of columns in the buffer.
    """

    width: int

    def load_into(self, ids: Array, out: Tensor, rows: Array | None, device: Device, ledger: Ledger) -> tuple[int, int]:
        """Writes rows of nodes to rows of a buffer; returns (rows, bytes) that crossed the link for it."""
        ...

    def stage(self, ids: Array, device: Device, ledger: Ledger) -> tuple[Tensor, int, int]:
        """Returns rows of nodes in a separate tensor on a device, on any thread; then (rows, bytes) that crossed the link for it."""
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


class Leaving(NamedTuple):
    """Rows on their way to the host.

    Attributes:
        part, step: the part and step that they come from.
        arrived: function that waits for them and returns them.
        num_bytes, since: bytes on the link, and the time from which it could carry them.
        done: function that stores or adds them.
    """

    part: int
    step: int
    arrived: Callable[[], Tensor]
    num_bytes: int
    since: int
    done: Callable[[Tensor], None]


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
        self.peer_gbps = peer_gbps
        self._peer_links = {} if peer_gbps is None else {each.device.index: Link(peer_gbps) for each in places}
        self.overlaps = overlap and any(each.device.remote or each.device.link("h2d") for each in places)
        self._leaving: deque[Leaving] = deque()

    def span(self, part: int, phase: str, step: int) -> AbstractContextManager[None]:
        """Returns a span of the time-line for the work of a part's device, or of the host for it, in a step."""
        return self.timeline.span(f"device {self.places[part].device.index}", phase, step)

    def load(
        self, rows: Loadable, ids: Array, out: Tensor, places: Array | None, line: Line, part: int, step: int
    ) -> None:
        """Loads rows of nodes from the host into a tensor of a part's device."""
        if not len(ids):
            return
        device = self.places[part].device
        with self.span(part, "h2d", step), self._carried(device.link("h2d")) as carry:
            num_rows, num_bytes = rows.load_into(ids, out, places, device, self.ledger)
            self.ledger.crossed(line, num_bytes, requests=num_rows)
            carry(num_bytes)

    def staged(self, rows: Loadable, ids: Array, line: Line, part: int) -> Tensor:
        """Loads rows of nodes into a separate tensor on a part's device; on any thread, which records the span."""
        device = self.places[part].device
        with self._carried(device.link("h2d")) as carry:
            out, num_rows, num_bytes = rows.stage(ids, device, self.ledger)
            self.ledger.crossed(line, num_bytes, requests=num_rows)
            carry(num_bytes)
        return out

    def loaded(self, rows: Loadable, ids: Array, line: Line, part: int, step: int) -> Tensor:
        """Returns rows of nodes on a part's device."""
        with self.span(part, "h2d", step):
            found = self.staged(rows, ids, line, part)
        return rows.finish(found, ids, self.places[part].device, self.ledger)

    def put(self, rows: Tensor, buffer: Tensor, places: Array | None, part: int) -> None:
        """Writes rows that are on a part's device to rows of its buffer."""
        listed = None if places is None else self._sent([places], part)[0]
        place_rows(_array(rows), None, _array(buffer), listed, self.threads)

    def fetch(self, buffers: Sequence[Tensor], lists: Sequence[Incoming], line: Line, step: int) -> None:
        """Copies rows of peers' buffers into the buffers of all parts, which receive them at the same time (Algorithm 2, lines 7 to 9)."""
        since = self._now()
        crossed = [0 for _ in self.places]
        for part, incoming in enumerate(lists):
            with self.places[part].active(), self.span(part, "d2d", step):
                for peer, theirs, mine in incoming.fetch:
                    listed = self._sent([theirs, mine], part)
                    place_rows(_array(buffers[peer]), listed[0], _array(buffers[part]), listed[1], self.threads)
                    crossed[part] += self._between(part, peer, len(mine) * _row_bytes(buffers[part]), len(mine), line)
        self._wait_for_peers(crossed, since, step)

    def pull(self, buffers: Sequence[Tensor], lists: Sequence[Incoming], line: Line, step: int) -> None:
        """Moves the gradients of fetched rows to their owners, peer after peer (Algorithm 3, lines 3 to 5)."""
        by_peer = [{peer: (theirs, mine) for peer, theirs, mine in each.fetch} for each in lists]
        num_parts, since = len(buffers), self._now()
        crossed = [0 for _ in self.places]
        for distance in range(1, num_parts):
            for part in range(num_parts):
                owner = (part + distance) % num_parts
                if owner not in by_peer[part]:
                    continue
                theirs, mine = by_peer[part][owner]
                with self.span(owner, "d2d", step), self.places[owner].active():
                    rows = self._taken(buffers[part], mine, part)
                    target = self._sent([theirs], owner)[0]
                    add_rows(_array(rows), None, _array(buffers[owner]), target, self.threads)
                    crossed[owner] += self._between(part, owner, len(mine) * _row_bytes(rows), len(mine), line)
        self._wait_for_peers(crossed, since, step)

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

    def settle(self) -> None:
        """Waits for all rows that are on their way to the host, and stores or adds them."""
        while self._leaving:
            self._arrive()

    def _leave(self, rows: Tensor, line: Line, part: int, step: int, done: Callable[[Tensor], None]) -> None:
        """Sends rows to the host, after those of the part's step before have arrived."""
        while any(each.part == part and each.step != step for each in self._leaving):
            self._arrive()
        device, num_bytes = self.places[part].device, len(rows) * _row_bytes(rows)
        link = device.link("d2h")
        since = 0 if link is None else link.now()
        with self.span(part, "d2h", step):
            arrived = device.fetch_later(rows, line, self.ledger)
            if not device.remote:
                self.ledger.crossed(line, num_bytes)
        self._leaving.append(Leaving(part, step, arrived, num_bytes, since, done))
        if not self.overlaps:
            self._arrive()

    def _arrive(self) -> None:
        """Waits for the rows that left first."""
        first = self._leaving.popleft()
        with self.span(first.part, "d2h", first.step):
            found, link = first.arrived(), self.places[first.part].device.link("d2h")
            if link is not None:
                link.carry(first.num_bytes, first.since)
        first.done(found)

    def to_host(self, rows: Tensor, line: Line, part: int) -> Tensor:
        """Returns rows of a part's device on the host, and books their bytes."""
        device, num_bytes = self.places[part].device, len(rows) * _row_bytes(rows)
        if device.remote:
            return device.fetch(rows, line, self.ledger)
        self.ledger.crossed(line, num_bytes)
        return rows.detach()

    def _taken(self, buffer: Tensor, rows: Array, part: int) -> Tensor:
        """Returns rows of a buffer side by side, and leaves zeros in their places (section 6, compaction)."""
        device = self.places[part].device
        out = torch.empty((len(rows), buffer.shape[1]), dtype=buffer.dtype, device=device.torch_device)
        (listed,) = self._sent([rows], part)
        take_rows(_array(buffer), listed, _array(out), self.threads)
        return out

    def _sent(self, lists: Sequence[Array], part: int) -> list[Array]:
        return self.places[part].device.send(lists, IDS, self.ledger)

    def _between(self, part: int, peer: int, num_bytes: int, num_rows: int, line: Line) -> int:
        """Books rows that one part receives from another, and returns the bytes that cross between devices."""
        if self.places[part].device is self.places[peer].device:
            return 0
        self.ledger.crossed(line, num_bytes, requests=num_rows)
        return num_bytes

    def _now(self) -> int:
        return next((link.now() for link in self._peer_links.values()), 0)

    def _wait_for_peers(self, crossed: Sequence[int], since: int, step: int) -> None:
        """Waits until every device has its rows, all at once; in Algorithms 2 and 3 no two of them read one device at the same time."""
        for place, num_bytes in zip(self.places, crossed, strict=True):
            if num_bytes and self._peer_links:
                with self.span(place.part, "d2d", step):
                    self._peer_links[place.device.index].carry(num_bytes, since)

    @contextmanager
    def _carried(self, link: Link | None) -> Iterator[Callable[[int], None]]:
        """Yields a function that waits until a link has carried bytes, counted from here."""
        since = 0 if link is None else link.now()
        yield lambda num_bytes: None if link is None else link.carry(num_bytes, since)


def _row_bytes(rows: Tensor) -> int:
    return rows.shape[1] * rows.element_size()


def _array(tensor: Tensor) -> Any:
    """Returns a tensor as kernels take it; a view of another device's rows books nothing on the active device."""
    with _disable_current_modes():
        return kernel_array(tensor)
