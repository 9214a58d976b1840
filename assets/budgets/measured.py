"""A machine's memory, disk and GPU, measured once into the home, so that a budget of "auto" does not change from one day to the next.

    $GRAPHMILL_HOME/measured/memory.json     memory_bytes, disk_bytes; device_bytes on a machine with a GPU

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
from kernels.cuda.driver import free_gpu_bytes
from kernels.errors import InputError

PLACE = Path("measured") / "memory.json"


@dataclass(frozen=True, kw_only=True)
class MachineBytes:
    """Memory, disk and GPU of a machine, in bytes.

    Attributes:
        memory_bytes: main memory that this process may use: the machine's, or its control group's limit.
        disk_bytes: free bytes of the file system of the home, when they were measured.
        device_bytes: free bytes of the memory of the first GPU, when they were measured; None without a GPU, and if a version of graphmill
            measured that did not ask.
    """

    memory_bytes: int
    disk_bytes: int
    device_bytes: int | None = None


def measure(home: Path) -> MachineBytes:
    """Measures memory, disk and GPU. The home need not exist yet."""
    folder = next(parent for parent in (home, *home.parents) if parent.exists())
    free = shutil.disk_usage(folder).free
    return MachineBytes(memory_bytes=memory_bytes(), disk_bytes=free, device_bytes=free_gpu_bytes())


def measured_bytes(home: Path | None = None) -> MachineBytes:
    """Returns the numbers in the home; measures them first if it holds none.

    Args:
        home: the home folder, None for the default one.

    Raises:
        InputError: the file is damaged, or the disk is full.
    """
    try:
        values: dict[str, Any] = json.loads(_content(home_folder(home)))
        names = ("memory_bytes", "disk_bytes", *(("device_bytes",) if "device_bytes" in values else ()))
        return MachineBytes(**{name: int(values[name]) for name in names})
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
    # Without a GPU the file, and so its digest, is what it was before GPUs were measured.
    values = {name: value for name, value in asdict(measured).items() if value is not None}
    return json.dumps(values, sort_keys=True, indent=1).encode() + b"\n"
