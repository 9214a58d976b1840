"""A machine's memory and disk, measured once into the home, so that a budget of "auto" does not change from one day to the next.

    $GRAPHMILL_HOME/measured/memory.json     memory_bytes, disk_bytes

A stage that uses such a number names the file's digest as an external input, so of all facts about the machine only the number enters its
version. Only `graphmill budgets --refresh` measures again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assets.storage.filesystem import replace_atomically, write_once
from assets.storage.home import home_folder
from assets.storage.machine import memory_bytes
from kernels.errors import InputError

PLACE = Path("measured") / "memory.json"


@dataclass(frozen=True, kw_only=True)
class MachineBytes:
    """Memory and disk of a machine, in bytes.

    Attributes:
        memory_bytes: main memory that this process may use: the machine's, or its control group's limit.
        disk_bytes: free bytes of the file system of the home, when they were measured.
    """

    memory_bytes: int
    disk_bytes: int


def measure(home: Path) -> MachineBytes:
    """Measures memory and disk. The home need not exist yet."""
    folder = next(parent for parent in (home, *home.parents) if parent.exists())
    return MachineBytes(memory_bytes=memory_bytes(), disk_bytes=shutil.disk_usage(folder).free)


def measured_bytes(home: Path | None = None) -> MachineBytes:
    """Returns the numbers in the home; measures them first if it holds none.

    Args:
        home: the home folder, None for the default one.

    Raises:
        InputError: the file is damaged, or the disk is full.
    """
    try:
        values: dict[str, Any] = json.loads(_content(home_folder(home)))
        return MachineBytes(**{name: int(values[name]) for name in ("memory_bytes", "disk_bytes")})
    except (ValueError, KeyError, TypeError) as error:
        path = home_folder(home) / PLACE
        raise InputError(f"{path} is damaged: {error!r}", "measure again: graphmill budgets --refresh") from error


def measured_digest(home: Path | None = None) -> str:
    """Returns the SHA-256 of the file in the home; measures and raises as `measured_bytes` does."""
    return hashlib.sha256(_content(home_folder(home))).hexdigest()


def refresh(home: Path | None = None) -> MachineBytes:
    """Measures again and replaces the numbers in the home; budgets of "auto" that are built from now on use them."""
    folder = home_folder(home)
    found = measure(folder)
    replace_atomically(folder / PLACE, _encode(found))
    return found


def _content(home: Path) -> bytes:
    return write_once(home / PLACE, lambda: _encode(measure(home)))


def _encode(measured: MachineBytes) -> bytes:
    return json.dumps(asdict(measured), sort_keys=True, indent=1).encode() + b"\n"
