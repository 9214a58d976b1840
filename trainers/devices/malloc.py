"""Keeps freed memory in the process, so that a training step does not fault its buffers in again.

A step allocates and frees activations of 10 to 100 MB. glibc's malloc maps each of them and unmaps it when it is freed, so that every
step pays a page fault for every 4 KiB it touches: on the machine of the first measurements 600,000 faults an epoch of ten steps, and almost
half of its time. Serving large blocks from the heap, and keeping the heap's top, reuses the same pages instead; this also serves torch's
own outputs, which a pool of ours could not.

A heap that is kept must not be cut: a tensor that is a little larger than that of the step before needs a hole that is as large. glibc
keeps small freed blocks (nodes of autograd, headers of tensors) in lists, where they are not joined with their neighbours and lie between
the holes of tensors. With these lists a heap took 1.3 to 2.8 times the bytes that were alive at once, and grew for ten steps; without them
0.9 to 1.2 times, from the first step on, and steps are as fast (docs/log.md). The lists of a thread can only be left out when the program
starts (`runtime_environment` in assets/building/child.py), the others here.

A block of more than 64 MiB that a thread other than the main one allocates is still faulted in anew: glibc's thread heaps are not larger.
`Device.rows` takes such blocks from a pool.
"""

import ctypes
import platform

from graphmill.assets.storage.system.control_group import free_bytes
from graphmill.assets.storage.system.machine import anonymous_bytes

# Parameters of mallopt(3).
_LARGEST_LISTED, _TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = 1, -1, -2, -4
_LARGEST_INT = 2**31 - 1
_GROW_BYTES = 64 << 20


def keep_freed_memory() -> bool:
    """Makes malloc keep freed memory for the rest of the process; returns False, and changes nothing, if the C library is not glibc."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = {_LARGEST_LISTED: 0, _TRIM_THRESHOLD: _LARGEST_INT, _TOP_PAD: _GROW_BYTES, _MMAP_MAX: 0}
    return all([mallopt(name, value) == 1 for name, value in settings.items()])


def return_freed_memory() -> None:
    """Gives memory that was freed so far back to the system, if the C library is glibc; what is freed later is kept as before."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def return_if_short() -> None:
    """Gives freed memory back if this process has more memory than is free: what ended threads have freed serves no other thread."""
    free, held = free_bytes(), anonymous_bytes()
    if free is not None and held is not None and held > free:
        return_freed_memory()
