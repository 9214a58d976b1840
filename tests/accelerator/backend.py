"""A simulated accelerator as a trainer's device: what stands in for `graphmill.trainers.devices.cuda.CudaBackend` in tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.kernels.cuda.held import when_untouched
from graphmill.kernels.cuda.protocol import PeerRows
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.aligned import BufferPool
from graphmill.kernels.rows.shared_memory import open_rows, share_rows
from tests import accelerator
from tests.accelerator.kernels import kernels

_MAPPED: dict[str, list[tuple[int, int]]] = {}
"""Name of shared rows -> address and bytes of each of their mappings in this process."""
_SEEN = ContextVar("devices that a thread sees: the first, and their number", default=(0, 4))


@contextmanager
def seeing(first: int, count: int = 1) -> Iterator[None]:
    """Shows this thread so many devices from the first one on, by the numbers from 0, as CUDA_VISIBLE_DEVICES does for a process."""
    token = _SEEN.set((first, count))
    try:
        yield
    finally:
        _SEEN.reset(token)


class SimulatedBackend:
    """Kernels through the shim, memory with a limit, streams that are late.

    Args:
        index: number of the device among those that this thread sees (`seeing`).
    """

    kind = accelerator.NAME
    total_bytes = 1 << 40

    def __init__(self, index: int = 0):
        first, count = _SEEN.get()
        if index >= count:
            raise InputError(f"CUDA device {index} of {count}", "use the number of a device that nvidia-smi lists")
        self._index = first + index
        self.kernels = kernels(self._index)
        self.torch_device = torch.device(self.kind, self._index)
        self._idle: list[int] = []
        accelerator.forget_peak(self._index)

    @staticmethod
    def num_devices() -> int:
        """Returns the number of devices that this thread sees."""
        return _SEEN.get()[1]

    def bound(self, num_bytes: int | None) -> None:
        """Limits the device's memory beside what is alive."""
        accelerator.load().simulated_limit(self._index, -1 if num_bytes is None else num_bytes)

    def free_bytes(self) -> int:
        """Returns the bytes that nothing holds, of `total_bytes`."""
        return self.total_bytes - accelerator.counts(self._index).live_bytes

    def peak_bytes(self) -> int:
        """Returns the most bytes alive at once."""
        return accelerator.counts(self._index).peak_bytes

    def take_stream(self) -> int:
        """Returns a stream that no other thread uses, until it is given back."""
        try:
            return self._idle.pop()
        except IndexError:
            return accelerator.new_stream(self._index)

    def give_back(self, stream: int) -> None:
        """Gives back a stream."""
        self._idle.append(stream)

    def on_stream(self, stream: int) -> AbstractContextManager[None]:
        """Returns the context in which this thread works on a stream."""
        return accelerator.using_stream(stream)

    def event(self, stream: int | None = None) -> tuple[int, int]:
        """Returns the event of all that was put on a stream, or on this thread's, so far."""
        stream = accelerator.current_stream(self._index) if stream is None else stream
        return stream, accelerator.mark(stream)

    def follow(self, event: tuple[int, int]) -> None:
        """Lets what this thread launches from now on come after an event."""
        accelerator.follow(event[0])

    def passed(self, event: tuple[int, int]) -> bool:
        """Returns whether the device has come so far."""
        return accelerator.passed(*event)

    def wait(self, event: tuple[int, int]) -> None:
        """Waits until the device has come so far."""
        accelerator.wait_for(event[0])

    def settle(self) -> None:
        """Waits for all that was launched."""
        accelerator.wait_for_all()

    def clock(self) -> float:
        """Returns the present time of the devices' clock."""
        return accelerator.load().simulated_clock() / 1e9

    def stamp(self) -> int:
        """Returns a stamp of the time when this thread's stream has come so far."""
        return accelerator.load().simulated_stamp(accelerator.current_stream(self._index))

    def seconds(self, began: float, stamp: int) -> float | None:
        """Returns the seconds from a time to a stamp; None if the device has not come so far."""
        at = accelerator.load().simulated_stamped(stamp) / 1e9
        return at - began if at else None

    def stream_number(self) -> int:
        """Returns the number of this thread's stream, 0 for the step's."""
        return accelerator.current_stream(self._index) - accelerator.step_stream(self._index)

    def copied_back(self, tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        """Copies as late as it may be: when somebody waits for the copy."""
        stream = accelerator.current_stream(self._index)

        def arrived() -> torch.Tensor:
            accelerator.follow(stream)
            return tensor.to("cpu")

        return arrived

    def used_here(self, tensor: torch.Tensor) -> None:
        """Keeps the tensor's memory until this thread's stream has passed."""
        stream = accelerator.current_stream(self._index)
        accelerator.load().simulated_record(tensor.untyped_storage().data_ptr(), stream)

    def used_by_step(self, tensor: torch.Tensor) -> None:
        """Keeps the tensor's memory until the step's stream has passed; asserts that it is on the device."""
        assert tensor.device == self.torch_device, tensor.device
        accelerator.load().simulated_record(tensor.untyped_storage().data_ptr(), accelerator.step_stream(self._index))

    def export_rows(self, rows: np.ndarray) -> tuple[PeerRows, dict[str, Any]]:
        """Copies rows to memory that other processes map: what stands in for memory of the device."""
        array, handle = share_rows(rows)
        return self._mapped(array, handle["name"], exported=True), handle

    def open_peer(self, handle: Mapping[str, Any]) -> PeerRows:
        """Maps the rows of a handle."""
        return self._mapped(open_rows(handle), handle["name"])

    def _mapped(self, array: np.ndarray, name: str, exported: bool = False) -> PeerRows:
        """Returns a mapping of shared rows as kernels take them; it ends as `graphmill.kernels.cuda.peers` ends one."""
        rows = PeerRows(array.ctypes.data, array.shape, array.dtype, array)
        if array.nbytes:
            place = array.ctypes.data, array.nbytes
            _MAPPED.setdefault(name, []).append(place)
            end = partial(_end_mappings, name, None if exported else place)
            when_untouched(array, partial(accelerator.wait_for_device, self._index), end)
        return rows


def _end_mappings(name: str, own: tuple[int, int] | None) -> None:
    """Ends one mapping of shared rows, or all of them: a process that frees its rows takes them from those that have mapped them."""
    mapped = _MAPPED[name]
    what = "rows of a peer" if own else "memory of a device that others have mapped"
    for place in [own] if own else list(mapped):
        accelerator.give_back(*place, what)
        if place in mapped:
            mapped.remove(place)


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `device = "cuda"` mean the simulated accelerator, and pools tell it of pinned memory that the next borrower gets."""
    monkeypatch.setattr("graphmill.trainers.devices.cuda.CudaBackend", SimulatedBackend)
    give_back = BufferPool.give_back

    def told(pool: BufferPool, data: np.ndarray) -> None:
        accelerator.give_back(data.ctypes.data, data.nbytes, "a buffer of a pool")
        give_back(pool, data)

    monkeypatch.setattr(BufferPool, "give_back", told)


@contextmanager
def standing_in() -> Iterator[None]:
    """The same for a program."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        stand_in(monkeypatch)
        yield
