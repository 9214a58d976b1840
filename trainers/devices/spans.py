"""What a device with memory of its own did in an epoch, by its own clock: kernels of this project, copies, and the phases of the step.

A thread puts an event on its stream before and behind each, and the events are read when the epoch has ended: the host waits for nothing
more. The first `DeviceSpans.MOST` of an epoch are kept, two events each. Kernels of libraries, as matrix products are, have no spans of
their own; they are in the phases of the step. A stream that has nothing to do reaches the first event before the host has launched what
comes behind it, so a span may begin with a gap of some microseconds.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphmill.trainers.devices.cuda import CudaBackend


class DeviceSpans:
    """Collects spans of a device's streams, from any thread."""

    MOST = 1000

    def __init__(self, backend: CudaBackend):
        self._backend, self._lock = backend, threading.Lock()
        self._spans: list[tuple[int, str, Any, Any]] | None = None
        self._began: Any = None

    def start(self) -> None:
        """Begins an epoch; the spans of an unfinished one are dropped."""
        with self._lock:
            self._began, self._spans = self._backend.clock(), []

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Records what this thread launches in the block, if an epoch has begun and too many spans are not recorded yet."""
        spans = self._spans
        first = None if spans is None or len(spans) >= self.MOST else self._backend.stamp()
        yield
        if spans is not None and first is not None:
            spans.append((self._backend.stream_number(), name, first, self._backend.stamp()))

    def finish(self) -> dict[str, Any]:
        """Ends the epoch, behind which the device has done all of its work.

        Returns:
            `seconds`, by lane and name, and `spans`, each [lane, name, begin, end] in seconds from the start of the epoch. A lane is a
            stream.
        """
        with self._lock:
            spans, self._spans = self._spans or [], None
        found, sums = [], defaultdict(lambda: defaultdict(float))
        lanes = {0: "GPU, step"}
        for stream, name, *stamps in spans[: self.MOST]:
            begin, end = (self._backend.seconds(self._began, stamp) for stamp in stamps)
            if begin is None or end is None:
                continue  # of a batch that was dropped
            lane = lanes.setdefault(stream, f"GPU, stream {len(lanes)}")
            found.append([lane, name, round(begin, 6), round(end, 6)])
            sums[lane][name] += end - begin
        seconds = {lane: {name: round(value, 6) for name, value in own.items()} for lane, own in sums.items()}
        return {"seconds": seconds, "spans": sorted(found, key=lambda span: span[2])}
