"""Counts transfers in integers: a measure that does not depend on the machine.

A line names a link, the kind of data, the phase and the layer. `asked_bytes` are the bytes that the computation needed, `moved_bytes` those
that crossed the link for it; their ratio is the amplification. Every claim about data movement is a row of a ledger.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import astuple, dataclass
from typing import Any, Literal

from graphmill.kernels.types import Traffic

LINKS = ("disk", "mapped", "h2d", "d2h", "d2d", "rank")
KINDS = (
    "feature",
    "neighbour",
    "embedding",
    "gradient",
    "checkpoint",
    "own_gradient",
    "topology",
    "ids",
    "label",
    "logit",
    "loss",
    "output",
    "parameter",
)


@dataclass(frozen=True, slots=True)
class Line:
    """The subject of a row of the ledger.

    Attributes:
        link: one of `LINKS`; "mapped" counts asked bytes only, since the operating system decides what a page fault reads.
        kind: one of `KINDS`.
        phase: forward or backward.
        layer: the layer that needed the data, 0 for input features.
    """

    link: str
    kind: str
    phase: Literal["forward", "backward"] = "forward"
    layer: int = 0

    def __post_init__(self):
        assert self.link in LINKS and self.kind in KINDS, (self.link, self.kind)


class Ledger:
    """Sums of moves by line and of named counts by layer; safe to fill from many threads."""

    def __init__(self):
        self._lock = threading.Lock()
        self._moves: dict[Line, list[int]] = {}
        self._counts: Counter[tuple[str, int]] = Counter()

    def move(self, line: Line, *, requests: int, asked_bytes: int, moved_bytes: int) -> None:
        """Adds one transfer: number of requests, bytes that were needed and bytes that crossed the link."""
        with self._lock:
            row = self._moves.setdefault(line, [0, 0, 0])
            row[0] += int(requests)
            row[1] += int(asked_bytes)
            row[2] += int(moved_bytes)

    def crossed(self, line: Line, num_bytes: int, *, requests: int = 1) -> None:
        """Adds a transfer of bytes that were all needed."""
        self.move(line, requests=requests, asked_bytes=num_bytes, moved_bytes=num_bytes)

    def carried(self, traffic: Traffic, kind: str) -> None:
        """Adds the bytes that a kernel moved between host and device."""
        if traffic.sends:
            self.crossed(Line("h2d", kind), traffic.sent, requests=traffic.sends)
        if traffic.fetches:
            self.crossed(Line("d2h", kind), traffic.fetched, requests=traffic.fetches)

    def count(self, name: str, layer: int, n: int) -> None:
        """Adds n to a named count of a layer (rows, edges, hits)."""
        with self._lock:
            self._counts[name, layer] += int(n)

    def moved_bytes(self, link: str) -> int:
        """Returns the bytes that crossed a link, over all lines."""
        with self._lock:
            return sum(row[2] for line, row in self._moves.items() if line.link == link)

    def bytes_by_link(self) -> dict[str, int]:
        """Returns link -> bytes that crossed it, in the order of `LINKS`; for "mapped", whose pages are not counted, the asked bytes."""
        sums: Counter[str] = Counter()
        with self._lock:
            for line, (_, asked, moved) in self._moves.items():
                sums[line.link] += asked if line.link == "mapped" else moved
        return {link: sums[link] for link in LINKS if link in sums}

    def clear(self) -> None:
        """Removes all rows."""
        with self._lock:
            self._moves.clear()
            self._counts.clear()

    def merge(self, other: Ledger) -> None:
        """Adds another ledger's rows to this one (threads, ranks, resume)."""
        for line, (requests, asked, moved) in list(other._moves.items()):
            self.move(line, requests=requests, asked_bytes=asked, moved_bytes=moved)
        for (name, layer), n in list(other._counts.items()):
            self.count(name, layer, n)

    def without(self, link: str) -> Ledger:
        """Returns a copy that lacks the transfers over a link."""
        kept = Ledger()
        kept.merge(self)
        kept._moves = {line: row for line, row in kept._moves.items() if line.link != link}
        return kept

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """Returns JSON-ready rows in a fixed order: {"moves": [...], "counts": [...]}."""
        with self._lock:
            moves = [
                {"link": line.link, "kind": line.kind, "phase": line.phase, "layer": line.layer}
                | {"requests": row[0], "asked_bytes": row[1], "moved_bytes": row[2]}
                for line, row in sorted(self._moves.items(), key=lambda item: astuple(item[0]))
            ]
            counts = [{"name": name, "layer": layer, "n": n} for (name, layer), n in sorted(self._counts.items())]
        return {"moves": moves, "counts": counts}

    @classmethod
    def from_rows(cls, rows: dict[str, list[dict[str, Any]]]) -> Ledger:
        """Rebuilds a ledger from the result of `rows`."""
        ledger = cls()
        for row in rows["moves"]:
            line = Line(row["link"], row["kind"], row["phase"], row["layer"])
            ledger.move(line, requests=row["requests"], asked_bytes=row["asked_bytes"], moved_bytes=row["moved_bytes"])
        for row in rows["counts"]:
            ledger.count(row["name"], row["layer"], row["n"])
        return ledger
