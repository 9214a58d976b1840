"""The interface of a device: memory that is booked by purpose, and links by direction.

Every trainer is written against `Device`. `LogicalDevice` (trainers/devices/logical.py) is a CPU that is held to a device's memory;
`Accelerator` (trainers/devices/accelerator.py) has memory of its own, to which all its operands must be sent. A budget is enforced at each
allocation, so that a run that does not fit ends with one message instead of a crash.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import torch

from graphmill.kernels.errors import InputError
from graphmill.trainers.devices.launches import Launches, Note
from graphmill.trainers.devices.link import Link

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from graphmill.kernels.rows.aligned import BufferPool
    from graphmill.trainers.devices.spans import DeviceSpans
    from graphmill.trainers.record.ledger import Ledger, Line

CACHE = "cache"
"""The purpose of cached rows; everything else is work."""
Direction = Literal["h2d", "d2h", "d2d", "rank"]
"""Host to device, device to host, device to device, rank to rank."""


class OverBudget(InputError):
    """An allocation that a budget does not allow, with the bytes that were asked for and those that were free."""

    def __init__(self, asked: int, free: int, purpose: str, remedy: str):
        super().__init__(f"{purpose} asks for {asked:,} bytes where {max(free, 0):,} are free", remedy)
        self.asked, self.free = asked, free


class Device(Protocol):
    """The device that a training computes on. Its methods are those of one in the host's memory that books nothing.

    Attributes:
        kind: "logical" for a part of this machine's CPU, else torch's name of the kind of device.
        remote: whether it has memory of its own, to which operands must be sent.
        traffic: ledger of the transfers besides those of training batches: parameters, checkpoints, evaluation.
        work_bytes, cache_bytes: bounds on memory for work and for cached rows in bytes, None for no bound.
        peak: peak bytes by purpose; "total" is the peak of their sum.
        spans: what its streams do in an epoch; None on a device without memory of its own.
    """

    index: int
    kind: str
    torch_device: torch.device
    remote: bool
    traffic: Ledger
    work_bytes: int | None
    cache_bytes: int | None
    spans: DeviceSpans | None = None

    @property
    def peak(self) -> Mapping[str, int]: ...  # noqa: D102

    @property
    def facts(self) -> Mapping[str, Any]:
        """Facts about the device and its transfers, for run.json; none of one without memory of its own."""
        return {}

    def alloc(self, shape: tuple[int, ...], dtype: torch.dtype | np.dtype[Any], purpose: str) -> torch.Tensor:
        """Allocates a tensor that is booked while it lives; raises OverBudget, and allocates nothing, if the budget does not allow it."""
        ...

    @contextmanager
    def filling(self, rows: Any) -> Iterator[np.ndarray]:
        """Yields an array of the host for the contents of cached rows, dtype[n, F]; the device has them when the block ends."""
        yield rows

    def rows(self, pool: BufferPool, count: int, width: int, dtype: str) -> torch.Tensor:
        """Returns dtype[count, width], uninitialised, for a batch's inputs: in memory that the pool lends, or in the device's own."""
        num_bytes = count * width * np.dtype(dtype).itemsize
        buffer = pool.take(num_bytes)
        values = buffer.data[:num_bytes].view(dtype).reshape(count, width)
        # The tensor's storage holds `values`, and nothing else does: the memory goes back when no tensor uses it any more.
        weakref.finalize(values, buffer.release_later).atexit = False
        return torch.from_numpy(values)

    def adopt(self, arrays: Iterable[torch.Tensor | np.ndarray], purpose: str) -> None:
        """Books tensors and NumPy arrays made elsewhere for as long as they live; raises OverBudget if the budget does not allow it."""

    def holding(self, num_bytes: int, purpose: str) -> AbstractContextManager[Any]:
        """Returns a context in which bytes without an array are booked; raises OverBudget if the budget does not allow it."""
        return nullcontext()

    def link(self, direction: Direction) -> Link | None:
        """Returns the link of a direction, shared by all threads that move bytes over it; None if it has the machine's own speed."""
        return None

    def peer_link(self, gbps: float | None) -> Link | None:
        """Returns a modelled link over which other devices of this process send rows, at a speed in GB/s; None for a link of its own."""
        return None if gbps is None else Link(gbps)

    @property
    def in_host_memory(self) -> bool:
        """Whether it computes on the host's own arrays, at the memory's speed: no row crosses a link to it, or from it."""
        return self.link("h2d") is None and self.link("d2h") is None

    def own_thread(self) -> ThreadPoolExecutor | None:
        """Returns a thread that does nothing but this device's work; None if the device shares the processor with others."""
        return None

    def enter_thread(self) -> None:
        """Makes the device the one of the calling thread, before its first operation there."""

    def active(self) -> AbstractContextManager[Any]:
        """Returns a context in which all work of this thread is done, and booked, on this device."""
        ...

    def training(self) -> AbstractContextManager[Any]:
        """Returns the context of a training epoch: work is booked, which takes time, only if it is bounded."""
        return nullcontext() if self.work_bytes is None else self.active()

    def working(self) -> AbstractContextManager[Any]:
        """Returns a context for the work of one of several threads, bounded elsewhere; raises OverBudget if there is too little memory."""
        return nullcontext()

    def holds(self, array: Any) -> bool:
        """Returns whether an operand, an array of the host or a tensor, is in the memory that the device computes on."""
        return True

    def send(self, arrays: Sequence[np.ndarray], line: Line, ledger: Ledger) -> list[Any]:
        """Returns arrays in the device's memory, and books one transfer; a device without memory of its own returns them as they are."""
        return list(arrays)

    def send_tensor(self, tensor: torch.Tensor, line: Line, ledger: Ledger) -> torch.Tensor:
        """Returns a tensor of the host or of another device in the device's memory, and books the transfer; devices that share the host's
        memory copy nothing.
        """
        return tensor

    def fetch(self, tensor: torch.Tensor, line: Line, ledger: Ledger) -> torch.Tensor:
        """Returns a tensor in the host's memory, and books the transfer."""
        return tensor

    def fetch_later(self, tensor: torch.Tensor, line: Line, ledger: Ledger) -> Callable[[], torch.Tensor]:
        """Starts to move a tensor to the host's memory, and books the transfer; returns a function that waits and returns it.

        The device computes meanwhile.
        """
        return tensor.detach

    def preparing(self) -> AbstractContextManager[Any]:
        """Returns a context in which a thread prepares a batch beside the training step; at its end all of it is done."""
        return nullcontext()

    @contextmanager
    def launching(self) -> Iterator[Launches]:
        """Yields the launches of a thread in the block, beside the training step; the host does not wait for them."""
        yield Launches()

    def mark(self) -> Launches:
        """Returns all that this thread has launched so far, for other threads to join."""
        return Launches()

    def keep(self, tensors: Iterable[Any]) -> None:
        """Marks tensors of other launches as used by what this thread launches, so that their memory waits for it."""

    def note(self, tensor: torch.Tensor, line: Line, ledger: Ledger) -> Note:
        """Starts to copy a small tensor of a device with memory of its own to the host, and books the transfer.

        Returns:
            The copy, which is read when it has arrived.
        """
        ...

    def hand_over(self, tensors: Iterable[Any]) -> None:
        """Marks tensors made in `preparing` or `launching` as used by the training step, so that their memory waits for it."""

    def pin(self, array: np.ndarray) -> bool:
        """Lets the device read an array of the host in place, for as long as the array lives; False if it needs no leave for that."""
        return False

    def host_array(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Returns an uninitialised array of the host that the device reads in place, for long use; aligned as torch's tensors are."""
        num_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        memory = np.empty(num_bytes + 64, np.uint8)
        start = -memory.ctypes.data % 64
        return memory[start : start + num_bytes].view(dtype).reshape(shape)

    def staging(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Returns an uninitialised array of the host that the device reads in place, for short use.

        Its memory is lent again as soon as no Python object refers to it, so wait for every kernel that reads it.
        """
        return np.empty(shape, dtype)

    def export_rows(self, rows: np.ndarray) -> tuple[Any, dict[str, Any]]:
        """Copies rows to the device's memory, where other devices of this machine read them, and books them as cached rows.

        Args:
            rows: [n, F] of a stored type, in the host's memory.

        Returns:
            The rows as a gather on this device takes them, and their handle, which is JSON-ready. They are there for as long as anything
            refers to the rows.

        Raises:
            OverBudget: the budget does not allow it.
            InputError: the memory cannot be shared.
        """
        ...

    def open_peer(self, handle: Mapping[str, Any]) -> Any:
        """Returns the exported rows of a device of this machine, of this process or of another, as a gather on this device takes them.

        Raises:
            InputError: the process that has them is gone or has dropped them, or this device cannot read the other's memory.
        """
        ...

    def evaluating(self) -> AbstractContextManager[Any]:
        """Returns a context for an evaluation, which bounds its memory by itself; raises OverBudget if the device has too little."""
        return nullcontext()

    def free_bytes(self) -> int | None:
        """Returns the bytes of the device's own memory that nothing holds yet; None on a device without memory of its own."""
        return None


def torch_dtype(dtype: torch.dtype | np.dtype[Any] | str) -> torch.dtype:
    """Returns the torch type of a NumPy type or of its name."""
    if isinstance(dtype, torch.dtype):
        return dtype
    return torch.from_numpy(np.empty(0, dtype)).dtype


def numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    """Returns the NumPy type of a torch type that NumPy has."""
    return torch.empty(0, dtype=dtype).numpy().dtype


def kernel_array(tensor: torch.Tensor) -> Any:
    """Returns a tensor as kernels take it: a NumPy view if it is in this machine's memory, else the tensor itself."""
    return tensor.numpy() if tensor.device.type == "cpu" else tensor
