"""Logical devices: a CPU that is held to a device's memory.

A logical device counts every torch storage that is alive while it is active, whoever made it: parameters, optimiser state, activations
that autograd keeps, kernel outputs. Peaks are exact, and a budget is enforced at the operation that exceeds it. So every trainer runs,
and is tested, under a small device without having one. Cached rows have a budget of their own beside that of the work.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from kernels.errors import InputError
from trainers.devices.link import Link

CACHE = "cache"
"""The purpose of cached rows; everything else is work."""


class OverBudget(InputError):
    """An allocation that a budget does not allow.

    Attributes:
        asked, free: bytes asked for and bytes that were left.
        purpose: what the bytes were for.
    """

    def __init__(self, asked: int, free: int, purpose: str, remedy: str):
        super().__init__(f"{purpose} asks for {asked:,} bytes where {max(free, 0):,} are free", remedy)
        self.asked, self.free, self.purpose = asked, free, purpose


class LogicalDevice(TorchDispatchMode):
    """A device on the CPU whose live storages are counted and bounded while it is active as a context.

    Args:
        index: number of the device.
        work_bytes: bound on live storages but for cached rows, or None to count without a bound.
        cache_bytes: the same for cached rows.
        link_gbps: speed of its link to the host in GB/s, or None for as fast as the machine is.

    Attributes:
        live_bytes: of work, now.
        link: the link, shared by all who move bytes to the device; None without a speed.
    """

    kind = "logical"

    def __init__(
        self,
        index: int = 0,
        work_bytes: int | None = None,
        cache_bytes: int | None = None,
        link_gbps: float | None = None,
    ):
        super().__init__()
        self.index, self.work_bytes, self.cache_bytes, self.link_gbps = index, work_bytes, cache_bytes, link_gbps
        self.link = None if link_gbps is None else Link(link_gbps)
        self.live_bytes = 0
        self._live: Counter[str] = Counter()
        self._peak: Counter[str] = Counter()
        self._known: dict[int, weakref.ref[Any]] = {}

    @property
    def peak(self) -> Mapping[str, int]:
        """Peak bytes by purpose; "total" is the peak of their sum."""
        return dict(self._peak)

    def alloc(self, shape: tuple[int, ...], dtype: torch.dtype, purpose: str) -> torch.Tensor:
        """Allocates a tensor and books it under a purpose.

        Raises:
            OverBudget: the budget does not allow it; nothing is allocated.
        """
        asked = int(torch.Size(shape).numel()) * dtype.itemsize
        self._check(asked, purpose)
        with _disable_current_modes():
            tensor = torch.empty(shape, dtype=dtype)
        self._note(tensor, purpose)
        return tensor

    def alloc_rows(self, num_rows: int, width: int, dtype: np.dtype[Any]) -> torch.Tensor:
        """Allocates rows of a NumPy dtype for a cache; see `alloc`."""
        return self.alloc((num_rows, width), torch.from_numpy(np.empty(0, dtype)).dtype, CACHE)

    def adopt(self, tensors: Iterable[torch.Tensor], purpose: str) -> None:
        """Books tensors that were made elsewhere (parameters, gathered inputs) for as long as they live."""
        for tensor in tensors:
            self._note(tensor, purpose)

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

    def _note(self, tensor: torch.Tensor, purpose: str) -> None:
        storage = tensor.untyped_storage()
        known = self._known.get(storage._cdata)
        if known is not None and known() is not None:
            return
        num_bytes = storage.nbytes()
        self._check(num_bytes, purpose)
        self._known[storage._cdata] = weakref.ref(storage)
        weakref.finalize(storage, self._release, storage._cdata, num_bytes, purpose)
        for name in (purpose, "total"):
            self._live[name] += num_bytes
            self._peak[name] = max(self._peak[name], self._live[name])
        if purpose != CACHE:
            self.live_bytes += num_bytes

    def _release(self, cdata: int, num_bytes: int, purpose: str) -> None:
        self._known.pop(cdata, None)
        self._live[purpose] -= num_bytes
        self._live["total"] -= num_bytes
        if purpose != CACHE:
            self.live_bytes -= num_bytes
