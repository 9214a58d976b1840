"""Keeps freed memory in the process, so that a training step does not fault its buffers in again.

A step allocates and frees activations of 10 to 100 MB. glibc's malloc maps each of them and unmaps it when it is freed, so that every
step pays a page fault for every 4 KiB it touches: on the machine of the first measurements 600,000 faults an epoch of ten steps, and
almost half of its time. Serving large blocks from the heap, and keeping the heap's top, reuses the same pages instead; it holds for
torch's own outputs as well, which no pool of ours could reach. The cost is a higher peak (about a fifth there), since a heap that is
kept can be fragmented.
"""

from __future__ import annotations

import ctypes
import platform

# Parameters of mallopt(3).
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
_LARGEST_INT = 2**31 - 1
_GROW_BYTES = 64 << 20


def keep_freed_memory() -> bool:
    """Tells malloc to keep what is freed, for the rest of the process.

    Returns:
        Whether the C library is glibc and took the settings; elsewhere nothing changes.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = {_TRIM_THRESHOLD: _LARGEST_INT, _TOP_PAD: _GROW_BYTES, _MMAP_MAX: 0}
    return all([mallopt(name, value) == 1 for name, value in settings.items()])
