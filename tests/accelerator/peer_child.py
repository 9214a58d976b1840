"""A process with a device that exports rows, and reads those of the process that started it, whose handle it is told.

    python -m tests.accelerator.peer_child KIND SEED

It writes a handle to its standard output. For each line "open HANDLE" it answers the digest of what a gather on its device reads from the
handle's rows, or the problem; for "again" that of the same rows once more.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import numpy as np
import torch

from graphmill.kernels.cuda.device import device_of, on_device
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.gather import gather_tiered
from graphmill.kernels.rows.slots import PEER, Tiers, make_slots
from graphmill.trainers.devices.accelerator import Accelerator
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.devices.protocol import Device, kernel_array

ROWS, WIDTH = 1000, 37


def make_device(kind: str) -> Device:
    """Returns a device of the CPU, a simulated one, or a GPU."""
    if kind == "cpu":
        return LogicalDevice()
    if kind == "simulated":
        from tests.accelerator.backend import SimulatedBackend

        return Accelerator(SimulatedBackend())
    from graphmill.trainers.devices.cuda import CudaBackend

    return Accelerator(CudaBackend())


def make_rows(seed: int) -> np.ndarray:
    """Returns f16[ROWS, WIDTH]."""
    return np.random.default_rng(seed).standard_normal((ROWS, WIDTH)).astype(np.float16)


def read_rows(device: Device, peer: Any) -> np.ndarray:
    """Returns f32[ROWS, WIDTH], the rows of a peer as a kernel of the device reads them, last row first."""
    out = torch.empty(tuple(peer.shape), device=device.torch_device)
    slots = make_slots(PEER, np.arange(ROWS)[::-1])
    gather_tiered(slots, Tiers(peers=(peer,), peer_stride=ROWS), kernel_array(out))
    if on_device(out):
        device_of(out).synchronize()
    return out.cpu().numpy()


def digest(rows: np.ndarray) -> str:
    """Returns the digest of rows."""
    return hashlib.sha256(np.ascontiguousarray(rows)).hexdigest()


def main() -> None:
    """Exports, and answers."""
    device = make_device(sys.argv[1])
    own, handle = device.export_rows(make_rows(int(sys.argv[2])))
    print(json.dumps(handle), flush=True)
    peer: Any = None
    for line in sys.stdin:
        try:
            if line.startswith("open "):
                peer = device.open_peer(json.loads(line[5:]))
            answer = {"digest": digest(read_rows(device, peer))}
        except Exception as error:  # also CUDA's own
            answer = {"problem": error.problem if isinstance(error, InputError) else str(error)}
        print(json.dumps(answer), flush=True)
    assert own is not None


if __name__ == "__main__":
    main()
