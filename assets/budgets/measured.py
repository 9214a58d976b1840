"""A machine's memory, disk and GPU, measured once into the home, so that a budget of "auto" does not change from one day to the next.

    $GRAPHMILL_HOME/measured/memory.json     memory_bytes, disk_bytes; device_bytes on a machine with a GPU

A stage that uses such a number names the file's digest as an external input, so of all facts about the machine only the number enters its
version. Only `graphmill budgets --refresh` measures again. The file is sealed (assets/storage/files/documents.py); the named digest is
of the numbers alone.
"""

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from graphmill.assets.storage.files.documents import keep_numbers, kept_numbers
from graphmill.assets.storage.files.schema import Fields, whole
from graphmill.assets.storage.names.home import home_folder
from graphmill.assets.storage.system.machine import memory_bytes
from graphmill.kernels.cuda.driver import free_gpu_bytes

PLACE = Path("measured") / "memory.json"
REMEDY = "measure again: graphmill budgets --refresh"


@dataclass(frozen=True, kw_only=True)
class MachineBytes:
    """Memory, disk and GPU of a machine, in bytes.

    Attributes:
        memory_bytes: main memory that this process may use: the machine's, or its control group's limit.
        disk_bytes: free bytes of the file system of the home, when they were measured.
        device_bytes: free bytes of the first GPU's memory, when they were measured; None without a GPU, or if they were not asked for.
    """

    memory_bytes: int
    disk_bytes: int
    device_bytes: int | None = None


measured_schema = Fields({"memory_bytes": whole(), "disk_bytes": whole()}, {"device_bytes": whole()})
"""The file of the numbers; that of a machine without a GPU lacks the last."""


def measure(home: Path) -> MachineBytes:
    """Measures memory, disk and GPU. The home need not exist yet."""
    folder = next(parent for parent in (home, *home.parents) if parent.exists())
    free = shutil.disk_usage(folder).free
    return MachineBytes(memory_bytes=memory_bytes(), disk_bytes=free, device_bytes=free_gpu_bytes())


def measured_bytes(home: Path | None = None) -> MachineBytes:
    """Returns the numbers in the home; measures them first if it holds none."""
    folder = home_folder(home)
    return MachineBytes(**kept_numbers(folder / PLACE, measured_schema, lambda: _values(measure(folder)), REMEDY))


def measured_digest(home: Path | None = None) -> str:
    """Returns the SHA-256 of the numbers in the home, 64 hex digits; measures and raises as `measured_bytes` does."""
    # The bytes that the file had before it was sealed: a budget of "auto" that was built then keeps its version.
    text = json.dumps(_values(measured_bytes(home)), sort_keys=True, indent=1) + "\n"
    return hashlib.sha256(text.encode()).hexdigest()


def refresh(home: Path | None = None) -> MachineBytes:
    """Measures again and replaces the numbers in the home; budgets of "auto" that are built from now on use them."""
    folder = home_folder(home)
    found = measure(folder)
    keep_numbers(folder / PLACE, _values(found))
    return found


def _values(measured: MachineBytes) -> dict[str, int]:
    # Without a GPU the numbers, and so their digest, are what they were before GPUs were measured.
    return {name: value for name, value in asdict(measured).items() if value is not None}
