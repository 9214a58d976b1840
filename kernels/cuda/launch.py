"""Code that launches of several kernels share: the shape of a launch, and arguments for arrays on the device."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphmill.kernels.arrays import BFLOAT16, dtype_name
from graphmill.kernels.cuda.device import CudaDevice
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Block

BLOCK = 256
BLOCKS_PER_MULTIPROCESSOR = 32
C_TYPES = {"float16": ("Half", 2), "bfloat16": ("BFloat", 2), "float32": ("float", 4), "float64": ("double", 8)}
"""Names in kernels/cuda/base/element.cuh and bytes of the types that rows may have."""
ID_TYPES = {"int32": "int", "int64": "long long"}
"""Names of the types of node ids."""
NUMPY = {"float16": np.float16, "bfloat16": BFLOAT16, "float32": np.float32, "float64": np.float64}


def grid(num_threads: int, device: CudaDevice) -> tuple[int]:
    """Returns the blocks of a launch whose threads go on until all of `num_threads` pieces of work are done."""
    return (max(1, min(-(-num_threads // BLOCK), BLOCKS_PER_MULTIPROCESSOR * device.num_multiprocessors)),)


def launch(
    device: CudaDevice, source: str, name: str, num_threads: int, arguments: Sequence[Any], defines: Mapping[str, Any]
) -> None:
    """Launches a kernel of kernels/cuda/SOURCE.cu for `num_threads` pieces of work; `defines` are its preprocessor names."""
    kernel = device.kernel(source, name, {key: str(value) for key, value in defines.items()})
    kernel(grid(num_threads, device), (BLOCK,), tuple(arguments))


def block_lists(block: Block, device: CudaDevice) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Returns a kernel's arguments start, end, indices and dst_pos of a block."""
    begins, ends = (address(getattr(block, name), name, device, block.num_dst) for name in ("start", "end"))
    return (
        begins,
        ends,
        address(block.indices, "indices", device),
        address(block.dst_pos, "dst_pos", device, block.num_dst),
    )


def address(array: Any, what: str, device: CudaDevice, length: int | None = None, dtype: str = "int32") -> np.uint64:
    """Returns a kernel's argument for an array on the device, 0 for None."""
    if array is None:
        return np.uint64(0)
    if dtype_name(array.dtype) != dtype or (length is not None and len(array) != length):
        wanted = "n" if length is None else length
        raise InputError(f"{what} is {dtype_name(array.dtype)}{list(array.shape)}", f"give {what} as {dtype}[{wanted}]")
    return np.uint64(device.pointer(array, what)) if 0 not in array.shape else np.uint64(0)


def matrix(array: Any, what: str, device: CudaDevice, num_rows: int, width: int | None = None) -> tuple[np.uint64, str]:
    """Returns (a kernel's argument, dtype name) of rows on the device that lie side by side."""
    dtype = dtype_name(array.dtype)
    shaped = len(array.shape) == 2 and array.shape[0] == num_rows and width in (None, array.shape[1])
    if dtype not in C_TYPES or not shaped:
        wanted = "F" if width is None else width
        problem = f"{what} is {dtype}{list(array.shape)}"
        raise InputError(problem, f"give [{num_rows}, {wanted}] of {', '.join(C_TYPES)}")
    return (np.uint64(0) if 0 in array.shape else np.uint64(device.pointer(array, what))), dtype


def pack_and_team(width: int, dtype: str, addresses: list[np.uint64]) -> tuple[int, int]:
    """Returns how many columns a lane moves at once, and how many lanes make a row.

    The columns fill 16 bytes, as far as width and addresses allow; the lanes cover the row, a warp at most.
    """
    size = C_TYPES[dtype][1]
    pack = 16 // size
    while pack > 1 and (width % pack or any(int(place) % (pack * size) for place in addresses)):
        pack //= 2
    packs = max(1, width // pack)
    return pack, min(32, 1 << (packs - 1).bit_length())
