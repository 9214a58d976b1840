"""Collective calls of tensors that stay on devices: NCCL between GPUs, beside the lanes over gloo (trainers/ranks/group.py).

A second process group is made if each rank has a GPU of its own, since NCCL refuses two ranks on one. Else there is none, and tensors go
through the host's memory. Sizes and blame stay on gloo: a call here follows one of the same thread's lane, in which every rank has come,
and the caller waits for its end on the host within the ranks' timeout. So a rank that is gone or hangs ends the run as in any other call,
and NCCL's own watch, which would end the wrong process, comes later.
"""

import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from graphmill.trainers.ranks.group import Group, Ranks, blaming_peers

POLL_SECONDS = 1e-4


class TensorLane:
    """Collective calls of a device's tensors, by one thread of every rank in the same order, each within `timeout` seconds; see `Lane`."""

    def __init__(self, world: int, group: Group, timeout: float):
        self.world, self.timeout, self._group = world, timeout, group

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Returns the tensors of all ranks, of one shape and type and on the device, in the order of ranks."""
        own = tensor.contiguous().view(-1)
        found = torch.empty(self.world * len(own), dtype=own.dtype, device=own.device)
        with blaming_peers("a gathering on devices"):
            pieces = list(found.view(self.world, -1))
            self._ended(dist.all_gather(pieces, own, group=self._group.library, async_op=True))
        return list(found.view(self.world, *tensor.shape))

    def add(self, values: Tensor) -> None:
        """Replaces a contiguous tensor by the sum over all ranks, in an order that the library chooses."""
        with blaming_peers("a sum on devices"):
            self._ended(dist.all_reduce(values, group=self._group.library, async_op=True))

    def _ended(self, work: Any) -> None:
        """Waits for a call on the host, and makes the current stream wait for it; raises RuntimeError if it takes too long."""
        limit = time.monotonic() + self.timeout
        while not work.is_completed():
            if time.monotonic() > limit:
                raise RuntimeError(f"[nccl] no answer for {self.timeout:g} s")
            time.sleep(POLL_SECONDS)
        work.wait()


def open_tensor_lane(ranks: Ranks, device: torch.device) -> TensorLane | None:
    """Returns a lane of the device's tensors, None if they have to go through the host; all ranks call it."""
    if ranks.world == 1:
        return None
    name = None
    if device.type == "cuda" and dist.is_nccl_available():
        name = str(torch.cuda.get_device_properties(device).uuid)
    names = ranks.main.gather_values(name)
    if None in names or len(set(names)) < ranks.world:
        return None
    lane = TensorLane(ranks.world, ranks.group("nccl", 2 * ranks.timeout), ranks.timeout)
    lane.gather(torch.zeros(1, device=device))  # the first call connects the GPUs
    return lane
