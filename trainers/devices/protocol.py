"""What a trainer needs of a device: memory that is booked by purpose, and links by direction.

Every trainer is written against `Device`. `LogicalDevice` (trainers/devices/logical.py) is a CPU that is held to a device's memory. A
budget is enforced where memory is asked for, so that a run that does not fit ends with one message instead of a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import torch

from kernels.errors import InputError

if TYPE_CHECKING:
    from trainers.devices.link import Link

CACHE = "cache"
"""The purpose of cached rows; everything else is work."""

Direction = Literal["h2d", "d2h", "d2d", "rank"]
"""Host to device, device to host, device to device, rank to rank."""


class OverBudget(InputError):
    """An allocation that a budget does not allow.

    Attributes:
        asked, free: bytes asked for and bytes that were left.
        purpose: what the bytes were for.
    """

    def __init__(self, asked: int, free: int, purpose: str, remedy: str):
        super().__init__(f"{purpose} asks for {asked:,} bytes where {max(free, 0):,} are free", remedy)
        self.asked, self.free, self.purpose = asked, free, purpose


class Device(Protocol):
    """Where a training computes.

    Attributes:
        index: number of the device.
        kind: "logical" for a part of this machine's CPU.
        work_bytes, cache_bytes: bounds on memory for work and for cached rows, None for no bound.
        peak: peak bytes by purpose; "total" is the peak of their sum.
    """

    index: int
    kind: str
    work_bytes: int | None
    cache_bytes: int | None

    @property
    def peak(self) -> Mapping[str, int]: ...  # noqa: D102

    def alloc(self, shape: tuple[int, ...], dtype: torch.dtype | np.dtype[Any], purpose: str) -> torch.Tensor:
        """Allocates a tensor and books it under a purpose for as long as it lives.

        Raises:
            OverBudget: the budget does not allow it; nothing is allocated.
        """
        ...

    def adopt(self, arrays: Iterable[torch.Tensor | np.ndarray], purpose: str) -> None:
        """Books memory that was made elsewhere for as long as it lives: storages of tensors and NumPy arrays.

        Raises:
            OverBudget: the budget does not allow it.
        """
        ...

    def link(self, direction: Direction) -> Link | None:
        """Returns the link of a direction, shared by all who move bytes over it; None where it is as fast as the machine."""
        ...

    def active(self) -> AbstractContextManager[Any]:
        """Returns a context in which all work of this thread is done, and booked, on this device."""
        ...


def torch_dtype(dtype: torch.dtype | np.dtype[Any] | str) -> torch.dtype:
    """Returns the torch type of a NumPy type or of its name."""
    if isinstance(dtype, torch.dtype):
        return dtype
    return torch.from_numpy(np.empty(0, dtype)).dtype


def kernel_array(tensor: torch.Tensor) -> Any:
    """Returns what kernels take for a tensor: a NumPy view where it lies in this machine's memory, else the tensor itself."""
    return tensor.numpy() if tensor.device.type == "cpu" else tensor
