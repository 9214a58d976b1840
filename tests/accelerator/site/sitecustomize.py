"""Imported by each Python process whose path begins with this folder: for ranks, simulated accelerators stand in for GPUs."""

import os

if "RANK" in os.environ:
    import graphmill.trainers.devices.cuda
    from tests import accelerator
    from tests.accelerator.backend import SimulatedBackend

    accelerator.load()
    graphmill.trainers.devices.cuda.CudaBackend = SimulatedBackend  # pyright: ignore[reportAttributeAccessIssue]
