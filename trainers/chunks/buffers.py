"""The buffer of a part, and what moves between it, its peers and the host (HongTu, Algorithms 2 and 3).

A part has one buffer per pass: its transition rows and the rows that its chunk reads, merged, in the places that the chunk steps give.
Every transfer is booked on the ledger, kept to a link's speed where one is modelled, and has a phase of its own in the time-line: `h2d`,
`d2d`, `d2h`, and `accumulate`, the host's additions.

Parts of one device exchange rows in its memory. That is no transfer, so nothing is booked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from kernels.chunks.move_rows import add_rows, place_rows, take_rows
from kernels.types import Array
from trainers.chunks.lists import Incoming
from trainers.devices.link import Link
from trainers.devices.logical import LogicalDevice
from trainers.devices.protocol import Device, kernel_array
from trainers.record.ledger import Ledger, Line
from trainers.record.timeline import Timeline
from trainers.rows.host import IDS, HostRows

Phase = Literal["forward", "backward"]


class Loadable(Protocol):
    """Rows on the host that come into buffers.

    Attributes:
        width: columns in the buffer.
    """

    width: int

    def load_into(self, ids: Array, out: Tensor, rows: Array | None, device: Device, ledger: Ledger) -> tuple[int, int]:
        """Writes rows of nodes to rows of a buffer; returns (rows, bytes) that crossed the link for it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a part computes.

    Attributes:
        part: i.
        device: its device.
        several: other devices compute as well, so that each books what is made on it apart from the others.
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
    """Moves rows, and says so.

    Args:
        places: of all parts.
        ledger, timeline: get every transfer.
        peer_link: between devices, None for as fast as the machine is.
        threads: of the kernels.
    """

    def __init__(
        self, places: Sequence[Place], ledger: Ledger, timeline: Timeline, peer_link: Link | None, threads: int
    ):
        self.places, self.ledger, self.timeline = places, ledger, timeline
        self.peer_link, self.threads = peer_link, threads

    def span(self, part: int, phase: str, step: int) -> AbstractContextManager[None]:
        """Returns a span of the time-line of what a part's device, or the host for it, does in a step."""
        return self.timeline.span(f"device {self.places[part].device.index}", phase, step)

    def load(
        self, rows: Loadable, ids: Array, out: Tensor, places: Array | None, line: Line, part: int, step: int
    ) -> None:
        """Brings rows of nodes from the host into a tensor of a part's device."""
        if not len(ids):
            return
        device = self.places[part].device
        with self.span(part, "h2d", step), self._carried(device.link("h2d")) as carry:
            num_rows, num_bytes = rows.load_into(ids, out, places, device, self.ledger)
            self.ledger.move(line, requests=num_rows, asked_bytes=num_bytes, moved_bytes=num_bytes)
            carry(num_bytes)

    def fetch(self, buffers: Sequence[Tensor], incoming: Incoming, line: Line, part: int, step: int) -> None:
        """Copies rows of peers' buffers into a part's buffer (Algorithm 2, lines 7 to 9)."""
        for peer, theirs, mine in incoming.fetch:
            with self.span(part, "d2d", step):
                lists = self._sent([theirs, mine], part)
                place_rows(kernel_array(buffers[peer]), lists[0], kernel_array(buffers[part]), lists[1], self.threads)
                self._between(part, peer, len(mine) * _row_bytes(buffers[part]), len(mine), line)

    def pull(self, buffers: Sequence[Tensor], lists: Sequence[Incoming], line: Line, step: int) -> None:
        """Moves the gradients of fetched rows to their owners, peer after peer (Algorithm 3, lines 3 to 5)."""
        by_peer = [{peer: (theirs, mine) for peer, theirs, mine in each.fetch} for each in lists]
        num_parts = len(buffers)
        for distance in range(1, num_parts):
            for part in range(num_parts):
                owner = (part + distance) % num_parts
                if owner not in by_peer[part]:
                    continue
                theirs, mine = by_peer[part][owner]
                with self.span(owner, "d2d", step), self.places[owner].active():
                    rows = self._taken(buffers[part], mine, part)
                    target = self._sent([theirs], owner)[0]
                    add_rows(kernel_array(rows), None, kernel_array(buffers[owner]), target, self.threads)
                    self._between(part, owner, len(mine) * _row_bytes(rows), len(mine), line)

    def flush(self, buffer: Tensor, incoming: Incoming, sums: HostRows, line: Line, part: int, step: int) -> None:
        """Moves gradients out of a part's buffer and adds them to the host's (Algorithm 3, lines 7 to 9)."""
        if not len(incoming.rows):
            return
        place = self.places[part]
        with self.span(part, "d2h", step), place.active(), self._carried(place.device.link("d2h")) as carry:
            rows = self._taken(buffer, incoming.rows, part)
            found = self.to_host(rows, line, part)
            carry(len(rows) * _row_bytes(rows))
        with self.timeline.span("host", "accumulate", step):
            sums.add(incoming.ids, found)

    def store(self, rows: Tensor, ids: Array, kept: HostRows, line: Line, part: int, step: int) -> None:
        """Moves rows that a part computed to the host."""
        with self.span(part, "d2h", step), self._carried(self.places[part].device.link("d2h")) as carry:
            kept.store(ids, self.to_host(rows, line, part))
            carry(len(rows) * _row_bytes(rows))

    def to_host(self, rows: Tensor, line: Line, part: int) -> Tensor:
        """Returns rows of a part's device on the host, and books their bytes."""
        device, num_bytes = self.places[part].device, len(rows) * _row_bytes(rows)
        if device.remote:
            return device.fetch(rows, line, self.ledger)
        self.ledger.move(line, requests=1, asked_bytes=num_bytes, moved_bytes=num_bytes)
        return rows.detach()

    def _taken(self, buffer: Tensor, rows: Array, part: int) -> Tensor:
        """Returns rows of a buffer side by side, and leaves zeros (section 6, compaction)."""
        device = self.places[part].device
        out = torch.empty((len(rows), buffer.shape[1]), dtype=buffer.dtype, device=device.torch_device)
        (listed,) = self._sent([rows], part)
        take_rows(kernel_array(buffer), listed, kernel_array(out), self.threads)
        return out

    def _sent(self, lists: Sequence[Array], part: int) -> list[Array]:
        return self.places[part].device.send(lists, IDS, self.ledger)

    def _between(self, part: int, peer: int, num_bytes: int, num_rows: int, line: Line) -> None:
        if self.places[part].device is self.places[peer].device:
            return
        self.ledger.move(line, requests=num_rows, asked_bytes=num_bytes, moved_bytes=num_bytes)
        if self.peer_link is not None:
            self.peer_link.carry(num_bytes, self.peer_link.now())

    @contextmanager
    def _carried(self, link: Link | None) -> Iterator[Callable[[int], None]]:
        """Gives what waits until a link has carried bytes, counted from here."""
        since = 0 if link is None else link.now()
        yield lambda num_bytes: None if link is None else link.carry(num_bytes, since)


def _row_bytes(rows: Tensor) -> int:
    return rows.shape[1] * rows.element_size()
