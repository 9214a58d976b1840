"""The interface for launching kernels, which a GPU (`CudaDevice`) and the stand-ins of the tests have."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from graphmill.kernels.arrays import dtype_name
from graphmill.kernels.types import Array

Kernel = Callable[[tuple[int, ...], tuple[int, ...], tuple[Any, ...]], None]
"""kernel(grid, block, arguments); arguments are NumPy scalars, pointers as uint64."""


@dataclass(frozen=True, slots=True)
class RowsView:
    """Rows as a kernel sees them.

    Attributes:
        pointer: memory address of the first row, valid on the device.
        row_bytes: bytes from one row to the next.
        dtype: the element's name; uint16 counts as bfloat16.
    """

    pointer: int
    count: int
    width: int
    row_bytes: int
    dtype: str


@dataclass(frozen=True, eq=False)
class PeerRows:
    """Rows in a device's memory that other devices of the machine read in place, as one of them sees them.

    Attributes:
        pointer: memory address of the first row, valid on the device that exported or opened them.
        shape: numbers of rows and columns; rows follow each other without space between them.
        memory: the object that keeps the memory.
    """

    pointer: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    memory: Any

    def __len__(self) -> int:
        return self.shape[0]

    def view(self) -> RowsView:
        """Returns the rows as a kernel sees them."""
        count, width = self.shape
        row_bytes = width * self.dtype.itemsize
        return RowsView(self.pointer if count * width else 0, count, width, row_bytes, dtype_name(self.dtype))


class KernelDevice(Protocol):
    """The interface for launching code: a GPU, or the CPU that stands in for one in the tests."""

    num_multiprocessors: int

    def kernel(self, source: str, name: str, defines: Mapping[str, str]) -> Kernel:
        """Returns a kernel of kernels/cuda/SOURCE.cu, compiled with these preprocessor names."""
        ...

    def rows(self, array: Any, what: str) -> RowsView:
        """Returns a matrix as the device sees it; refuses memory that the device cannot read."""
        ...

    def holds(self, array: Any) -> bool:
        """Returns whether an array is in device memory."""
        ...

    def upload(self, values: Array) -> Any:
        """Returns a copy of a NumPy array on the device."""
        ...

    def download(self, array: Any) -> Array:
        """Returns a copy of a device array in NumPy, after everything that was launched before."""
        ...

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Returns an uninitialised array of a NumPy dtype on the device."""
        ...

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Returns an array of a NumPy dtype on the device whose bytes are 0."""
        ...

    def copy(self, array: Any) -> Any:
        """Returns a copy of a device array, on the device."""
        ...

    def running_sums(self, values: Any) -> Any:
        """Returns i32[n] on the device: the sum of the first i + 1 values of i32[n] at place i."""
        ...

    def stable_order(self, keys: Any) -> Any:
        """Returns i32[n] on the device: the places of i32[n] keys in ascending order, equal keys in theirs."""
        ...

    def pinned(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Returns an uninitialised NumPy array in host memory that kernels read and write where it is."""
        ...

    def pin(self, array: Array) -> None:
        """Lets kernels read a NumPy array where it is, for as long as it lives; raises InputError if the system does not allow it."""
        ...

    def enter_thread(self) -> None:
        """Makes the device the one of the calling thread."""
        ...

    def synchronize(self) -> None:
        """Waits until everything that was launched on the device's stream is done."""
        ...

    def pointer(self, array: Any, what: str) -> int:
        """Returns the address of a contiguous device array's first element."""
        ...
