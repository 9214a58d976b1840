"""Rows in a GPU's memory that other devices of the machine read where they are, without help of the process that has them.

A process exports rows, and others open them by a handle, which is JSON-ready: through CUDA's handles between processes, or by the address
itself in the process that exported them, which may not open a handle of its own. Kernels then read the rows as they read memory of their
device, over NVLink or PCIe; the tier of peers of the gather is made of them (kernels/rows/gather_cuda.py).

Exported memory is an allocation of its own, in whole steps of 2 MiB: CUDA shares whole allocations, so rows inside those of a pool would
show others what lies beside them, and pools that grow in place (torch's expandable segments) cannot be exported. It is freed when the
process that exported the rows drops them, so other processes drop theirs before, or do not read them any more. A GPU that
`CUDA_VISIBLE_DEVICES` hides from a process can be read by it.
"""

from __future__ import annotations

import os
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from graphmill.kernels.cuda.device import CudaDevice, synchronize_all
from graphmill.kernels.cuda.protocol import PeerRows
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

STEP_BYTES = 2 << 20
"""Exported memory is a multiple of it."""
_TO_DEVICE = 1  # cudaMemcpyHostToDevice
_EXPORTED: weakref.WeakValueDictionary[str, _Memory] = weakref.WeakValueDictionary()


class _Memory:
    """Memory of a device, by its number; `end` frees or unmaps it when nothing refers to it any more."""

    def __init__(self, device: int, pointer: int, end: Callable[[], None] | None):
        self.device, self.pointer = device, pointer
        if end is not None:
            # The driver frees everything of a process that ends, and may be gone when Python's last calls are made.
            weakref.finalize(self, end).atexit = False


def export_rows(device: CudaDevice, rows: Array) -> tuple[PeerRows, dict[str, Any]]:
    """Copies rows to a device's memory, where other devices of the machine can read them.

    Args:
        rows: [n, F] of any type, in the host's memory.

    Returns:
        The rows as kernels of this device take them, and their handle, valid for as long as the rows live.

    Raises:
        InputError: the device has too little free memory.
    """
    name, pointer, shown = uuid.uuid4().hex, 0, b""
    runtime = device.cupy.cuda.runtime
    if rows.nbytes:
        with device.active():
            pointer = _allocated(device, rows.nbytes)
        memory = _Memory(device.index, pointer, _ending(device, runtime.free, pointer))
        with device.active():
            runtime.memcpy(pointer, np.ascontiguousarray(rows).ctypes.data, rows.nbytes, _TO_DEVICE)
            runtime.deviceSynchronize()  # the copy may return before its last bytes have arrived
            with suppress(runtime.CUDARuntimeError):  # whoever opens them is told; a process alone needs no handle
                shown = runtime.ipcGetMemHandle(pointer)
    else:
        memory = _Memory(device.index, 0, None)
    _EXPORTED[name] = memory
    handle = {"name": name, "process": os.getpid(), "shown": bytes(shown).hex()}
    handle |= {"shape": list(rows.shape), "dtype": rows.dtype.name}
    return PeerRows(pointer, tuple(rows.shape), rows.dtype, memory), handle


def open_peer(device: CudaDevice, handle: Mapping[str, Any]) -> PeerRows:
    """Opens rows that a device of this machine has, of this process or of another.

    Returns:
        The rows as kernels of this device take them; they are unmapped when nothing refers to them any more.

    Raises:
        InputError: the process is gone or has dropped them, CUDA shows its memory to no other process, or the device cannot read it.
    """
    shape, dtype = tuple(handle["shape"]), np.dtype(handle["dtype"])
    here = _EXPORTED.get(handle["name"])
    if here is not None:
        if here.pointer and here.device != device.index:
            device.reach(here.device, "a peer's rows")
        return PeerRows(here.pointer, shape, dtype, here)
    if handle["process"] == os.getpid():
        problem = "rows of this process that were dropped are opened"
        raise InputError(problem, "keep them until all devices have read them")
    if not int(np.prod(shape)):
        return PeerRows(0, shape, dtype, None)
    if not handle["shown"]:
        problem = f"the rows of process {handle['process']} are on a device whose memory CUDA shows to no other process"
        raise InputError(problem, "leave `exchange` at its default, so that rows go through the host")
    runtime = device.cupy.cuda.runtime
    with device.active(), _named(device, f"device {device.index} cannot open the rows of process {handle['process']}"):
        pointer = runtime.ipcOpenMemHandle(bytes.fromhex(handle["shown"]))
    memory = _Memory(device.index, pointer, _ending(device, runtime.ipcCloseMemHandle, pointer))
    return PeerRows(pointer, shape, dtype, memory)


def _allocated(device: CudaDevice, num_bytes: int) -> int:
    """Returns the address of new memory of the current device."""
    runtime = device.cupy.cuda.runtime
    try:
        return runtime.malloc(-(-num_bytes // STEP_BYTES) * STEP_BYTES)
    except runtime.CUDARuntimeError as error:
        problem = f"{num_bytes:,} bytes of rows do not fit into the free memory of device {device.index}: {error}"
        raise InputError(problem, "lower `device` in [memory]") from error


def _ending(device: CudaDevice, call: Callable[[int], None], pointer: int) -> Callable[[], None]:
    """Returns the function that frees or unmaps memory on its device, on any thread."""

    def end() -> None:
        synchronize_all(device.cupy)  # a kernel that was launched may still read it
        with device.cupy.cuda.Device(device.index):
            call(pointer)

    return end


@contextmanager
def _named(device: CudaDevice, problem: str) -> Iterator[None]:
    """Makes CUDA's error one that names what failed."""
    try:
        yield
    except device.cupy.cuda.runtime.CUDARuntimeError as error:
        remedy = (
            "see whether that process still runs, and whether `nvidia-smi topo -p2p r` says that its GPU can be read"
        )
        raise InputError(f"{problem}: {error}", remedy) from error
