"""Kernels on the simulated accelerators: the CUDA text, compiled for the CPU without the shim's checks, launched on its late streams."""

from __future__ import annotations

import ctypes
import functools
import gc
import itertools
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from graphmill.kernels.arrays import dtype_name
from graphmill.kernels.cuda.device import RECORDED, register_device
from graphmill.kernels.cuda.held import HeldArrays, when_untouched
from graphmill.kernels.cuda.protocol import Kernel, PeerRows, RowsView
from graphmill.kernels.errors import InputError
from tests import accelerator
from tests.accelerator import NAME, load
from tests.kernels.cuda.shim import ShimDevice

_PINNED: dict[int, int] = {}
"""First address -> end of memory of the host that all devices may touch."""
_FREE: dict[int, list[np.ndarray]] = {}
"""Number of bytes -> pinned memory of that size that Python holds no more."""


class SimulatedKernels:
    """What launching code needs of a simulated accelerator; stands in for `graphmill.kernels.cuda.device.CudaDevice`."""

    num_multiprocessors = 2

    def __init__(self, index: int = 0):
        import torch

        load()
        self.index, self._torch_device = index, torch.device(NAME, index)
        self._shim = ShimDevice(checked=False)
        self._launches: dict[int, Callable[[], None]] = {}
        self._numbers = itertools.count()
        self._run = accelerator.LAUNCHED(self._run_launch)
        self._failed: list[Exception] = []
        self._own = threading.local()
        self._held = HeldArrays()
        self.watch: Callable[[str], AbstractContextManager[Any]] = nullcontext

    def kernel(self, source: str, name: str, defines: Mapping[str, str]) -> Kernel:
        """Returns a kernel of kernels/cuda/SOURCE.cu, which runs when its stream is waited for."""
        kernel = self._shim.kernel(source, name, defines)

        def launch(grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...], **more: Any) -> None:
            run = functools.partial(kernel, grid, block, arguments, **more)
            touches = {*self._named(), *(int(each) for each in arguments if isinstance(each, np.uint64))} - {0}
            self._named().clear()
            recording = self._recorded()
            self._launched(run, name, touches) if recording is None else recording.add(run, touches)

        return launch

    def _launched(self, run: Callable[[], None], name: str, touches: set[int]) -> None:
        """Puts a launch on this thread's stream, with the addresses of the memory that it may touch."""
        self._raise_failed()
        self.enter_thread()
        number = next(self._numbers)
        self._launches[number] = run
        places = (ctypes.c_uint64 * len(touches))(*touches)
        with self.watch(name):
            accelerator.load().simulated_launch(self.index, self._run, number, name.encode(), places, len(touches))

    def _recorded(self) -> _Recorded | None:
        """The launches that this thread records; None if it launches them."""
        return getattr(self._own, "recording", None)

    def _named(self) -> list[int]:
        """Addresses that this thread asked for since its last launch: a launch may get them in a table."""
        if not hasattr(self._own, "named"):
            self._own.named = []
        return self._own.named

    def _run_launch(self, number: int) -> None:
        try:
            with _NO_COLLECTION:
                self._launches.pop(number)()
        except Exception as error:  # nothing may leave a function that C++ calls
            self._failed.append(error)

    def _raise_failed(self) -> None:
        accelerator.raise_fault()
        if self._failed:
            first = self._failed[0]
            self._failed.clear()
            raise first

    def rows(self, array: Any, what: str) -> RowsView:
        """Returns a matrix of device memory or of pinned host memory; refuses any other."""
        if isinstance(array, PeerRows):
            self._named().append(array.pointer)
            return array.view()
        count, width = (int(n) for n in array.shape)
        if isinstance(array, np.ndarray):
            address, row_bytes, dtype = array.ctypes.data, array.strides[0], dtype_name(array.dtype)
            inside = any(first <= address and address + array.nbytes <= end for first, end in _PINNED.copy().items())
            if array.size and not inside:
                remedy = "pin the memory (torch: tensor.pin_memory(), CuPy: cupyx.empty_pinned)"
                raise InputError(f"{what} is in host memory that the device cannot read", remedy)
        else:
            assert array.device.type == NAME, f"{what} is on {array.device}"
            address, row_bytes = array.data_ptr(), array.stride(0) * array.element_size()
            dtype = dtype_name(array.dtype)
        return RowsView(address if count * width else 0, count, width, row_bytes, dtype)

    def holds(self, array: Any) -> bool:
        """Says whether an array is a tensor of the device."""
        return not isinstance(array, np.ndarray) and array.device.type == NAME

    def upload(self, values: np.ndarray, waits: bool = True) -> Any:
        """Returns a copy of a NumPy array on the device; as late as it may be if nobody waits."""
        import torch

        if waits:
            return torch.from_numpy(np.ascontiguousarray(values)).to(self._torch_device)
        made = self.empty(values.shape, values.dtype)
        self.update(made, values)
        return made

    def update(self, target: Any, values: np.ndarray) -> None:
        """Copies a NumPy array to a tensor, as late as it may be."""
        import torch

        staged = self.pinned(values.shape, values.dtype)
        staged[...] = values
        target.copy_(torch.from_numpy(staged), non_blocking=True)

    def record(self, work: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        """Keeps what a function launches instead of running it; the replay is one launch of this thread's stream."""
        recording = self._own.recording = _Recorded()
        try:
            made = work()
        finally:
            self._own.recording = None
        return made, lambda: self._launched(recording.run, RECORDED, recording.touches)

    def download(self, array: Any) -> np.ndarray:
        """Returns a copy of a tensor in NumPy."""
        return array.cpu().numpy()

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Returns an uninitialised tensor of a NumPy dtype."""
        import torch

        made = torch.empty(shape, dtype=getattr(torch, np.dtype(dtype).name), device=self._torch_device)
        if (recording := self._recorded()) is not None:
            recording.kept.append(made)
        return made

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Returns a tensor of a NumPy dtype whose bytes are 0."""
        import torch

        return torch.zeros(shape, dtype=getattr(torch, np.dtype(dtype).name), device=self._torch_device)

    def enter_thread(self) -> None:
        """Makes the device the one of this thread."""
        accelerator.load().simulated_set_device(self.index)

    def copy(self, array: Any) -> Any:
        """Returns a copy of a tensor."""
        return array.clone()

    def running_sums(self, values: Any) -> Any:
        """Returns running sums."""
        import torch

        recording = self._recorded()
        if recording is None:
            return torch.cumsum(values, 0, dtype=torch.int32)
        sums = self.empty(tuple(values.shape), np.int32)
        # On the memory itself: an operation of torch would run what follows on the stream first.
        one, other = (_memory(each) for each in (values, sums))
        recording.add(lambda: np.cumsum(one, dtype=np.int32, out=other), set())
        return sums

    def stable_order(self, keys: Any) -> Any:
        """Returns the order of keys."""
        import torch

        return torch.sort(keys, stable=True).indices.to(torch.int32)

    def synchronize(self) -> None:
        """Waits for this thread's stream."""
        accelerator.wait_for(accelerator.current_stream(self.index))
        self._raise_failed()

    def hold(self, array: np.ndarray) -> None:
        """Keeps an array of the host for as long as what this thread has launched may read it."""
        stream = accelerator.current_stream(self.index)
        event = accelerator.mark(stream)
        self._held.add(array, lambda: accelerator.passed(stream, event), lambda: accelerator.wait_for(stream))

    def pinned(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Returns host memory that kernels may touch, of a pool as torch has one: it is lent again as soon as nobody in Python holds it."""
        num_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        size = 1 << max(0, num_bytes - 1).bit_length()
        free = _FREE.setdefault(size, [])
        memory = free.pop() if free else np.empty(size, np.uint8)
        memory[:] = accelerator.GARBAGE
        _PINNED[memory.ctypes.data] = memory.ctypes.data + size
        accelerator.load().simulated_lend(memory.ctypes.data, size)
        # An object without memory of its own stands for the loan: every view keeps it.
        loan = (ctypes.c_ubyte * size).from_address(memory.ctypes.data)
        weakref.finalize(loan, self._take_back, memory)
        return np.frombuffer(loan, np.uint8)[:num_bytes].view(dtype).reshape(shape)

    def _take_back(self, memory: np.ndarray) -> None:
        accelerator.give_back(memory.ctypes.data, len(memory), "pinned memory of the pool")
        memory[:] = accelerator.GARBAGE
        _FREE[len(memory)].append(memory)

    def pin(self, array: np.ndarray) -> None:
        """Lets kernels touch an array."""
        if array.nbytes:
            _PINNED[array.ctypes.data] = array.ctypes.data + array.nbytes
            when_untouched(array, accelerator.wait_for_all, functools.partial(_unpin, array.ctypes.data, array.nbytes))

    def pointer(self, array: Any, what: str) -> int:
        """Returns the address of a contiguous tensor's first element."""
        if isinstance(array, np.ndarray):
            return self.rows(array.reshape(1, -1), what).pointer
        if not array.is_contiguous():
            raise InputError(f"{what} is not contiguous in memory", "give a contiguous copy")
        assert array.device == self._torch_device, f"{what} is on {array.device}"
        self._named().append(array.data_ptr())
        return array.data_ptr()


class _NoCollection:
    """Collects no garbage while launches run: a finalizer that waits for a device would run later launches inside one."""

    def __init__(self) -> None:
        self._lock, self._running, self._collects = threading.Lock(), 0, True

    def __enter__(self) -> None:
        with self._lock:
            if not self._running:
                self._collects = gc.isenabled()
                gc.disable()
            self._running += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._running -= 1
            if not self._running and self._collects:
                gc.enable()


_NO_COLLECTION = _NoCollection()


class _Recorded:
    """Launches that are kept, the memory that they may touch, and the arrays between them, whose memory belongs to them."""

    def __init__(self) -> None:
        self.launches: list[Callable[[], object]] = []
        self.touches: set[int] = set()
        self.kept: list[Any] = []

    def add(self, launch: Callable[[], object], touches: set[int]) -> None:
        """Adds a launch."""
        self.launches.append(launch)
        self.touches |= touches

    def run(self) -> None:
        """Runs all launches."""
        for launch in self.launches:
            launch()


def _unpin(address: int, num_bytes: int) -> None:
    """Takes memory away from the devices."""
    accelerator.give_back(address, num_bytes, "pinned memory")
    _PINNED.pop(address, None)


def _memory(tensor: Any) -> np.ndarray:
    """Returns i32[n], the memory of a tensor of the device."""
    if not len(tensor):
        return np.empty(0, np.int32)
    return np.ctypeslib.as_array((ctypes.c_int32 * len(tensor)).from_address(tensor.data_ptr()))


@functools.cache
def kernels(index: int = 0) -> SimulatedKernels:
    """Returns a device of the process, on which kernels run from now on."""
    made = SimulatedKernels(index)
    register_device(NAME, lambda tensor: kernels(tensor.device.index))
    return made
