"""The simulated accelerator as a trainer's device: what stands in for `trainers.devices.cuda.CudaBackend` in tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from kernels.cuda.protocol import PeerRows
from kernels.rows.shared_memory import open_rows, share_rows
from tests import accelerator
from tests.accelerator.kernels import kernels


class SimulatedBackend:
    """Kernels through the shim, memory with a limit, streams that are late."""

    kind = accelerator.NAME
    total_bytes = 1 << 40

    def __init__(self, index: int = 0):
        self.kernels = kernels()
        self.torch_device = torch.device(self.kind, index)
        self._idle: list[int] = []
        accelerator.forget_peak()

    def bound(self, num_bytes: int | None) -> None:
        """Limits the device's memory beside what is alive."""
        accelerator.load().simulated_limit(-1 if num_bytes is None else num_bytes)

    def free_bytes(self) -> int:
        """Returns the bytes that nothing holds, of `total_bytes`."""
        return self.total_bytes - accelerator.counts().live_bytes

    def peak_bytes(self) -> int:
        """Returns the most bytes alive at once."""
        return accelerator.counts().peak_bytes

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        """Works on a stream of its own, and waits for it at the end."""
        try:
            stream = self._idle.pop()
        except IndexError:
            stream = accelerator.load().simulated_new_stream()
        try:
            with accelerator.using_stream(stream):
                yield
            accelerator.wait_for(stream)
        finally:
            self._idle.append(stream)

    def copied_back(self, tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        """Copies as late as it may be: when somebody waits for the copy."""
        stream = accelerator.current_stream()

        def arrived() -> torch.Tensor:
            accelerator.wait_for(stream)
            return tensor.to("cpu")

        return arrived

    def used_by_step(self, tensor: torch.Tensor) -> None:
        """Keeps the tensor's memory until the step's stream has passed; asserts that it is on the device."""
        assert tensor.device.type == self.kind, tensor.device
        accelerator.load().simulated_record(tensor.untyped_storage().data_ptr(), 0)

    def export_rows(self, rows: np.ndarray) -> tuple[PeerRows, dict[str, Any]]:
        """Copies rows to memory that other processes map: what stands in for memory of the device."""
        array, handle = share_rows(rows)
        return as_peer(array), handle

    def open_peer(self, handle: Mapping[str, Any]) -> PeerRows:
        """Maps the rows of a handle."""
        return as_peer(open_rows(handle))


def as_peer(array: np.ndarray) -> PeerRows:
    """Returns an array as kernels take rows of a peer."""
    return PeerRows(array.ctypes.data, array.shape, array.dtype, array)


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `device = "cuda"` mean the simulated accelerator."""
    monkeypatch.setattr("trainers.devices.cuda.CudaBackend", SimulatedBackend)


@contextmanager
def standing_in() -> Iterator[None]:
    """The same for a program."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        stand_in(monkeypatch)
        yield
