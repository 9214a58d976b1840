"""Opens the device that a train table computes on."""

from __future__ import annotations

from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.devices.protocol import Device


def open_device(kind: str, work_bytes: int | None = None, link_gbps: float | None = None) -> Device:
    """Returns the device of a train table.

    Args:
        kind: "cpu" or "cuda".
        work_bytes: bound on memory for work in bytes, None for no bound.
        link_gbps: speed of a modelled link in GB/s, for the CPU alone.

    Raises:
        InputError: the device does not exist.
    """
    if kind == "cpu":
        return LogicalDevice(work_bytes=work_bytes, link_gbps=link_gbps)
    assert link_gbps is None, "a GPU has a link of its own"
    from graphmill.trainers.devices.accelerator import Accelerator
    from graphmill.trainers.devices.cuda import CudaBackend

    return Accelerator(CudaBackend(), work_bytes=work_bytes)
