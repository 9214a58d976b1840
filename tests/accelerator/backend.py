"""The simulated accelerator as a trainer's device: what stands in for `trainers.devices.cuda.CudaBackend` in tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch

from tests import accelerator
from tests.accelerator.kernels import kernels


class SimulatedBackend:
    """Kernels through the shim, memory with a limit, streams that do nothing."""

    kind = accelerator.NAME
    total_bytes = 1 << 40

    def __init__(self, index: int = 0):
        self.kernels = kernels()
        self.torch_device = torch.device(self.kind, index)
        accelerator.forget_peak()

    def bound(self, num_bytes: int | None) -> None:
        """Limits the device's memory beside what is alive."""
        accelerator.load().simulated_limit(-1 if num_bytes is None else num_bytes)

    def peak_bytes(self) -> int:
        """Returns the most bytes alive at once."""
        return accelerator.counts().peak_bytes

    def side_stream(self) -> Any:
        """Returns a context that does nothing."""
        return nullcontext()

    def copied_back(self, tensor: torch.Tensor) -> Any:
        """Copies at once."""
        copy = tensor.to("cpu")
        return lambda: copy

    def used_by_step(self, tensor: torch.Tensor) -> None:
        """Asserts that what a batch is made of is on the device."""
        assert tensor.device.type == self.kind, tensor.device


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `device = "cuda"` mean the simulated accelerator."""
    monkeypatch.setattr("trainers.devices.cuda.CudaBackend", SimulatedBackend)


@contextmanager
def standing_in() -> Iterator[None]:
    """The same for a program."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        stand_in(monkeypatch)
        yield
