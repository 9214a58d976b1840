"""The buffer of a part, and the transfers between it, its peers and the host (HongTu, Algorithms 2 and 3).

A part has one buffer per pass: its transition rows and the rows that its chunk reads, merged, in the places that the chunk steps define.
Every transfer is booked on the ledger, delayed to a modelled link's speed, and has a phase of its own in the time-line: `h2d`, `d2d`,
`d2h`, and `accumulate`, the host's additions (Figure 9's H2D, D2D and CPU; `compute` is its GPU).

Rows that leave a device are collected at once and arrive later, if devices have a link to the host: they move while the device computes the
next chunk, and are stored or added when that chunk's rows leave. The order of additions is that of the steps and parts in any case.

Parts of one device exchange rows in its memory. That is not a transfer, so nothing is booked for it. A device with memory of its own gets
rows of another one in two moves: they are collected side by side there, on its stream, and copied over in one piece (section 6 reads them
one by one within a kernel instead). Parts of other ranks get and give rows by one message per step and rank.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from graphmill.kernels.rows.move_rows import add_rows, place_rows, take_rows
from graphmill.kernels.types import Array
from graphmill.trainers.devices.protocol import Device, kernel_array
from graphmill.trainers.ranks.group import Lane
from graphmill.trainers.record.ledger import STEP, Ledger, Line, Timeline
from graphmill.trainers.techniques.fullgraph.rows.host_rows import (
    IDS,
    HostRows,
    KeptRows,
    Place,
    PlaceThreads,
    devices_of,
)
from graphmill.trainers.techniques.fullgraph.rows.lists import HOST, Crossing, Incoming, Trade

Load = Callable[[Array, Device, Ledger], tuple[Tensor, int]]
"""(ids, device, ledger) -> their rows on the device, and the bytes that crossed the link for them."""


class Mover:
    """Moves rows, and records every transfer.

    Args:
        peer_gbps: speed at which each logical device receives rows of the others, in GB/s; None for the machine's own speed.
        overlap: whether rows move while a device computes, if that has a link to the host.
        lane: the lane of the thread that trains, for rows of other ranks; None for one process.

    Attributes:
        at_places: does the work of parts, on a thread per device if there are several with memory of their own.
        overlaps: whether rows move while a device computes.
    """

    def __init__(
        self,
        places: Sequence[Place],
        ledger: Ledger,
        timeline: Timeline,
        peer_gbps: float | None,
        threads: int,
        overlap: bool = True,
        lane: Lane | None = None,
    ):
        self.places, self.ledger, self.timeline, self.threads = places, ledger, timeline, threads
        self.lane, self.at_places = lane, PlaceThreads(places)
        self._place_of = {place.part: place for place in places}
        links = {device.index: device.peer_link(peer_gbps) for device in devices_of(places)}
        self._peer_links = {index: link for index, link in links.items() if link is not None}
        self.overlaps = overlap and not all(each.device.in_host_memory for each in places)
        # (part, step, function that waits for rows and stores or adds them)
        self._leaving: deque[tuple[int, int, Callable[[], None]]] = deque()

    @contextmanager
    def beside(self, ledger: Ledger) -> Iterator[None]:
        """Returns a context in which a ledger receives the transfers, and nothing the time-line: a pass beside the training's own."""
        own = self.ledger, self.timeline
        self.ledger, self.timeline = ledger, Timeline()
        try:
            yield
        finally:
            self.ledger, self.timeline = own

    def span(self, part: int, phase: str, step: int) -> AbstractContextManager[None]:
        """Returns a span of the time-line for the work of a part's device, or of the host for it, in a step."""
        return self.timeline.span(f"device {self._place_of[part].device.index}", phase, step)

    def staged(self, load: Load, ids: Array, line: Line, part: int) -> Tensor:
        """Loads rows of nodes onto a part's device by `load`; on any thread, which records the span."""
        device = self._place_of[part].device
        link = device.link("h2d")
        since = 0 if link is None else link.now()
        out, num_bytes = load(ids, device, self.ledger)
        self.ledger.crossed(line, num_bytes, requests=len(ids))
        if link is not None:
            link.carry(num_bytes, since)
        return out

    def loaded(self, rows: HostRows, ids: Array, line: Line, part: int, step: int) -> Tensor:
        """Returns rows of nodes on a part's device."""
        with self.span(part, "h2d", step):
            found = self.staged(rows.stage, ids, line, part)
        return rows.finish(found, ids, self._place_of[part].device, self.ledger)

    def put(self, rows: Tensor, buffer: Tensor, places: Array | None, part: int) -> None:
        """Writes rows that are on a part's device to rows of its buffer."""
        listed = None if places is None else self._sent([places], part)[0]
        place_rows(_array(rows), None, _array(buffer), listed, self.threads)

    def fetch(self, buffers: Mapping[int, Tensor], lists: Mapping[int, Incoming], line: Line, step: int) -> None:
        """Copies rows of peers' buffers into the buffers of all parts, which receive them at the same time (Algorithm 2, lines 7 to 9)."""
        with self._exchange(buffers, line, step) as book:

            def fetch(place: Place) -> None:
                part = place.part
                with place.active(), self.span(part, "d2d", step):
                    for peer, theirs, mine in lists[part].fetch:
                        self._fetched(buffers, peer, theirs, part, mine)
                        book(part, peer, len(mine))

            self.at_places.run(fetch, lists)

    def _fetched(self, buffers: Mapping[int, Tensor], peer: int, theirs: Array, part: int, mine: Array) -> None:
        """Writes rows `theirs` of a peer's buffer to rows `mine` of a part's."""
        if buffers[peer].device != buffers[part].device:
            self.put(self._arrived(self._collected(buffers[peer], theirs, peer), part), buffers[part], mine, part)
            return
        listed = self._sent([theirs, mine], part)
        place_rows(_array(buffers[peer]), listed[0], _array(buffers[part]), listed[1], self.threads)

    def receive(self, buffers: Mapping[int, Tensor], trade: Trade, source: Any, line: Line, step: int) -> None:
        """Brings rows of other ranks into the buffers, and sends them those that they ask for.

        Args:
            source: rows of the nodes of this rank, `KeptRows` if the others read some of them from the host.
            line: line of rows that come from a host, whichever rank's it is.
        """
        gives, gets = _of_hosts(trade.gives, source.sharded), _of_hosts(trade.gets, source.sharded)
        with self.span(self.places[0].part, "d2d", step):
            sent = [
                (give.rank, source.copied(give.rows) if give.owner == HOST else self._copied(buffers[give.owner], give))
                for give in gives
            ]
            found = self._swapped(sent, gets, buffers, line)
        for get, rows in zip(gets, found, strict=True):
            place, of_host = self._place_of[get.part], get.owner == HOST
            device, link = place.device, place.device.link("h2d") if of_host else None
            since = 0 if link is None else link.now()
            with place.active():
                on_device = device.send_tensor(rows, line, self.ledger if of_host else device.traffic)
                if of_host and device.holds(rows):
                    self.ledger.crossed(line, rows.nbytes, requests=len(rows))
                if link is not None:
                    link.carry(rows.nbytes, since)
                self.put(on_device, buffers[get.part], get.rows, get.part)

    def pull(
        self,
        buffers: Mapping[int, Tensor],
        lists: Mapping[int, Incoming],
        line: Line,
        step: int,
        num_parts: int,
        trade: Trade | None = None,
    ) -> dict[int, tuple[Array, Tensor]]:
        """Moves the gradients of fetched rows to their owners, peer after peer (Algorithm 3, lines 3 to 5).

        Returns:
            (ids[c], float[c, F]) by part: gradients that parts of other ranks have for nodes of this rank's host.
        """
        moves: list[tuple[int, int, Array, Array | Tensor]] = [
            (part, *each) for part, incoming in lists.items() for each in incoming.fetch
        ]
        came = [] if trade is None else self._given_back(buffers, trade, line, step)
        moves += [(part, owner, theirs, rows) for (_, part, owner, theirs), rows in came if owner != HOST]
        of_owner: dict[int, list[tuple[int, int, Array, Array | Tensor]]] = {}
        for move in sorted(moves, key=lambda move: (move[1] - move[0]) % num_parts):
            of_owner.setdefault(move[1], []).append(move)
        with self._exchange(buffers, line, step) as book:

            def pull(place: Place) -> None:
                for part, owner, theirs, mine in of_owner[place.part]:
                    with self.span(owner, "d2d", step), place.active():
                        from_rank = isinstance(mine, Tensor)
                        rows = self._arrived(mine if from_rank else self._taken(buffers[part], mine, part), owner)
                        target = self._sent([theirs], owner)[0]
                        add_rows(_array(rows), None, _array(buffers[owner]), target, self.threads)
                        if not from_rank:
                            book(owner, part, len(mine))

            self.at_places.run(pull, of_owner)
        return {part: (ids, rows) for (_, part, owner, ids), rows in came if owner == HOST}

    def _given_back(
        self, buffers: Mapping[int, Tensor], trade: Trade, line: Line, step: int
    ) -> list[tuple[Crossing, Tensor]]:
        """Sends the gradients of rows of other ranks there; returns those that they have sent for rows of this one."""
        sent, down = [], Line("d2h", line.kind, line.phase, line.layer)
        for get in trade.gets:
            place = self._place_of[get.part]
            with place.active():
                rows = self._taken(buffers[get.part], get.rows, get.part)
                # Rows of a host leave the device for a host, as in one process.
                leave = self.to_host(rows, down, get.part) if get.owner == HOST else None
                found = place.device.fetch(rows, down, place.device.traffic) if leave is None else leave()
            sent.append((get.rank, found.numpy()))
        with self.span(self.places[0].part, "d2d", step):
            return list(zip(trade.gives, self._swapped(sent, trade.gives, buffers, line), strict=True))

    def _swapped(
        self, sent: Sequence[tuple[int, Array]], coming: Sequence[Crossing], buffers: Mapping[int, Tensor], line: Line
    ) -> list[Tensor]:
        """Exchanges rows with the other ranks, and books those that come; collective.

        A step has one message for each rank, without ids, since both sides have the lists; the sizes follow from them, too.

        Args:
            sent: (rank, float[c, F]), ordered by rank.
            coming: the rows that come, ordered by rank, in the order in which that rank sends them.
            line: tells kind, phase and layer.
        """
        lane, buffer = self.lane, next(iter(buffers.values()))
        assert lane is not None
        with _disable_current_modes():  # messages are in the host's memory
            like = torch.empty(0, buffer.shape[1], dtype=buffer.dtype).numpy()
            sent_bytes, coming_bytes = ([0] * lane.world for _ in range(2))
            for rank, rows in sent:
                sent_bytes[rank] += rows.nbytes
            for each in coming:
                coming_bytes[each.rank] += len(each.rows) * like.shape[1] * like.itemsize
            message = np.concatenate([like, *(rows for _, rows in sent)])
            found = lane.all_to_all(message.reshape(-1).view(np.uint8), sent_bytes, coming_bytes)
            # A copy is aligned as kernels want it.
            counts = [len(each.rows) for each in coming]
            rows = np.frombuffer(found.tobytes(), like.dtype).reshape(sum(counts), like.shape[1]).copy()
            pieces = [torch.from_numpy(each) for each in np.split(rows, np.cumsum(counts)[:-1])] if counts else []
        of_ranks = Line("rank", line.kind, line.phase, line.layer)
        for each in pieces:
            self.ledger.crossed(of_ranks, each.nbytes, requests=len(each))
        return pieces

    def _copied(self, buffer: Tensor, give: Crossing) -> Array:
        """Returns rows of an own part's buffer on the host."""
        place = self._place_of[give.owner]
        with place.active():
            rows = self._collected(buffer, give.rows, give.owner)
            return place.device.fetch(rows, IDS, place.device.traffic).numpy()

    def _collected(self, buffer: Tensor, rows: Array, part: int) -> Tensor:
        """Returns a copy of rows of a part's buffer, side by side in its device's memory."""
        out = torch.empty((len(rows), buffer.shape[1]), dtype=buffer.dtype, device=buffer.device)
        place_rows(_array(buffer), self._sent([rows], part)[0], _array(out), None, self.threads)
        return out

    def _arrived(self, rows: Tensor, part: int) -> Tensor:
        """Returns rows of a message, or of a peer, which books them, in the memory of a part's device."""
        device = self._place_of[part].device
        if rows.device.type == "cpu":
            return device.send_tensor(rows, IDS, device.traffic)
        return device.send_tensor(rows, IDS, Ledger())

    def flush(self, buffer: Tensor, incoming: Incoming, sums: KeptRows, line: Line, part: int, step: int) -> None:
        """Moves gradients out of a part's buffer and adds them to the host's (Algorithm 3, lines 7 to 9)."""
        if not len(incoming.rows):
            return

        def add(found: Tensor) -> None:
            with self.timeline.span(STEP, "accumulate", step):
                sums.add(incoming.ids, found)

        with self._place_of[part].active():
            self._leave(self._taken(buffer, incoming.rows, part), line, part, step, add)

    def add_from_rank(self, came: tuple[Array, Tensor], sums: KeptRows, part: int, step: int) -> None:
        """Adds gradients of another rank's part to the host's, after those that left before."""

        def add() -> None:
            with self.timeline.span(STEP, "accumulate", step):
                sums.add(*came)

        self._leaving.append((part, step, add))
        if not self.overlaps:
            self.settle()

    def store(self, rows: Tensor, ids: Array, kept: KeptRows, line: Line, part: int, step: int) -> None:
        """Moves rows that a part computed to the host."""
        self._leave(rows, line, part, step, lambda found: kept.store(ids, found))

    def add(self, rows: Tensor, ids: Array, sums: KeptRows, line: Line, part: int, step: int) -> None:
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
        link, num_bytes = self._place_of[part].device.link("d2h"), rows.nbytes
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
        device = self._place_of[part].device
        if device.kind == "logical":  # others book what they send
            self.ledger.crossed(line, rows.nbytes)
        return device.fetch_later(rows, line, self.ledger)

    def _taken(self, buffer: Tensor, rows: Array, part: int) -> Tensor:
        """Returns rows of a buffer side by side, and leaves zeros in their places (section 6, compaction)."""
        device = self._place_of[part].device
        out = torch.empty((len(rows), buffer.shape[1]), dtype=buffer.dtype, device=device.torch_device)
        (listed,) = self._sent([rows], part)
        take_rows(_array(buffer), listed, _array(out), self.threads)
        return out

    def _sent(self, lists: Sequence[Array], part: int) -> list[Array]:
        return self._place_of[part].device.send(lists, IDS, self.ledger)

    @contextmanager
    def _exchange(
        self, buffers: Mapping[int, Tensor], line: Line, step: int
    ) -> Iterator[Callable[[int, int, int], None]]:
        """Yields a function that books rows: (receiving part, giving part, their number). Then waits until every device has its rows.

        All devices receive at once; in Algorithms 2 and 3 no two of them read one device at the same time.
        """
        since, buffer = next((link.now() for link in self._peer_links.values()), 0), next(iter(buffers.values()))
        crossed = {place.part: 0 for place in self.places}

        def book(part: int, peer: int, num_rows: int) -> None:
            if self._place_of[part].device is not self._place_of[peer].device:
                num_bytes = num_rows * buffer.shape[1] * buffer.element_size()
                self.ledger.crossed(line, num_bytes, requests=num_rows)
                crossed[part] += num_bytes

        yield book
        for place in self.places:
            if crossed[place.part] and self._peer_links:
                with self.span(place.part, "d2d", step):
                    self._peer_links[place.device.index].carry(crossed[place.part], since)


def _of_hosts(crossing: Sequence[Crossing], sharded: bool) -> Sequence[Crossing]:
    """Returns the rows that cross, without those of hosts if every host has them."""
    return crossing if sharded else [each for each in crossing if each.owner != HOST]


def _array(tensor: Tensor) -> Any:
    """Returns a tensor as kernels take it; a view of another device's rows books nothing on the active device."""
    with _disable_current_modes():
        return kernel_array(tensor)
