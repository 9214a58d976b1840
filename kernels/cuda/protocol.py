"""What kernels are launched with: the launch itself, and rows as a kernel sees them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphmill.kernels.arrays import dtype_name

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
