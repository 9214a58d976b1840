"""A device with memory of its own: a GPU.

Operands are sent to it explicitly: arrays of a batch in one copy through pinned memory, rows of features by a kernel that reads them over
the bus, parameters once. Each transfer is booked on a ledger, so that every byte that crosses has a line.

Threads that prepare batches work on streams of their own, beside that of the training step, and hand a batch over when it is done. So the
step never waits for the bus, and pinned buffers are free again when a thread continues.

The part that is specific to a kind of accelerator is its backend: CUDA's is trainers/devices/cuda.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from graphmill.kernels.cuda.protocol import PeerRows
from graphmill.kernels.rows.aligned import BufferPool, aligned_empty
from graphmill.trainers.devices.cuda import CudaBackend
from graphmill.trainers.devices.launches import Note, StreamLaunches
from graphmill.trainers.devices.protocol import CACHE, Device, OverBudget, numpy_dtype, torch_dtype
from graphmill.trainers.devices.spans import DeviceSpans
from graphmill.trainers.record.ledger import Ledger, Line

ALIGNMENT = 256
"""Alignment in bytes of arrays that are sent together."""
ROWS = Line("h2d", "feature")
PIECE_BYTES = 64 << 20
"""Bytes staged at once: torch keeps pinned memory, in powers of two, so a graph is not sent through staging memory of its size."""


class Accelerator(Device):
    """A device with memory of its own: its allocator counts the memory, and its bus has its own speed.

    Args:
        work_bytes, cache_bytes: bounds on memory for work and for cached rows, None for no bound.
    """

    remote = True

    def __init__(
        self, backend: CudaBackend, index: int = 0, work_bytes: int | None = None, cache_bytes: int | None = None
    ):
        self.backend, self.index, self.work_bytes, self.cache_bytes = backend, index, work_bytes, cache_bytes
        self.kind, self.torch_device = backend.kind, backend.torch_device
        self.traffic = Ledger()
        self.spans: DeviceSpans = DeviceSpans(backend)
        backend.kernels.watch = self.spans.span
        self._cached_bytes = self._exported_bytes = 0

    @property
    def peak(self) -> Mapping[str, int]:
        """Peak bytes: of cached rows, and in total."""
        return {CACHE: self._cached_bytes, "total": self.backend.peak_bytes() + self._exported_bytes}

    @property
    def facts(self) -> Mapping[str, Any]:
        """The device's name, and the transfers besides those of batches."""
        return {"device": str(self.torch_device), "traffic_besides_batches": self.traffic.rows()["moves"]}

    def alloc(self, shape: tuple[int, ...], dtype: torch.dtype | np.dtype[Any], purpose: str) -> torch.Tensor:
        """As `Device.alloc`; cached rows are booked against their budget, and stay booked, and the device bounds the rest."""
        kind = torch_dtype(dtype)
        asked = int(torch.Size(shape).numel()) * kind.itemsize
        if purpose == CACHE:
            self._book_cached(asked)
        try:
            return torch.empty(shape, dtype=kind, device=self.torch_device)
        except torch.OutOfMemoryError as error:
            raise self._too_small(error, asked, purpose) from error

    @contextmanager
    def filling(self, rows: torch.Tensor) -> Iterator[np.ndarray]:
        """Yields an array of the host, which is sent to cached rows when the block ends, and booked beside the batches' traffic."""
        filled = np.empty(tuple(rows.shape), numpy_dtype(rows.dtype))
        yield filled
        rows.copy_(torch.from_numpy(filled))
        self.traffic.crossed(ROWS, filled.nbytes)

    def rows(self, pool: BufferPool, count: int, width: int, dtype: str) -> torch.Tensor:
        """Returns dtype[count, width], uninitialised, in the device's memory."""
        return self.alloc((count, width), np.dtype(dtype), "inputs")

    def _book_cached(self, asked: int) -> None:
        if self.cache_bytes is not None and self._cached_bytes + asked > self.cache_bytes:
            what = f"{CACHE} on device {self.index} (cache {self.cache_bytes:,})"
            raise OverBudget(asked, self.cache_bytes - self._cached_bytes, what, "raise `device` in [memory]")
        self._cached_bytes += asked

    def export_rows(self, rows: np.ndarray) -> tuple[PeerRows, dict[str, Any]]:
        """As `Device.export_rows`; they stay booked. Too little free memory is an `InputError`, too."""
        self._book_cached(rows.nbytes)
        self._exported_bytes += rows.nbytes
        self.traffic.crossed(ROWS, rows.nbytes)
        return self.backend.export_rows(rows)

    def sibling(self, index: int) -> Accelerator:
        """Opens another device of this process, with the same bounds; raises InputError if the process sees fewer devices."""
        return Accelerator(type(self.backend)(index), index, self.work_bytes, self.cache_bytes)

    def open_peer(self, handle: Mapping[str, Any]) -> PeerRows:
        """As `Device.open_peer`."""
        return self.backend.open_peer(handle)

    def enter_thread(self) -> None:
        """Makes the device the one of the calling thread, before its first operation there."""
        self.backend.kernels.enter_thread()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Returns a context in which the budgets bound torch's memory on the device; raises OverBudget if the training does not fit."""
        torch_rows = self._cached_bytes - self._exported_bytes  # exported rows are not in torch's memory
        bound = None if self.work_bytes is None else self.work_bytes + torch_rows
        self.backend.bound(bound)
        try:
            with self.working():
                yield
        finally:
            self.backend.bound(None)

    def training(self) -> AbstractContextManager[Any]:
        """Returns the context of a training epoch, which is always bounded by the device's memory."""
        return self.active()

    def working(self) -> AbstractContextManager[Any]:
        """As `Device.working`."""
        return self._reporting("training")

    def evaluating(self) -> AbstractContextManager[Any]:
        """As `Device.evaluating`."""
        remedy = "lower `eval_workspace` (of `graphmill predict`: --workspace), or `device` in [memory]"
        return self._reporting("evaluation", remedy)

    @contextmanager
    def _reporting(self, purpose: str, remedy: str = "") -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            with suppress(Exception):  # the error may be the device's
                self.backend.settle()  # launches for batches that nobody takes read what goes with the error
            if isinstance(error, torch.OutOfMemoryError):
                raise self._too_small(error, 0, purpose, remedy) from error
            raise

    def free_bytes(self) -> int:
        """Returns the bytes of the device's memory that nothing holds yet."""
        return self.backend.free_bytes()

    def peer_link(self, gbps: float | None) -> None:
        """Returns None: other devices send rows over links of this machine."""

    @property
    def in_host_memory(self) -> bool:
        """False: every row crosses a link."""
        return False

    def own_thread(self) -> ThreadPoolExecutor:
        """Returns a thread that launches the device's work."""
        return ThreadPoolExecutor(1, f"device {self.index}", self.enter_thread)

    def holds(self, array: Any) -> bool:
        """Returns whether an array is a tensor on the device."""
        return isinstance(array, torch.Tensor) and array.device == self.torch_device

    def send(self, arrays: Sequence[np.ndarray], line: Line, ledger: Ledger) -> list[Any]:
        """Returns copies of arrays on the device, made by one transfer.

        Args:
            arrays: contiguous arrays of any shapes and types.
            line, ledger: where the transfer is booked: the bytes of the arrays as asked, with the space between them as moved.
        """
        starts, end = _side_by_side([array.nbytes for array in arrays])
        if end == 0:
            return [
                torch.empty(array.shape, dtype=torch_dtype(array.dtype), device=self.torch_device) for array in arrays
            ]
        whole = torch.empty(end, dtype=torch.uint8, device=self.torch_device)
        contents = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
        for low in range(0, end, PIECE_BYTES):
            high = min(end, low + PIECE_BYTES)
            staging = self.staging((high - low,), np.uint8)
            for start, content in zip(starts, contents, strict=True):
                first, last = max(start, low), min(start + len(content), high)
                if first < last:
                    staging[first - low : last - low] = content[first - start : last - start]
            # Torch lends the staging memory again when the copy is done.
            with self.spans.span("h2d"):
                whole[low:high].copy_(torch.from_numpy(staging), non_blocking=True)
            if high < end:
                self.backend.kernels.synchronize()  # so that one piece of staging memory is enough
        ledger.move(line, requests=1, asked_bytes=sum(array.nbytes for array in arrays), moved_bytes=end)
        return [
            whole[start : start + array.nbytes].view(torch_dtype(array.dtype)).view(array.shape)
            for start, array in zip(starts, arrays, strict=True)
        ]

    def send_tensor(self, tensor: torch.Tensor, line: Line, ledger: Ledger) -> torch.Tensor:
        """Returns a copy of a tensor of the host or of another device on this one, or the tensor itself if it is there.

        The copy comes after all work queued on the calling thread's streams of both devices, and before what is queued later.
        """
        return tensor if tensor.device == self.torch_device else self._moved(tensor, self.torch_device, line, ledger)

    def fetch(self, tensor: torch.Tensor, line: Line, ledger: Ledger) -> torch.Tensor:
        """Returns a copy of a tensor in the host's memory, or the tensor itself if it is there."""
        return tensor if tensor.device.type == "cpu" else self._moved(tensor, torch.device("cpu"), line, ledger)

    def fetch_together(self, tensors: Sequence[torch.Tensor], line: Line, ledger: Ledger) -> list[np.ndarray]:
        """Returns copies of tensors in pinned host memory, made by one transfer, which it waits for.

        Args:
            tensors: tensors of any shapes and types on the device.
            line, ledger: where the transfer is booked: the bytes of the tensors as asked, with the space between them as moved.

        Returns:
            Arrays of the tensors' shapes and types. Their memory is lent for as long as one of them lives.
        """
        sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
        starts, end = _side_by_side(sizes)
        staging = self.staging((end,), np.uint8)
        if end:
            whole = torch.empty(end, dtype=torch.uint8, device=self.torch_device)
            for start, size, tensor in zip(starts, sizes, tensors, strict=True):
                if size:
                    whole[start : start + size].copy_(tensor.detach().contiguous().view(-1).view(torch.uint8))
            with self.spans.span("d2h"):
                torch.from_numpy(staging).copy_(whole, non_blocking=True)
            self.backend.kernels.synchronize()
            ledger.move(line, requests=1, asked_bytes=sum(sizes), moved_bytes=end)
        return [
            staging[start : start + size].view(numpy_dtype(tensor.dtype)).reshape(tuple(tensor.shape))
            for start, size, tensor in zip(starts, sizes, tensors, strict=True)
        ]

    def fetch_later(self, tensor: torch.Tensor, line: Line, ledger: Ledger) -> Callable[[], torch.Tensor]:
        """Starts to copy a tensor to the host's memory on its own stream; returns a function that waits for the copy and returns it."""
        ledger.crossed(line, tensor.numel() * tensor.element_size())
        return self.backend.copied_back(tensor.detach().contiguous())

    def _moved(self, tensor: torch.Tensor, to: torch.device, line: Line, ledger: Ledger) -> torch.Tensor:
        ledger.crossed(line, tensor.numel() * tensor.element_size())
        with self.spans.span(line.link):
            return tensor.detach().contiguous().to(to)

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Returns a context in which a thread prepares a batch on a stream of its own; at its end all of it is done."""
        with self.launching() as launches:
            yield
        self.backend.wait(launches.event)

    @contextmanager
    def launching(self) -> Iterator[StreamLaunches]:
        """As `Device.launching`: on a stream that no other thread has meanwhile."""
        stream, launches = self.backend.take_stream(), StreamLaunches(self.backend)
        try:
            with self.backend.on_stream(stream):
                yield launches
                launches.event = self.backend.event(stream)
        finally:
            self.backend.give_back(stream)

    def mark(self) -> StreamLaunches:
        """As `Device.mark`."""
        launches = StreamLaunches(self.backend)
        launches.event = self.backend.event()
        return launches

    def keep(self, tensors: Iterable[Any]) -> None:
        """As `Device.keep`."""
        for tensor in tensors:
            self.backend.used_here(tensor)

    def note(self, tensor: torch.Tensor, line: Line, ledger: Ledger) -> Note:
        """Starts to copy a small tensor to pinned memory, behind what this thread launched before, and books the transfer."""
        ledger.crossed(line, tensor.numel() * tensor.element_size())
        copy = torch.from_numpy(self.staging(tuple(tensor.shape), numpy_dtype(tensor.dtype)))
        with self.spans.span("d2h"):
            copy.copy_(tensor, non_blocking=True)
        return Note(self.backend, copy, self.backend.event())

    def hand_over(self, tensors: Iterable[Any]) -> None:
        """Marks tensors made in `preparing` as used by the training step, so that their memory waits for it."""
        for tensor in tensors:
            self.backend.used_by_step(tensor)

    def pin(self, array: np.ndarray) -> bool:
        """Lets the device read an array of the host in place, for as long as the array lives."""
        self.backend.kernels.pin(array)
        return True

    def host_array(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Returns an uninitialised array in memory of its own size, pinned for as long as the array lives."""
        array = aligned_empty(int(np.prod(shape)) * np.dtype(dtype).itemsize).view(dtype).reshape(shape)
        self.pin(array)
        return array

    def staging(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Returns an uninitialised array in pinned memory of torch's pool."""
        return self.backend.kernels.pinned(shape, dtype)

    def _too_small(self, error: Exception, asked: int, purpose: str, remedy: str = "") -> OverBudget:
        if not remedy:
            remedy = "lower `batch_size`, `fanouts` or `hidden`, or `device` in [memory]"
            remedy = f"raise `workspace`, or {remedy}" if self.work_bytes is not None else remedy
        first = str(error).partition("\n")[0]
        return OverBudget(
            asked, 0, f"{purpose} on {self.torch_device} ({self.backend.total_bytes:,} bytes; {first})", remedy
        )


def _side_by_side(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Returns the first byte of each of some aligned pieces, and the bytes of all."""
    *starts, end = accumulate((-(-size // ALIGNMENT) * ALIGNMENT for size in sizes), initial=0)
    return starts, end
