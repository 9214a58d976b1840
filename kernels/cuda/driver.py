"""Queries of the CUDA driver without a Python library: cheap enough for a program that only lists possible trainings."""

import ctypes
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from graphmill.kernels import environment
from graphmill.kernels.errors import InputError

VISIBLE = environment.VISIBLE_GPUS
"""Environment: the GPUs that the driver shows a process, by number or name, separated by commas; all if it is not set."""
DRIVER, MANAGEMENT = "libcuda.so.1", "libnvidia-ml.so.1"
"""The driver, and NVML, which describes its GPUs: total, free and used bytes are the three numbers of a memory."""
KERNEL_GPUS = Path("/proc/driver/nvidia/gpus")
"""Has a folder per GPU that the kernel's driver serves."""


class Gpu(NamedTuple):
    """A GPU that the driver shows this process, and the bytes of its memory."""

    name: str
    total_bytes: int


def gpu_of_rank(local_rank: int, environment: Mapping[str, str], count: int = 1) -> str | None:
    """Returns the value of `CUDA_VISIBLE_DEVICES` that gives one of several processes on a machine GPUs for itself.

    If there are fewer GPUs than processes that take one each, GPUs are assigned in rotation. The CUDA driver is not called, since it reads
    the variable at its first call and never again.

    Args:
        count: number of GPUs for each process, at most all that there are.

    Returns:
        The GPUs' numbers or names, separated by commas; None without a GPU.
    """
    found = shown_gpus(environment)
    first = local_rank * count
    return ",".join(found[(first + place) % len(found)] for place in range(min(count, len(found)))) or None


def shown_gpus(environment: Mapping[str, str]) -> list[str]:
    """Returns the numbers or names of the GPUs that a process with an environment sees, without calling the CUDA driver."""
    named = environment.get(VISIBLE)
    if named is None:
        return [str(number) for number in range(len(list(KERNEL_GPUS.glob("*"))))]
    return [name.strip() for name in named.split(",") if name.strip()]


def require_gpus(ranks: int, count: int, environment: Mapping[str, str]) -> None:
    """Refuses processes that take several GPUs each if the machine has too few for all."""
    found = shown_gpus(environment)
    if count > 1 and 0 < len(found) < ranks * count:
        problem = f"{ranks} ranks with {count} GPUs each need {ranks * count}, and the machine shows {len(found)}"
        raise InputError(problem, "set fewer devices, or start fewer ranks")


def num_gpus() -> int:
    """Returns the number of GPUs that the driver shows this process; 0 without a driver."""
    return len(gpus())


@functools.cache
def gpus() -> tuple[Gpu, ...]:
    """Returns the GPUs that the driver shows this process; none without a driver."""
    driver, count = _library(DRIVER), ctypes.c_int(0)
    if driver is None or driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return ()
    found = []
    for index in range(count.value):
        device, name, total = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_size_t()
        driver.cuDeviceGet(ctypes.byref(device), index)
        driver.cuDeviceGetName(name, len(name), device)
        driver.cuDeviceTotalMem_v2(ctypes.byref(total), device)
        found.append(Gpu(name.value.decode(), total.value))
    return tuple(found)


def free_gpu_bytes(index: int = 0) -> int | None:
    """Returns the free bytes of a GPU's memory, None if there is no such GPU.

    NVML tells them: to ask CUDA would take some hundred MiB of the GPU for a context. Without NVML the memory counts as free.
    """
    if index >= num_gpus():
        return None
    driver, total = _library(DRIVER), gpus()[index].total_bytes
    management = _library(MANAGEMENT)
    if driver is None or management is None or management.nvmlInit_v2() != 0:
        return total
    try:
        place, handle, memory = ctypes.create_string_buffer(32), ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
        device = ctypes.c_int()
        failed = (
            driver.cuDeviceGet(ctypes.byref(device), index)
            or driver.cuDeviceGetPCIBusId(place, len(place), device)
            or management.nvmlDeviceGetHandleByPciBusId_v2(place, ctypes.byref(handle))
            or management.nvmlDeviceGetMemoryInfo(handle, memory)
        )
        if failed:
            return total
        # Of a GPU in slices (MIG) NVML describes the whole, and CUDA the slice.
        return min(total, memory[1])
    finally:
        management.nvmlShutdown()


def driver_cuda_version() -> tuple[int, int] | None:
    """Returns the newest version of CUDA that the driver supports, None without a driver."""
    driver, version = _library(DRIVER), ctypes.c_int(0)
    if driver is None or driver.cuDriverGetVersion(ctypes.byref(version)) != 0:
        return None
    return version.value // 1000, version.value % 1000 // 10


def _library(name: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None
