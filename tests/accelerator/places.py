"""The two accelerators that trainings are tested on, with one face: simulated ones of every machine, and a GPU under -m gpu."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import pytest
import torch

from benchmarks.gpu_trace import traced
from graphmill.trainers.devices.cuda import CudaBackend
from graphmill.trainers.ranks.group import Ranks
from tests import accelerator
from tests.accelerator.backend import SimulatedBackend, seeing, stand_in
from tests.trainers.ranks.threads import run_threads


class SimulatedPlace:
    """`device = "cuda"` means the simulated accelerator, which counts what crosses."""

    Backend = SimulatedBackend
    name = "simulated:0"

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        stand_in(monkeypatch)

    def devices(self, count: int) -> AbstractContextManager[None]:
        """Shows so many devices."""
        return seeing(0, count)

    def begin(self) -> None:
        """Counts from here."""
        self._before = accelerator.counts()

    def crossed(self) -> accelerator.Counts:
        """Returns what crossed since `begin`."""
        return accelerator.counts().since(self._before)

    def live_bytes(self) -> int:
        """Returns the bytes that are alive on the devices."""
        return accelerator.counts().live_bytes

    def ranks(self, world: int, work: Callable[[Ranks], Any]) -> list[Any]:
        """Calls a function once per rank, each of which sees a device of its own, and returns what it returned."""

        def on_own(ranks: Ranks) -> Any:
            with seeing(ranks.rank % accelerator.num_devices()):
                return work(ranks)

        return run_threads(world, on_own)


class CudaPlace:
    """A GPU. CUPTI counts the copies of the whole process, waits and launches (benchmarks/gpu_trace.py)."""

    Backend = CudaBackend
    name = "cuda:0"

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self._patch, self._tracing = monkeypatch, ExitStack()
        torch.cuda.empty_cache()

    def devices(self, count: int) -> AbstractContextManager[None]:
        """Takes no more devices than that; skips a test that needs more than there are."""
        if CudaBackend.num_devices() < count:
            pytest.skip("needs two GPUs" if count == 2 else f"needs {count} GPUs")
        self._patch.setattr(CudaBackend, "num_devices", staticmethod(lambda: count))
        return nullcontext()

    def begin(self) -> None:
        """Counts from here."""
        self._tracing.close()
        self._found = self._tracing.enter_context(traced())

    def crossed(self) -> accelerator.Counts:
        """Returns what crossed since `begin`."""
        self._tracing.close()
        (found,) = self._found
        sums = {f"{link}_bytes": num_bytes for link, num_bytes in found.copied.items()}
        calls = {f"{link}_calls": found.copies[link] for link in ("h2d", "d2h")}
        live = {"live_bytes": torch.cuda.memory_allocated(), "peak_bytes": torch.cuda.max_memory_allocated()}
        return accelerator.Counts(waits=found.waits, launches=found.launches, **sums, **calls, **live)

    def live_bytes(self) -> int:
        """Returns the bytes that torch's allocator holds."""
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved()

    def ranks(self, world: int, work: Callable[[Ranks], Any]) -> list[Any]:
        """Calls a function once per rank; all compute on one GPU, since a process sees the same ones on all threads."""
        return run_threads(world, work)


Place = SimulatedPlace | CudaPlace
