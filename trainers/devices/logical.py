"""Logical devices: a CPU that is held to a device's memory.

A logical device counts every torch storage that is made while it is active, for as long as the storage lives: parameters, optimiser state,
activations that autograd keeps, kernel outputs. NumPy arrays are counted if they are adopted. Peaks are exact, and a budget is enforced at
the operation that exceeds it. So every trainer runs, and is tested, under a small device without having one. Cached rows have a budget of
their own beside that of the work.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from graphmill.assets.storage.names.user_code import runs_user_code
from graphmill.kernels.arrays import owner_of
from graphmill.kernels.rows.shared_memory import memory_of, open_rows, share_rows
from graphmill.trainers.devices.launches import Note
from graphmill.trainers.devices.link import Link
from graphmill.trainers.devices.protocol import CACHE, Device, Direction, OverBudget, torch_dtype
from graphmill.trainers.record.ledger import Ledger, Line

COMPILER = "torch._dynamo"
"""Torch's compiler, which takes 80 MiB and some seconds: only a user's model may need it."""


class LogicalDevice(TorchDispatchMode, Device):
    """A device on the CPU whose live storages are counted and bounded while it is active as a context.

    Args:
        work_bytes: bound on the bytes of live storages except cached rows, or None to count without a bound.
        cache_bytes: the same bound for cached rows.
        link_gbps: speed of its link to the host in GB/s, for each direction, or None for the machine's own speed.

    Attributes:
        live_bytes: bytes of live storages for work.
    """

    kind = "logical"
    torch_device = torch.device("cpu")
    remote = False

    def __init__(
        self,
        index: int = 0,
        work_bytes: int | None = None,
        cache_bytes: int | None = None,
        link_gbps: float | None = None,
    ):
        super().__init__()
        self.index, self.work_bytes, self.cache_bytes, self.link_gbps = index, work_bytes, cache_bytes, link_gbps
        self._links = {} if link_gbps is None else {"h2d": Link(link_gbps), "d2h": Link(link_gbps)}
        self.traffic = Ledger()
        self.live_bytes = 0
        self._live: Counter[str] = Counter()
        self._peak: Counter[str] = Counter()
        self._known: dict[int, weakref.ref[Any]] = {}
        # Memory is booked and released on any thread; also while this one books, if the interpreter collects garbage then.
        self._lock = threading.RLock()

    @property
    def peak(self) -> Mapping[str, int]:
        """Peak bytes by purpose; "total" is the peak of their sum."""
        return dict(self._peak)

    def alloc(self, shape: tuple[int, ...], dtype: torch.dtype | np.dtype[Any], purpose: str) -> torch.Tensor:
        """As `Device.alloc`."""
        kind = torch_dtype(dtype)
        self._check(int(torch.Size(shape).numel()) * kind.itemsize, purpose)
        with _disable_current_modes():
            tensor = torch.empty(shape, dtype=kind)
        self._note(tensor, purpose)
        return tensor

    def adopt(self, arrays: Iterable[torch.Tensor | np.ndarray], purpose: str) -> None:
        """As `Device.adopt`: a view is booked as the array that it is a view of; memory that no NumPy array owns (a mapped file) is not."""
        for array in arrays:
            self._note(array, purpose)

    @contextmanager
    def holding(self, num_bytes: int, purpose: str) -> Iterator[None]:
        """As `Device.holding`."""
        self._check(num_bytes, purpose)
        self._add(num_bytes, purpose)
        try:
            yield
        finally:
            self._add(-num_bytes, purpose)

    def link(self, direction: Direction) -> Link | None:
        """Returns the link of a direction; only links to the host are modelled, since devices and ranks of one machine share its memory."""
        return self._links.get(direction)

    def export_rows(self, rows: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
        """As `Device.export_rows`, to memory that other processes map."""
        self._check(rows.nbytes, CACHE)
        copy, handle = share_rows(rows)
        self._add(rows.nbytes, CACHE)
        weakref.finalize(memory_of(copy), self._add, -rows.nbytes, CACHE)
        return copy, handle

    def open_peer(self, handle: Mapping[str, Any]) -> np.ndarray:
        """As `Device.open_peer`, by a map of that memory."""
        return open_rows(handle)

    def note(self, tensor: torch.Tensor, line: Line, ledger: Ledger) -> Note:
        """Is asked of a device with memory of its own only."""
        raise NotImplementedError

    def active(self) -> LogicalDevice:
        """Returns the device, which is a context: storages that are made in it are booked."""
        return self

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Returns that torch leaves `__torch_dispatch__` as it is: to hide it from its compiler, torch would load the compiler."""
        return False

    def __enter__(self) -> LogicalDevice:
        if COMPILER in sys.modules or runs_user_code():
            _hide_from_compiler()
        super().__enter__()
        return self

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Runs one operation and books the storages that it made."""
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self._note(leaf, "work")
        return out

    def _check(self, asked: int, purpose: str) -> None:
        cached = purpose == CACHE
        bound, used = (self.cache_bytes, self._live[CACHE]) if cached else (self.work_bytes, self.live_bytes)
        if bound is not None and used + asked > bound:
            remedy = "raise `workspace`, or lower `batch_size`, `fanouts` or `hidden`"
            remedy = "raise `device` in [memory]" if cached else remedy
            kind = "cache" if cached else "workspace"
            raise OverBudget(asked, bound - used, f"{purpose} on device {self.index} ({kind} {bound:,})", remedy)

    def _note(self, array: torch.Tensor | np.ndarray, purpose: str) -> None:
        """Books the memory of an array, unless it is booked, under a number that is unique while the memory lives."""
        if isinstance(array, np.ndarray):
            memory = owner_of(array)
            identity, num_bytes = id(memory), memory.nbytes
            if memory.base is not None:
                return
        else:
            memory = array.untyped_storage()
            identity, num_bytes = memory._cdata, memory.nbytes()
        known = self._known.get(identity)
        if known is not None and known() is not None:
            return
        self._check(num_bytes, purpose)
        self._known[identity] = weakref.ref(memory)
        weakref.finalize(memory, self._release, identity, num_bytes, purpose)
        self._add(num_bytes, purpose)

    def _release(self, identity: int, num_bytes: int, purpose: str) -> None:
        self._known.pop(identity, None)
        self._add(-num_bytes, purpose)

    def _add(self, num_bytes: int, purpose: str) -> None:
        with self._lock:
            for name in (purpose, "total"):
                self._live[name] += num_bytes
                self._peak[name] = max(self._peak[name], self._live[name])
            if purpose != CACHE:
                self.live_bytes += num_bytes


@cache
def _hide_from_compiler() -> None:
    """Keeps torch's compiler, which traces what a compiled model calls, away from the booking of its storages."""
    hidden: Any = torch.compiler.disable(LogicalDevice.__torch_dispatch__)
    LogicalDevice.__torch_dispatch__ = hidden


def open_device(kind: str, work_bytes: int | None = None, link_gbps: float | None = None) -> Device:
    """Returns the device of a train table.

    Args:
        kind: "cpu" or "cuda".
        work_bytes: bound on memory for work in bytes, None for no bound.
        link_gbps: speed of a modelled link in GB/s, for the CPU alone.

    Raises:
        InputError: the device does not exist.
    """
    if kind == "cpu":
        return LogicalDevice(work_bytes=work_bytes, link_gbps=link_gbps)
    assert link_gbps is None, "a GPU has a link of its own"
    from graphmill.trainers.devices.accelerator import Accelerator
    from graphmill.trainers.devices.cuda import CudaBackend

    return Accelerator(CudaBackend(), work_bytes=work_bytes)
