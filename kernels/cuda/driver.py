"""What the CUDA driver says, asked without any library of Python's: cheap enough for a program that only lists what could be trained."""

from __future__ import annotations

import ctypes
import functools


@functools.cache
def num_gpus() -> int:
    """Returns the number of GPUs that the driver shows this process; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value
