"""A GPU as an accelerator's backend: torch's allocator and streams, CuPy's kernels."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch

from graphmill.kernels.cuda.device import CudaDevice, cuda_device, synchronize_all
from graphmill.kernels.cuda.peers import export_rows, open_peer
from graphmill.kernels.cuda.protocol import PeerRows
from graphmill.kernels.errors import InputError


class CudaBackend:
    """One GPU; raises InputError if it does not exist, its driver is too old, or torch or CuPy cannot use it."""

    kind = "cuda"

    def __init__(self, index: int = 0):
        if not torch.cuda.is_available():
            if torch.version.cuda is None:
                problem = f'device = "cuda", but torch {torch.__version__} is built for the CPU'
                raise InputError(problem, 'install a build for CUDA (pytorch.org says which), or set device = "cpu"')
            CudaDevice(index)  # raises an error that names the missing part
            problem = f'device = "cuda", but torch {torch.__version__} (CUDA {torch.version.cuda}) finds no GPU that it can use'
            raise InputError(problem, 'install a driver for that version of CUDA, or set device = "cpu"')
        self.kernels = cuda_device(index, True)
        self.torch_device = torch.device(self.kind, index)
        self.total_bytes = torch.cuda.get_device_properties(index).total_memory
        torch.cuda.reset_peak_memory_stats(index)  # the peak of an earlier training in this process is not this one's
        self._idle: list[torch.cuda.Stream] = []
        self._step_stream = torch.cuda.current_stream(index)
        self._back: torch.cuda.Stream | None = None

    @staticmethod
    def num_devices() -> int:
        """Returns the number of GPUs that this process sees."""
        return torch.cuda.device_count()

    def bound(self, num_bytes: int | None) -> None:
        """Bounds the memory of torch's allocator to `num_bytes` bytes."""
        share = 1.0 if num_bytes is None else min(1.0, num_bytes / self.total_bytes)
        torch.cuda.set_per_process_memory_fraction(share, self.torch_device)

    def free_bytes(self) -> int:
        """Returns the bytes that neither torch nor another user of the device holds."""
        free, _ = torch.cuda.mem_get_info(self.torch_device)
        kept = torch.cuda.memory_reserved(self.torch_device) - torch.cuda.memory_allocated(self.torch_device)
        return free + kept

    def peak_bytes(self) -> int:
        """Returns the most bytes of live tensors."""
        return torch.cuda.max_memory_allocated(self.torch_device)

    def take_stream(self) -> torch.cuda.Stream:
        """Returns a stream that no other thread uses, until it is given back.

        It is the stream that was given back last, since torch keeps the freed memory of every stream apart.
        """
        try:
            return self._idle.pop()
        except IndexError:
            return torch.cuda.Stream(self.torch_device)

    def give_back(self, stream: torch.cuda.Stream) -> None:
        """Gives back a stream; what is launched on it later comes after what is on it now."""
        self._idle.append(stream)

    def on_stream(self, stream: torch.cuda.Stream) -> AbstractContextManager[Any]:
        """Returns the context in which this thread works on a stream."""
        return torch.cuda.stream(stream)

    def event(self, stream: torch.cuda.Stream | None = None) -> torch.cuda.Event:
        """Returns the event of all that was put on a stream, or on this thread's, so far."""
        return (stream or torch.cuda.current_stream(self.torch_device)).record_event()  # pyright: ignore[reportReturnType]

    def follow(self, event: torch.cuda.Event) -> None:
        """Lets what this thread launches from now on come after an event; the host does not wait."""
        torch.cuda.current_stream(self.torch_device).wait_event(event)

    def passed(self, event: torch.cuda.Event) -> bool:
        """Returns whether the device has come so far."""
        return event.query()

    def wait(self, event: torch.cuda.Event) -> None:
        """Waits until the device has come so far."""
        event.synchronize()

    def settle(self) -> None:
        """Waits for all that was launched on the GPUs of this process."""
        synchronize_all(self.kernels.cupy)

    def clock(self) -> torch.cuda.Event:
        """Returns the event from which on `seconds` are counted."""
        return torch.cuda.current_stream(self.torch_device).record_event(torch.cuda.Event(enable_timing=True))  # pyright: ignore[reportReturnType]

    def stamp(self) -> torch.cuda.Event | None:
        """Returns the event of all that was put on this thread's stream so far; None while launches are recorded."""
        return None if torch.cuda.is_current_stream_capturing() else self.clock()

    def seconds(self, began: torch.cuda.Event, stamp: torch.cuda.Event | None) -> float | None:
        """Returns the seconds from one event to another; None if the device has not come so far."""
        return began.elapsed_time(stamp) / 1000 if stamp is not None and stamp.query() else None

    def stream_number(self) -> int:
        """Returns the number of this thread's stream, 0 for the step's."""
        stream = torch.cuda.current_stream(self.torch_device)
        return 0 if stream == self._step_stream else stream.cuda_stream

    def copied_back(self, tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        """Copies a tensor into pinned memory on a stream of its own, after all work queued on this thread's stream."""
        if self._back is None:
            self._back = torch.cuda.Stream(self.torch_device)
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        self._back.wait_stream(torch.cuda.current_stream(self.torch_device))
        with torch.cuda.stream(self._back):
            copy.copy_(tensor, non_blocking=True)
        tensor.record_stream(self._back)
        done = self._back.record_event()  # pyright: ignore[reportReturnType]

        def arrived() -> torch.Tensor:
            done.synchronize()
            return copy

        return arrived

    def used_here(self, tensor: torch.Tensor) -> None:
        """Keeps the tensor's memory until this thread's stream has passed."""
        tensor.record_stream(torch.cuda.current_stream(self.torch_device))

    def used_by_step(self, tensor: torch.Tensor) -> None:
        """Keeps the tensor's memory until the step's stream has passed."""
        tensor.record_stream(self._step_stream)

    def export_rows(self, rows: np.ndarray) -> tuple[PeerRows, dict[str, Any]]:
        """Copies rows to memory of their own, which other processes open by the handle."""
        torch.cuda.empty_cache()  # memory that torch keeps for later is not free for others
        return export_rows(self.kernels, rows)

    def open_peer(self, handle: Mapping[str, Any]) -> PeerRows:
        """Opens the rows of a handle."""
        return open_peer(self.kernels, handle)
