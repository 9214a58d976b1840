"""Facts about this machine: its processor, the memory that a process may use, and its identity."""

import os
import platform
import time
from functools import cache
from pathlib import Path

from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.system.control_group import limit_bytes, most_cores
from graphmill.kernels.errors import InputError

PROCESSORS = Path("/proc/cpuinfo")
STATM = Path("/proc/self/statm")
BOOT, NAMESPACE = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")


def here_and_now() -> str:
    """Returns "HOST/BOOT/NAMESPACE", within which a process id means the same process. Containers of one machine differ in the last."""
    try:
        boot, namespace = BOOT.read_text().strip(), str(NAMESPACE.stat().st_ino)
    except OSError:
        boot = namespace = "unknown"
    return f"{platform.node()}/{boot}/{namespace}"


def seconds_since_boot() -> float:
    """Returns the seconds of the clock by which /proc counts starts of processes. Unlike the time of day it is never set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def memory_bytes() -> int:
    """Returns the bytes of main memory that this process may use: the machine's, or the least limit of its control groups."""
    installed, limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), limit_bytes()
    return installed if limit is None else min(installed, limit)


def anonymous_bytes() -> int | None:
    """Returns the bytes of this process's anonymous pages that are in memory; None on a system without /proc.

    Pages of mapped files are left out: the kernel empties the page cache when memory is short, so they show how much memory was free and
    not how much is needed.
    """
    try:
        _, resident, shared, *_ = map(int, STATM.read_text().split())
    except OSError:
        return None
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def usable_cores() -> int:
    """Returns the number of cores that this process may use: those it may run on, or fewer if its control groups grant less time."""
    cores, granted = len(os.sched_getaffinity(0)), most_cores()
    return cores if granted is None else max(1, min(cores, int(granted)))


@cache
def processor_name() -> str:
    """Returns the processor's own name with its family and model, which tell generations apart where a virtual machine hides the name.

    It is the architecture if there is none. Libraries choose their code by the kind of processor, so equal recipes may round differently on
    two of them.
    """
    try:
        first = PROCESSORS.read_text().partition("\n\n")[0]
    except OSError:
        first = ""
    said = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}
    kind = ", ".join(
        f"{name} {said[key]}" for name, key in (("family", "cpu family"), ("model", "model")) if key in said
    )
    name = said.get("model name") or platform.processor() or platform.machine()
    return f"{name} ({kind})" if kind else name


class TooLittleMemory(InputError):
    """A need of memory that exceeds this machine's. A search for further mistakes would need as much."""


def require_memory(wanted: int, what: str, remedy: str) -> None:
    """Refuses a need of memory that exceeds this machine's, before any of it is allocated.

    Raises:
        TooLittleMemory: the machine has fewer.
    """
    there = memory_bytes()
    if wanted > there:
        problem = (
            f"{what} would take at least {format_bytes(wanted)} of memory, and this machine has {format_bytes(there)}"
        )
        raise TooLittleMemory(problem, remedy)


def require_plain_file(path: Path, remedy: str) -> None:
    """Refuses a path that may never end, such as a pipe or a device; a missing file is left to its reader."""
    if path.exists() and not path.is_file():
        special = "a device" if path.is_char_device() or path.is_block_device() else "a pipe or a socket"
        what = "a folder" if path.is_dir() else special
        raise InputError(f"{path} is {what}, not a file", remedy)
