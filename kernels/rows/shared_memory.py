"""Rows in memory of this machine that other processes map and read: the door between processes whose devices are parts of the CPU.

The memory has no name in any folder: it is a file of the kernel's (memfd) that lives for as long as a process maps it, and that others open
through the process that made it. So nothing is left behind by a process that is killed, and those that have mapped its rows keep them.
"""

import mmap
import os
import uuid
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphmill.kernels.arrays import owner_of
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

PREFIX = "graphmill-rows-"


def share_rows(rows: Array) -> tuple[Array, dict[str, Any]]:
    """Copies rows to memory that other processes can map; returns the copy and its JSON-ready handle, valid while a view lives."""
    name = PREFIX + uuid.uuid4().hex
    handle = {"shape": list(rows.shape), "dtype": rows.dtype.name, "process": os.getpid(), "name": name, "file": -1}
    if not rows.nbytes:
        return np.empty(rows.shape, rows.dtype), handle
    file = os.memfd_create(name)
    os.ftruncate(file, rows.nbytes)
    memory = mmap.mmap(file, rows.nbytes)
    weakref.finalize(memory, os.close, file)
    copy = np.frombuffer(memory, rows.dtype).reshape(rows.shape)
    copy[...] = rows
    return copy, handle | {"file": file}


def open_rows(handle: Mapping[str, Any]) -> Array:
    """Maps the rows of a handle, of any process, for reading; raises InputError if the process is gone or has dropped them."""
    shape, dtype = tuple(handle["shape"]), np.dtype(handle["dtype"])
    if handle["file"] < 0:
        return np.empty(shape, dtype)
    path = f"/proc/{handle['process']}/fd/{handle['file']}"
    try:
        if not os.readlink(path).startswith(f"/memfd:{handle['name']}"):
            raise FileNotFoundError(f"{path} is another file by now")
        with open(path, "rb") as file:
            memory = mmap.mmap(file.fileno(), int(np.prod(shape)) * dtype.itemsize, prot=mmap.PROT_READ)
    except OSError as error:
        problem = f"the rows of process {handle['process']} cannot be opened: {error}"
        remedy = "see why that process ended; processes that share rows are of one machine and user"
        raise InputError(problem, remedy) from error
    return np.frombuffer(memory, dtype).reshape(shape)


def memory_of(rows: Array) -> Any:
    """Returns the object that lives for as long as any view of shared rows."""
    owner = owner_of(rows)
    return owner if owner.base is None else owner.base
