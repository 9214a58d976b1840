"""Counts transfers in integers: a measure that does not depend on the machine.

A line names a link, the kind of data, the phase and the layer. `asked_bytes` are the bytes that the computation needed, `moved_bytes` those
that crossed the link for it; their ratio is the amplification. Every claim about data movement is a row of a ledger.

The time-line of an epoch is the work of each thread of a trainer over time, and how much of the preparation was hidden behind the step.

A lane is a thread ("step", "sampler 0"), a span is one phase of one batch on it. Only the last epoch that was finished is kept, and of it
the first batches: enough to see whether the stages overlap, and small enough to be recorded with every run. Spans are seconds, so they
belong to the run and never to the content of an artifact.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Literal, Protocol

from graphmill.kernels.types import Traffic

LINKS = ("disk", "mapped", "h2d", "d2h", "d2d", "rank")
EDGE_FEATURE = "edge_feature"
"""Kind of the bytes of rows of edges."""
KINDS = (
    "feature",
    EDGE_FEATURE,
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
    """The subject of a row of the ledger."""

    # One of `LINKS`; "mapped" counts asked bytes only, since the operating system decides what a page fault reads.
    link: str
    # One of `KINDS`.
    kind: str
    # Forward or backward.
    phase: Literal["forward", "backward"] = "forward"
    # The layer that needed the data, 0 for input features.
    layer: int = 0

    def __post_init__(self):
        assert self.link in LINKS and self.kind in KINDS, (self.link, self.kind)


class Arriving(Protocol):
    """A result of a device that is on its way."""

    def arrived(self) -> bool:
        """Returns whether it can be read without a wait."""
        ...

    def read(self) -> list[Any]:
        """Returns it, after a wait if it has not arrived."""
        ...


class Ledger:
    """Sums of moves by line and of named counts by layer; safe to fill from many threads."""

    def __init__(self):
        self._lock = threading.Lock()
        self._moves: dict[Line, list[int]] = {}
        self._counts: Counter[tuple[str, int]] = Counter()
        self._later: list[tuple[Arriving, Callable[[list[Any], Ledger], None]]] = []

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

    def later(self, note: Arriving, book: Callable[[list[Any], Ledger], None]) -> None:
        """Calls `book` with a result that a device computes, and this ledger: when it has arrived, or before this ledger is read."""
        with self._lock:
            self._later.append((note, book))

    def _settle(self, waits: bool = True) -> None:
        """Books the results that have arrived; all of them if it waits."""
        with self._lock:
            open_ones, self._later = self._later, []
        for note, book in open_ones:
            if waits or note.arrived():
                book(note.read(), self)
            else:
                self.later(note, book)

    def counted(self, name: str, layer: int) -> int:
        """Returns a named count of a layer."""
        self._settle()
        with self._lock:
            return self._counts[name, layer]

    def moved_bytes(self, link: str) -> int:
        """Returns the bytes that crossed a link, over all lines."""
        self._settle()
        with self._lock:
            return sum(row[2] for line, row in self._moves.items() if line.link == link)

    def bytes_by_link(self) -> dict[str, int]:
        """Returns link -> bytes that crossed it, in the order of `LINKS`; for "mapped", whose pages are not counted, the asked bytes."""
        sums: Counter[str] = Counter()
        self._settle()
        with self._lock:
            for line, (_, asked, moved) in self._moves.items():
                sums[line.link] += asked if line.link == "mapped" else moved
        return {link: sums[link] for link in LINKS if link in sums}

    def clear(self) -> None:
        """Removes all rows."""
        with self._lock:
            self._moves.clear()
            self._counts.clear()
            self._later.clear()

    def merge(self, other: Ledger) -> None:
        """Adds another ledger's rows to this one (threads, ranks, resume), and those that it gets later."""
        for line, (requests, asked, moved) in list(other._moves.items()):
            self.move(line, requests=requests, asked_bytes=asked, moved_bytes=moved)
        for (name, layer), n in list(other._counts.items()):
            self.count(name, layer, n)
        for note, book in list(other._later):
            self.later(note, book)
        self._settle(waits=False)

    def of_edges(self) -> Ledger:
        """Returns the same of rows of edges: bytes of features are bytes of "edge_feature", and each count has the name "edge_NAME"."""
        self._settle()
        found = Ledger()
        for line, (requests, asked, moved) in list(self._moves.items()):
            of = replace(line, kind=EDGE_FEATURE) if line.kind == "feature" else line
            found.move(of, requests=requests, asked_bytes=asked, moved_bytes=moved)
        for (name, layer), n in list(self._counts.items()):
            found.count(f"edge_{name}", layer, n)
        return found

    def without(self, link: str) -> Ledger:
        """Returns a copy that lacks the transfers over a link."""
        self._settle()
        kept = Ledger()
        kept.merge(self)
        kept._moves = {line: row for line, row in kept._moves.items() if line.link != link}
        return kept

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """Returns JSON-ready rows in a fixed order: {"moves": [...], "counts": [...]}."""
        self._settle()
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


MOST_BATCHES = 40
"""Batches of an epoch whose spans are kept one by one; the sums are over all of them."""

WAIT = "wait"
"""The phase in which a lane only waits for another."""

TRAIN, SYNCHRONISE = "train", "synchronise"
"""The phases of computing gradients, and of waiting for the update that a batch needs."""

STEP = "step"
"""The lane of the thread that trains."""

COMPUTE = "compute"
"""The phase in which one of several devices computes; its lane belongs to the training, too."""

Span = tuple[str, str, int, float, float]


@dataclass
class _Epoch:
    number: int
    started: float
    spans: list[Span] = field(default_factory=list)
    busy: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))


class DeviceClock(Protocol):
    """The spans of a device (trainers/devices/spans.py)."""

    def start(self) -> None: ...  # noqa: D102
    def span(self, name: str) -> AbstractContextManager[None]: ...  # noqa: D102
    def finish(self) -> dict[str, Any]: ...  # noqa: D102


class Timeline:
    """Collects spans from any thread.

    Attributes:
        record: the last finished epoch: its number and seconds, seconds by lane and phase (`busy_seconds`), and `spans`, each
            [lane, phase, position, begin, end] in seconds from the start of the epoch; with a device that has a clock of its own also its
            `device`. Empty before one is finished.
        device: the device that trains, if it has a clock of its own.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self._clock, self._lock = clock, threading.Lock()
        self._current: _Epoch | None = None
        self.device: DeviceClock | None = None
        self.record: dict[str, Any] = {}

    def start(self, epoch: int) -> None:
        """Begins an epoch; the spans of an unfinished one are dropped."""
        with self._lock:
            self._current = _Epoch(epoch, self._clock())
        if self.device is not None:
            self.device.start()

    @contextmanager
    def span(self, lane: str, phase: str, position: int) -> Iterator[None]:
        """Records the duration of its block: work of a phase, or `WAIT` for another lane, on the batch at a position of its epoch."""
        began = self._clock()
        try:
            if self.device is not None and lane == STEP and phase != WAIT:
                with self.device.span(phase):
                    yield
            else:
                yield
        finally:
            ended = self._clock()
            with self._lock:
                if self._current is not None:
                    self._note(self._current, lane, phase, position, began, ended)

    def finish(self) -> None:
        """Ends the epoch, behind which a device has done all of its work: its record replaces the one before."""
        with self._lock:
            epoch, self._current = self._current, None
            if epoch is None:
                return
            self.record = {
                "epoch": epoch.number,
                "seconds": round(self._clock() - epoch.started, 6),
                "busy_seconds": {lane: {k: round(v, 6) for k, v in sums.items()} for lane, sums in epoch.busy.items()},
                "spans": sorted(epoch.spans, key=lambda span: span[3]),
            }
            if self.device is not None:
                self.record["device"] = self.device.finish()

    def _note(self, epoch: _Epoch, lane: str, phase: str, position: int, began: float, ended: float) -> None:
        epoch.busy[lane][phase] += ended - began
        if position < MOST_BATCHES:
            epoch.spans.append(
                (lane, phase, position, round(began - epoch.started, 6), round(ended - epoch.started, 6))
            )


def hidden_share(record: Mapping[str, Any]) -> float | None:
    """Returns the share of all preparation (every lane that does not train) that did not make training wait, in [0, 1]; None without any.

    The waiting of the lanes that train was not hidden; 1 means that training never waited. These lanes are the step's, or those of trainers
    if there are some; if all of them prepare their batches themselves, nothing is hidden.
    """
    busy: Mapping[str, Mapping[str, float]] = record.get("busy_seconds", {})
    others = {lane: sums for lane, sums in busy.items() if lane != STEP and COMPUTE not in sums}
    prepared = sum(
        seconds
        for sums in others.values()
        for phase, seconds in sums.items()
        if phase not in (WAIT, TRAIN, SYNCHRONISE)
    )
    if not prepared:
        return None
    training = [sums for sums in others.values() if TRAIN in sums]
    trainers = [sums for sums in training if not {*sums} - {WAIT, TRAIN, SYNCHRONISE}]
    if training and not trainers:
        return 0.0
    waited = sum(sums.get(WAIT, 0.0) for sums in trainers or [busy.get(STEP, {})])
    return max(0.0, 1 - waited / prepared)


def lanes(spans: Sequence[Span]) -> list[str]:
    """Returns the lanes, the step's first, the others by name."""
    return sorted({span[0] for span in spans}, key=lambda lane: (lane != STEP, lane))
