"""A GPU as an accelerator's backend: torch's allocator and streams, CuPy's kernels."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from kernels.cuda.device import CudaDevice, KernelDevice
from kernels.errors import InputError


class CudaBackend:
    """One GPU.

    Args:
        index: number that CUDA gives the device.

    Raises:
        InputError: there is no such GPU, its driver is too old, or torch or CuPy cannot use it.
    """

    kind = "cuda"

    def __init__(self, index: int = 0):
        if not torch.cuda.is_available():
            if torch.version.cuda is None:
                problem = f'device = "cuda", but torch {torch.__version__} is built for the CPU'
                raise InputError(problem, 'install a build for CUDA (pytorch.org says which), or set device = "cpu"')
            CudaDevice(index)  # says what is missing
            problem = f'device = "cuda", but torch {torch.__version__} (CUDA {torch.version.cuda}) finds no GPU that it can use'
            raise InputError(problem, 'install a driver for that version of CUDA, or set device = "cpu"')
        self.kernels: KernelDevice = CudaDevice(index, follows_torch=True)
        self.torch_device = torch.device(self.kind, index)
        self.total_bytes = torch.cuda.get_device_properties(index).total_memory
        self._streams = threading.local()
        self._step_stream = torch.cuda.current_stream(index)

    def bound(self, num_bytes: int | None) -> None:
        """Lets torch's allocator hold so many bytes at most."""
        share = 1.0 if num_bytes is None else min(1.0, num_bytes / self.total_bytes)
        torch.cuda.set_per_process_memory_fraction(share, self.torch_device)

    def peak_bytes(self) -> int:
        """Returns the most bytes of live tensors."""
        return torch.cuda.max_memory_allocated(self.torch_device)

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        """Works on this thread's own stream, and waits for it at the end."""
        if not hasattr(self._streams, "own"):
            self._streams.own = torch.cuda.Stream(self.torch_device)
        with torch.cuda.stream(self._streams.own):
            yield
        self._streams.own.synchronize()

    def used_by_step(self, tensor: torch.Tensor) -> None:
        """Keeps the tensor's memory until the step's stream has passed."""
        tensor.record_stream(self._step_stream)
