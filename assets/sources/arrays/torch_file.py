"""Files that `torch.save` wrote, read by torch's loader that runs no code from them.

A class that the file names is looked up in a list and never imported. The list holds tensors, plain containers, NumPy arrays and what the
caller adds. Classes that the process registered with torch before, as torch_geometric does when it is imported, are not on it.

Every record of the archive is compared with its CRC-32 first, which reads the file once. Peak memory: the objects without their tensors,
which are mapped; a file in the format of torch 1.5 and before is read whole.
"""

import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.assets.sources.arrays.archive import BAD_ARCHIVE
from graphmill.assets.storage.system.refused import is_unread
from graphmill.kernels.errors import InputError

KINDS = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
)  # fmt: skip
"""NumPy types whose arrays are read."""

NAMED = re.compile(r"GLOBAL ([\w.]+)")
"""The class in torch's words about one that is not on the list."""

OLD_MAGIC = bytes.fromhex("80028a0a6cfc9c46f9206aa85019")
"""First bytes of a file in the format of torch 1.5 and before."""

PIECE_BYTES = 8 << 20
"""Bytes that are read at a time."""

Allowed = tuple[Any, str]
"""An object, and the name by which a file may ask for it."""


def numpy_classes() -> list[Allowed]:
    """Returns the objects of NumPy that pickled arrays and numbers consist of, by their names in NumPy 1 and 2."""
    import importlib

    multiarray = importlib.import_module("numpy._core.multiarray")
    found: list[Allowed] = [(np.ndarray, "numpy.ndarray"), (np.dtype, "numpy.dtype")]
    for kind in (type(np.dtype(name)) for name in KINDS):
        found.append((kind, f"{kind.__module__}.{kind.__qualname__}"))
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        found += [(multiarray._reconstruct, f"{module}._reconstruct"), (multiarray.scalar, f"{module}.scalar")]
    return found


def looks_saved(path: Path) -> bool:
    """Tells whether `torch.save` seems to have written a file."""
    with open(path, "rb") as file:
        if file.read(len(OLD_MAGIC)) == OLD_MAGIC:
            return True
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("/data.pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, OSError):
        return False


def load_saved(path: Path, allowed: Sequence[Allowed], remedy: Callable[[str], str]) -> Any:
    """Returns the objects in a file of `torch.save`, without running code from it.

    Args:
        allowed: objects that the file may ask for beside tensors, plain containers and NumPy arrays.
        remedy: function name of another class that the file asks for, "" if it is damaged -> what to do about it.

    Raises:
        InputError: the file is damaged, or asks for another class.
    """
    import torch

    is_archive = zipfile.is_zipfile(path)
    if is_archive and (problem := _damaged_record(path)):
        raise InputError(f"{path}: is damaged: {problem}", remedy(""))
    try:
        with _only([*numpy_classes(), *allowed]):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=is_archive)
    except Exception as error:  # torch raises its own errors, and any error of a pickle's operation
        named = NAMED.search(str(error))
        if named:
            problem = f"{path}: cannot be read without running code from it: it holds an object of {named[1]}"
            raise InputError(problem, remedy(named[1])) from error
        problem = f"{path}: cannot be read without running code from it, or is damaged: {type(error).__name__}"
        raise InputError(problem, remedy("")) from error


def _damaged_record(path: Path) -> str:
    """Returns the first record of an archive whose bytes are not those that were saved, in words, "" if there is none; reads every byte.

    torch does not compare the CRC-32 of a record when it maps the file: a flipped bit would be another edge.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if not any(record.CRC for record in archive.infolist()):
                return ""  # saved with `torch.serialization.set_crc32_options(False)`, which leaves them out
            for record in archive.infolist():
                with archive.open(record) as stream:
                    while stream.read(PIECE_BYTES):
                        pass
    except BAD_ARCHIVE as error:
        if isinstance(error, OSError) and is_unread(error):
            raise  # of the machine, and not of the bytes
        return str(error) or type(error).__name__
    return ""


@contextmanager
def _only(allowed: Sequence[Allowed]) -> Iterator[None]:
    """Replaces the list of objects that the process lets torch's loader make."""
    import torch

    before = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals([*allowed])
    try:
        yield
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)
