"""What a machine has: measured once into the home, so that a budget of "auto" does not change from one day to the next.

    $GRAPHMILL_HOME/measured/memory.json     memory_bytes, disk_bytes

A stage that uses such a number names the file's digest as an external input, so the number enters its version and nothing else of the
machine does. `graphmill budgets --refresh` measures again; nothing else does.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assets.storage.filesystem import make_folder, replace_atomically, write_durably
from assets.storage.home import home_folder
from kernels.errors import InputError

PLACE = Path("measured") / "memory.json"


@dataclass(frozen=True, kw_only=True)
class MachineBytes:
    """What a machine has, in bytes.

    Attributes:
        memory_bytes: main memory that this process may use: the machine's, or its control group's limit.
        disk_bytes: free bytes of the file system of the home, when they were measured.
    """

    memory_bytes: int
    disk_bytes: int


def measure(home: Path) -> MachineBytes:
    """Measures now. The home need not exist yet."""
    folder = next(parent for parent in (home, *home.parents) if parent.exists())
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return MachineBytes(memory_bytes=min([installed, *_limits()]), disk_bytes=shutil.disk_usage(folder).free)


def measured_bytes(home: Path | None = None) -> MachineBytes:
    """Returns what the home says, measuring where it says nothing yet.

    Args:
        home: the home folder, None for the default one.

    Raises:
        InputError: the file is damaged, or the disk does not take it.
    """
    return _parse(_content(home_folder(home)), home_folder(home) / PLACE)


def measured_digest(home: Path | None = None) -> str:
    """Returns the SHA-256 of what the home says; measures and raises as `measured_bytes` does."""
    return hashlib.sha256(_content(home_folder(home))).hexdigest()


def refresh(home: Path | None = None) -> MachineBytes:
    """Measures again and replaces what the home says; budgets of "auto" that are built from now on follow."""
    folder = home_folder(home)
    found = measure(folder)
    make_folder((folder / PLACE).parent)
    replace_atomically(folder / PLACE, _encode(found))
    return found


def _content(home: Path) -> bytes:
    path = home / PLACE
    if not path.exists():
        make_folder(path.parent)
        own = path.with_name(f"{path.name}.{os.getpid()}.new")
        write_durably(own, _encode(measure(home)))
        try:
            # Unlike a rename, a link never replaces: of two first measurements one is kept by both processes.
            os.link(own, path)
        except FileExistsError:
            pass
        finally:
            own.unlink(missing_ok=True)
    return path.read_bytes()


def _encode(measured: MachineBytes) -> bytes:
    return json.dumps(asdict(measured), sort_keys=True, indent=1).encode() + b"\n"


def _parse(data: bytes, path: Path) -> MachineBytes:
    try:
        values: dict[str, Any] = json.loads(data)
        return MachineBytes(**{name: int(values[name]) for name in ("memory_bytes", "disk_bytes")})
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is damaged: {error!r}", "measure again: graphmill budgets --refresh") from error


def _limits() -> Iterator[int]:
    """Yields the memory limits of control groups, version 2 and 1, where there are any."""
    for place in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            text = (Path("/sys/fs/cgroup") / place).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            yield int(text)
