"""The time-line of an epoch: the work of each thread of a trainer over time, and how much of the preparation was hidden behind the step.

A lane is a thread ("step", "sampler 0"), a span is one phase of one batch on it. Only the last epoch that was finished is kept, and of it
the first batches: enough to see whether the stages overlap, and small enough to be recorded with every run. Spans are seconds, so they
belong to the run and never to the content of an artifact.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

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


class Timeline:
    """Collects spans from any thread.

    Args:
        clock: returns seconds.

    Attributes:
        record: the last finished epoch: its number and seconds, seconds by lane and phase (`busy_seconds`), and `spans`, each
            [lane, phase, position, begin, end] in seconds from the start of the epoch. Empty before one is finished.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self._clock, self._lock = clock, threading.Lock()
        self._current: _Epoch | None = None
        self.record: dict[str, Any] = {}

    def start(self, epoch: int) -> None:
        """Begins an epoch; the spans of an unfinished one are dropped."""
        with self._lock:
            self._current = _Epoch(epoch, self._clock())

    @contextmanager
    def span(self, lane: str, phase: str, position: int) -> Iterator[None]:
        """Records the duration of its block.

        Args:
            phase: its work; `WAIT` if it waits for another lane.
            position: number of the batch in its epoch.
        """
        began = self._clock()
        try:
            yield
        finally:
            ended = self._clock()
            with self._lock:
                if self._current is not None:
                    self._note(self._current, lane, phase, position, began, ended)

    def finish(self) -> None:
        """Ends the epoch: its record replaces the one before."""
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
