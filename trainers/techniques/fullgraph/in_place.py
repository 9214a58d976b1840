"""Rows of the host that a device reads and writes where they are.

A chunk's own nodes often have consecutive ids. If a device computes in the host's memory, and no link is modelled, their rows are a range
of the host's array already: a copy of it would be the same values in the same memory. The ledger counts them as rows that cross, and the
device books them as rows that it holds, as if they were copied.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.types import Array
from graphmill.trainers.devices.protocol import Device

ALIGNMENT = 64
"""Bytes to which torch aligns its tensors. Matrix products round the same only if the alignment is the same."""


def shares_memory(device: Device) -> bool:
    """Returns whether a device computes on the host's own rows, at the memory's speed."""
    return not device.remote and device.link("h2d") is None and device.link("d2h") is None


def consecutive(ids: Array) -> bool:
    """Returns whether ids[c], at least one, are low, low + 1, low + 2 and so on."""
    return len(ids) > 0 and int(ids[-1]) - int(ids[0]) == len(ids) - 1 and bool((np.diff(ids) == 1).all())


def rows_in_place(values: Array, ids: Array, device: Device, purpose: str) -> Tensor | None:
    """Returns float[c, F], the rows of nodes as a part of the host's array, booked on a device; None if they must be copied.

    Args:
        values: [N, F], the rows of all nodes.
        ids: ids[c], the nodes.
        device: the device that reads or writes them.
        purpose: purpose of the booked bytes.

    Raises:
        OverBudget: the device's budget does not allow them.
    """
    if not shares_memory(device) or not consecutive(ids):
        return None
    low = int(ids[0])
    part = values[low : low + len(ids)]
    if part.ctypes.data % ALIGNMENT or not part.flags.c_contiguous or not part.flags.writeable:
        return None
    found = torch.from_numpy(part)
    device.adopt([found], purpose)
    return found
