"""The memory and the processor time that control groups leave this process, version 2 and 1 (Linux, `man 7 cgroups`).

A group's limit holds for all processes in it and in the groups below it, so the least of its own and its ancestors' counts. Clean pages of
files do not count as used: the kernel takes them back before it ends a process.
"""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

MOUNT, OWN, MACHINE = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"), Path("/proc/meminfo")

UNLIMITED = 1 << 62
"""Version 1 writes a number of about 2^63 for a group without a limit."""
_FILES = {"memory.max": ("memory.current", ""), "memory.limit_in_bytes": ("memory.usage_in_bytes", "total_")}
"""File of the limit -> file of the usage, and the beginning of names in memory.stat that include the groups below."""


def limit_bytes() -> int | None:
    """Returns the least limit of this process's groups, None without one."""
    return min((limit for _, _, limit in _limits()), default=None)


def free_bytes() -> int | None:
    """Returns the bytes that this process can take before its groups or the machine run out of memory; None if the system does not say."""
    left = [limit - _used(folder, name) for folder, name, limit in _limits()]
    if available := _numbers(MACHINE).get("MemAvailable:"):
        left.append(available << 10)
    return max(0, min(left)) if left else None


def fits_memory(num_bytes: int, reserved_bytes: int = 0) -> bool:
    """Returns whether the pages of a mapped file may stay in memory: they take at most half of what is free, and leave the rest.

    Args:
        reserved_bytes: bytes that this process is still to take, which are left to it.
    """
    free = free_bytes()
    return free is None or num_bytes <= min(free // 2, free - reserved_bytes)


def kills() -> int:
    """Returns how many processes of this process's groups the kernel has ended so far for want of memory."""
    counted = 0
    for top, group in _memberships(_text(OWN), MOUNT, "memory"):
        folder = top / group.lstrip("/")
        for name in ("memory.events.local", "memory.oom_control"):
            counted += _numbers(folder / name).get("oom_kill", 0)
    return counted


def most_cores() -> float | None:
    """Returns the least processor time per second that this process's groups grant, in seconds; None without a limit."""
    return min(_granted(), default=None)


def _granted() -> Iterator[float]:
    """Yields the seconds of processor time per second of each group of this process that has a limit."""
    for folder in _folders(_text(OWN), MOUNT, "cpu"):
        # Version 2 has both numbers in one file, version 1 in two.
        words = _text(f"{folder}/cpu.max").split()
        words = words or [_text(f"{folder}/cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
        if len(words) == 2 and all(word.isdigit() and int(word) for word in words):
            yield int(words[0]) / int(words[1])


def _limits() -> Iterator[tuple[str, str, int]]:
    """Yields folder, name of the limit's file and limit of each group of this process that has one, itself first."""
    for folder in _folders(_text(OWN), MOUNT, "memory"):
        for name in _FILES:
            text = _text(f"{folder}/{name}").strip()
            if text.isdigit() and int(text) < UNLIMITED:
                yield folder, name, int(text)


@lru_cache(maxsize=16)  # a training asks dozens of times
def _folders(own: str, mount: Path, controller: str) -> tuple[str, ...]:
    """Returns the folders of a process's groups of a controller, and of the groups above each; arguments as `_memberships`."""
    found: list[str] = []
    for top, group in _memberships(own, mount, controller):
        inner = top / group.lstrip("/")
        # In a container the path may be the host's, of which only the mount is seen.
        found += (str(folder) for folder in (inner, *inner.parents) if folder.is_relative_to(top))
    return tuple(found)


def _memberships(own: str, mount: Path, controller: str) -> Iterator[tuple[Path, str]]:
    """Yields the mounted hierarchies of a controller, and a process's group in each.

    Args:
        own: text of the process's file `OWN`.
        controller: "memory" or "cpu".
    """
    for line in own.splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers:
            yield mount, group
            yield mount / "unified", group
        elif controller in controllers.split(","):
            yield mount / controller, group


def _used(folder: str, limit_name: str) -> int:
    usage_name, prefix = _FILES[limit_name]
    stat = _numbers(f"{folder}/memory.stat")
    usage = _text(f"{folder}/{usage_name}").strip()
    pages = sum(stat.get(f"{prefix}{name}", 0) for name in ("active_file", "inactive_file", "slab_reclaimable"))
    return max(0, int(usage) - pages) if usage.isdigit() else 0


def _numbers(path: str | Path) -> dict[str, int]:
    """Returns first word -> second word of each line, if that is a number."""
    words = (line.split() for line in _text(path).splitlines())
    return {each[0]: int(each[1]) for each in words if len(each) > 1 and each[1].isdigit()}


def _text(path: str | Path) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
