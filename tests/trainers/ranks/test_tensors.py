"""A lane of tensors: over gloo's tensors of the host, which make the calls that NCCL's make, and over NCCL on a GPU."""

import gc

import pytest
import torch
import torch.distributed as dist

from graphmill.trainers.ranks.group import Group, PeerError
from graphmill.trainers.ranks.tensors import TensorLane, open_tensor_lane


@pytest.fixture(params=["gloo", pytest.param("nccl", marks=pytest.mark.gpu)])
def lane(request, monkeypatch):
    """A lane of one rank, whose calls are the library's own."""
    if request.param == "nccl" and not dist.is_nccl_available():
        pytest.skip("this build of torch has no NCCL")
    monkeypatch.setattr("graphmill.trainers.ranks.group.leave_soon", lambda problem: None)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    group = Group(dist.new_group(backend=request.param))
    try:
        yield TensorLane(1, group, 20.0), "cuda" if request.param == "nccl" else "cpu"
    finally:
        group.library = None
        dist.destroy_process_group()
        gc.collect()


def test_tensors_are_gathered_and_added_where_they_are(lane):
    tensors, where = lane
    for shape, dtype in (((3, 4), torch.float32), ((5,), torch.float64), ((2, 1, 3), torch.bfloat16)):
        given = torch.arange(torch.Size(shape).numel(), dtype=dtype, device=where).reshape(shape)
        (found,) = tensors.gather(given)
        assert found.device.type == where and found.dtype == dtype and torch.equal(found, given)
        total = given.clone()
        tensors.add(total)
        assert torch.equal(total, given)


def test_a_call_that_does_not_end_blames_the_other_ranks(lane, monkeypatch):
    tensors, where = lane

    class Never:
        def is_completed(self):
            return False

    monkeypatch.setattr(dist, "all_reduce", lambda *given, **more: Never())
    tensors.timeout = 0.01
    with pytest.raises(PeerError, match="another rank is gone or late; this one was in a sum on devices: no answer"):
        tensors.add(torch.zeros(1, device=where))


def test_ranks_that_share_a_device_have_no_such_lane():
    """Nor those on the CPU; all ranks decide by what all of them have."""

    class Told:
        def __init__(self, names):
            self.main, self.world = self, len(names)
            self.names = names

        def gather_values(self, value):
            return self.names

    for names in ([None, None], ["GPU-1", None], ["GPU-1", "GPU-1"]):
        assert open_tensor_lane(Told(names), torch.device("cpu")) is None  # pyright: ignore[reportArgumentType]
