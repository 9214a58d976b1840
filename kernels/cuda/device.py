"""CUDA kernels: compiled at first call from kernels/cuda/*.cu, launched on a device's stream.

One source text serves every type: dtypes and widths are preprocessor names, and each combination is compiled once (compile.py beside
this file). Launching code is written against the few methods of `CudaDevice`, so the same code runs on a GPU and, in the tests, on threads
of the CPU (tests/kernels/cuda/shim). CuPy is imported when a device is opened, not before.
"""

import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, TypeVar

import numpy as np

from graphmill.kernels.arrays import dtype_name
from graphmill.kernels.cuda.compile import machine_code
from graphmill.kernels.cuda.held import HeldArrays, when_untouched
from graphmill.kernels.cuda.protocol import Kernel, PeerRows, RowsView
from graphmill.kernels.errors import InputError, install_extra
from graphmill.kernels.types import Array

Made = TypeVar("Made")
_MULTIPROCESSOR_COUNT = 16  # cudaDevAttrMultiProcessorCount
_PORTABLE = 1  # cudaHostRegisterPortable
RECORDED = "recorded launches"
"""Name of a launch of all that was recorded."""
_OPENED: set[int] = set()
"""Numbers of the GPUs that this process has opened."""


class CudaDevice:
    """One GPU through CuPy, and the stream that its kernels run on.

    Args:
        stream: a cudaStream_t, or None for CuPy's current stream.
        follows_torch: whether to use torch's current stream of the launching thread instead.

    Attributes:
        watch: returns the context of a launch by its name.

    Raises:
        InputError: CuPy or a GPU is missing.
    """

    def __init__(self, index: int = 0, stream: int | None = None, follows_torch: bool = False):
        self.cupy = _cupy()
        if index >= (found := self.cupy.cuda.runtime.getDeviceCount()):
            raise InputError(f"CUDA device {index} of {found}", "use the number of a device that nvidia-smi lists")
        self.index, self._stream, self._follows_torch = index, stream, follows_torch
        _OPENED.add(index)
        self.num_multiprocessors = _num_multiprocessors(index)
        self._streams: dict[int, Any] = {}
        self._kernels: dict[tuple[Any, ...], Kernel] = {}
        self._held = HeldArrays()
        self.watch: Callable[[str], AbstractContextManager[Any]] = nullcontext

    @property
    def stream(self) -> int | None:
        """The stream that kernels are launched on, by this thread, now."""
        if not self._follows_torch:
            return self._stream
        import torch

        # As torch's own compiler asks before every launch: the public function makes an object that takes longer than the launch.
        return torch._C._cuda_getCurrentRawStream(self.index)

    def active(self) -> AbstractContextManager[Any]:
        """Returns the context in which this device and its stream are the current ones."""
        stack = ExitStack()
        stack.enter_context(self.cupy.cuda.Device(self.index))
        self.enter_thread()
        # CuPy takes a stream for one of the device that is the current one when it first meets it.
        stream = self._taken_over(self.stream)
        if stream is not None:
            stack.enter_context(stream)
        return stack

    def enter_thread(self) -> None:
        """Makes the device the one of this thread. A thread that has not done so is told of all memory that it is not the device's."""
        self.cupy.cuda.runtime.setDevice(self.index)

    def _taken_over(self, stream: int | None) -> Any:
        """Returns CuPy's object for a stream, None for CuPy's current one."""
        if stream is None:
            return None
        if (known := self._streams.get(stream)) is None:
            streams = self.cupy.cuda.Stream
            known = self._streams[stream] = streams.from_external(_Foreign(stream)) if stream else streams.null
        return known

    def kernel(self, source: str, name: str, defines: Mapping[str, str]) -> Kernel:
        """Returns a kernel of kernels/cuda/SOURCE.cu, compiled with these preprocessor names."""
        named = source, name, *defines.items()
        if (known := self._kernels.get(named)) is None:
            compiled = _module(self.index, source, tuple(sorted(defines.items()))).get_function(name)

            def launch(grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
                self.enter_thread()
                with self.watch(name):
                    compiled(grid, block, arguments, 0, self._taken_over(self.stream))

            known = self._kernels[named] = launch
        return known

    def rows(self, array: Any, what: str) -> RowsView:
        """Returns a matrix of device memory or of pinned host memory as the device sees it.

        Args:
            array: a CuPy array, a torch tensor, a NumPy array in pinned memory, or rows of a peer; [n, F], columns adjacent.

        Raises:
            InputError: the device cannot read the memory, or columns are apart.
        """
        if isinstance(array, PeerRows):
            return array.view()
        address, strides, item_bytes, dtype = _layout(array)
        count, width = (int(n) for n in array.shape)
        if count * width == 0:
            return RowsView(0, count, width, width * item_bytes, dtype)
        if width > 1 and strides[1] != item_bytes:
            raise InputError(f"{what} has rows whose columns are not adjacent in memory", "give a C-contiguous matrix")
        runtime = self.cupy.cuda.runtime
        with self.active():
            found = runtime.pointerGetAttributes(address)
        if found.type == runtime.memoryTypeUnregistered or not found.devicePointer:
            remedy = "pin the memory (torch: tensor.pin_memory(), CuPy: cupyx.empty_pinned)"
            raise InputError(f"{what} is in host memory that the device cannot read", remedy)
        if found.type != runtime.memoryTypeHost and found.device != self.index:
            self.reach(found.device, what)
        return RowsView(found.devicePointer, count, width, strides[0], dtype)

    def reach(self, other: int, what: str) -> None:
        """Lets the device read the memory of another one of this process, by CUDA's number of it."""
        runtime = self.cupy.cuda.runtime
        if not runtime.deviceCanAccessPeer(self.index, other):
            raise InputError(f"{what} is on device {other}, which device {self.index} cannot read", "copy it over")
        _enable_peer(self.index, other)

    def holds(self, array: Any) -> bool:
        """Returns whether an array is in a GPU's memory."""
        return on_device(array)

    def upload(self, values: Array, waits: bool = True) -> Any:
        """Returns a copy of a NumPy array on the device, a torch tensor.

        Args:
            waits: whether the copy is done, for any stream; else the call returns at once, and the copy comes on this thread's stream.
        """
        import torch

        if waits:
            return torch.from_numpy(np.ascontiguousarray(values)).to(self._torch_device)
        made = self.empty(values.shape, values.dtype)
        self.update(made, values)
        return made

    def update(self, target: Any, values: Array) -> None:
        """Copies a NumPy array to a torch tensor of its shape and type, on this thread's stream; returns at once."""
        import torch

        staged = self.pinned(values.shape, values.dtype)
        staged[...] = values
        target.copy_(torch.from_numpy(staged), non_blocking=True)  # torch lends the memory again when the copy is done

    def record(self, work: Callable[[], Made]) -> tuple[Made, Callable[[], None]]:
        """Records what a function launches, without running it, as a CUDA graph.

        Args:
            work: launches on this thread's stream, waits for nothing, and returns the arrays that it makes. It has run before, so that
                nothing is compiled.

        Returns:
            The result of `work`, and a function that launches everything at once on the stream of the thread that calls it.
        """
        import torch

        if not self._follows_torch:
            raise InputError("the launches are not on torch's stream", "open the device with follows_torch=True")
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(self._torch_device)
        # Other threads allocate memory and wait for events meanwhile.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            made = work()

        def replay() -> None:
            with self.watch(RECORDED):
                graph.replay()

        return made, replay

    def download(self, array: Any) -> Array:
        """Returns a copy of a device array in NumPy, after everything that was launched before."""
        if hasattr(array, "data_ptr"):
            return array.cpu().numpy()
        with self.active():
            return self.cupy.asnumpy(array)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Returns an uninitialised torch tensor of a NumPy dtype on the device; torch's allocator keeps and reuses its memory."""
        import torch

        return torch.empty(shape, dtype=_torch_dtype(dtype), device=self._torch_device)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Returns a torch tensor of a NumPy dtype on the device whose bytes are 0."""
        import torch

        return torch.zeros(shape, dtype=_torch_dtype(dtype), device=self._torch_device)

    @functools.cached_property
    def _torch_device(self) -> Any:
        import torch

        return torch.device("cuda", self.index)

    def copy(self, array: Any) -> Any:
        """Returns a copy of a torch tensor on the device."""
        return array.clone()

    def running_sums(self, values: Any) -> Any:
        """Returns i32[n] on the device: the sum of the first i + 1 values of i32[n] at place i."""
        import torch

        return torch.cumsum(values, 0, dtype=torch.int32)

    def stable_order(self, keys: Any) -> Any:
        """Returns i32[n] on the device: the places of i32[n] keys in ascending order, equal keys in theirs."""
        import torch

        return torch.sort(keys, stable=True).indices.to(torch.int32)

    def synchronize(self) -> None:
        """Waits until everything that was launched on the stream is done."""
        with self.active():
            self.cupy.cuda.get_current_stream().synchronize()

    def hold(self, array: Array) -> None:
        """Keeps an array of the host for as long as what this thread has launched may read it.

        It waits only for the launches that read one of the arrays before the last `HeldArrays.MOST`.
        """
        import torch

        event = torch.cuda.current_stream(self.index).record_event()
        self._held.add(array, event.query, event.synchronize)

    def pinned(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Returns an uninitialised NumPy array in pinned host memory, of torch's pool; it goes back when the array is gone."""
        import torch

        num_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True).numpy().view(dtype).reshape(shape)

    def pin(self, array: Array) -> None:
        """Pins the memory of a NumPy array, whole pages of it, for as long as any view of it lives.

        The driver refuses a page that is pinned already, so an array that shares its first or last page with another one cannot be pinned
        beside it: `graphmill.kernels.rows.aligned.aligned_empty` makes arrays that share none.
        """
        if not array.nbytes:
            return
        runtime, address = self.cupy.cuda.runtime, array.ctypes.data
        try:
            with self.active():
                runtime.hostRegister(address, array.nbytes, _PORTABLE)
        except runtime.CUDARuntimeError as error:
            problem = f"{array.nbytes:,} bytes of host memory cannot be pinned: {error}"
            remedy = "raise the limit on locked memory (ulimit -l), or lower `host` in [memory]"
            raise InputError(problem, remedy) from error
        when_untouched(array, lambda: synchronize_all(self.cupy), lambda: runtime.hostUnregister(address))

    def pointer(self, array: Any, what: str) -> int:
        """Returns the address of a contiguous device array's first element."""
        ours = hasattr(array, "data_ptr")
        if not (array.is_contiguous() if ours else array.flags.c_contiguous):
            raise InputError(f"{what} is not contiguous in memory", "give a contiguous copy")
        return array.data_ptr() if ours else _layout(array)[0]


def synchronize_all(cupy: Any) -> None:
    """Waits for everything that was launched on the GPUs that this process has opened."""
    for index in list(_OPENED):
        with cupy.cuda.Device(index):
            cupy.cuda.runtime.deviceSynchronize()


class _Foreign:
    """A stream of another library, in the form in which CuPy takes it over."""

    def __init__(self, stream: int):
        self.stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.stream


def device_of(array: Any) -> CudaDevice:
    """Returns the device that holds a CuPy array or a torch tensor, with the stream that its library works on."""
    if hasattr(array, "data_ptr"):
        return _OPENERS[array.device.type](array)
    return cuda_device(array.device.id, False)


def on_device(array: Any) -> bool:
    """Returns whether an array is in a device's memory: a CuPy array, or a tensor of a device that kernels run on."""
    kind = getattr(getattr(array, "device", None), "type", None)  # a NumPy array's device is the text "cpu"
    return kind in _OPENERS or type(array).__module__.partition(".")[0] == "cupy"


def register_device(kind: str, device_of: Callable[[Any], CudaDevice]) -> None:
    """Lets kernels run on tensors of one more kind of torch device, by torch's name of it."""
    _OPENERS[kind] = device_of


def _device_of_cuda(tensor: Any) -> CudaDevice:
    return cuda_device(tensor.device.index, True)


_OPENERS: dict[str, Callable[[Any], CudaDevice]] = {"cuda": _device_of_cuda}


@functools.cache
def cuda_device(index: int, follows_torch: bool) -> CudaDevice:
    """Returns the one device of a number in this process; arguments and errors are those of `CudaDevice`."""
    return CudaDevice(index, follows_torch=follows_torch)


def _layout(array: Any) -> tuple[int, tuple[int, ...], int, str]:
    """Returns (address, strides in bytes, bytes an element, dtype name) of a torch tensor, CuPy or NumPy array."""
    if hasattr(array, "data_ptr"):
        strides = tuple(step * array.element_size() for step in array.stride())
        return array.data_ptr(), strides, array.element_size(), dtype_name(array.dtype)
    address = array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr
    return address, array.strides, array.itemsize, dtype_name(array.dtype)


def _cupy() -> Any:
    try:
        import cupy  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        problem = "CuPy is not installed"
        raise InputError(problem, f"{install_extra('cuda13')} (or, for CUDA 12: {install_extra('cuda12')})") from error
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        remedy = "install a driver for CuPy's version of CUDA (nvidia-smi names the newest of yours), or use a machine with a GPU"
        raise InputError(f"no CUDA device: {error}", remedy) from error
    return cupy


@functools.cache
def _torch_dtype(dtype: Any) -> Any:
    import torch

    return getattr(torch, np.dtype(dtype).name)


@functools.cache
def _num_multiprocessors(index: int) -> int:
    return int(_cupy().cuda.runtime.deviceGetAttribute(_MULTIPROCESSOR_COUNT, index))


@functools.cache
def _module(index: int, source: str, defines: tuple[tuple[str, str], ...]) -> Any:
    cupy = _cupy()
    with cupy.cuda.Device(index) as device:
        code = machine_code(cupy, source, dict(defines), device.compute_capability)
        module = cupy.cuda.function.Module()
        module.load(code)
    return module


@functools.cache
def _enable_peer(index: int, other: int) -> None:
    cupy = _cupy()
    with cupy.cuda.Device(index):
        try:
            cupy.cuda.runtime.deviceEnablePeerAccess(other)
        except cupy.cuda.runtime.CUDARuntimeError as error:
            if "PeerAccessAlreadyEnabled" not in str(error):
                raise
