"""Blocks and arrays on the machine that a kernel's test runs on."""

from dataclasses import fields, replace
from typing import Any

import numpy as np

from graphmill.kernels.arrays import BFLOAT16
from graphmill.kernels.types import Block

DTYPES = [np.float16, BFLOAT16, np.float32, np.float64]


def sent(device: Any, array: np.ndarray) -> Any:
    """A copy on the device; bfloat16, which NumPy has as uint16, as a GPU's arrays have it."""
    made = device.upload(array)
    if array.dtype == BFLOAT16 and hasattr(made, "data_ptr"):
        import torch

        return made.view(torch.bfloat16)
    return made


def received(device: Any, array: Any) -> np.ndarray:
    """The array in NumPy."""
    if hasattr(array, "data_ptr") and str(array.dtype) == "torch.bfloat16":
        import torch

        array = array.view(torch.uint16)
    return np.asarray(device.download(array))


def sent_block(device: Any, block: Block) -> Block:
    """The block with all its arrays on the device."""
    arrays = {field.name: getattr(block, field.name) for field in fields(block)}
    return replace(block, **{name: sent(device, a) for name, a in arrays.items() if isinstance(a, np.ndarray)})


def float_rows(num_rows: int, width: int, dtype: Any, seed: int = 0) -> np.ndarray:
    """Normal numbers as rows of a type."""
    values = np.random.default_rng(seed).standard_normal((num_rows, width)).astype(np.float32)
    if dtype == BFLOAT16:
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(dtype)


def assert_same_bits(found: np.ndarray, expected: np.ndarray) -> None:
    """Equal to the bit, but that any NaN equals any other."""
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if found.dtype == BFLOAT16:
        found, expected = ((a.astype(np.uint32) << 16).view(np.float32) for a in (found, expected))
    np.testing.assert_array_equal(found, expected)
    assert (np.signbit(found) == np.signbit(expected))[~np.isnan(expected)].all()
