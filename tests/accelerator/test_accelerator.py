"""The simulated accelerator computes as the CPU does, refuses what a GPU refuses, and counts every copy."""

import numpy as np
import pytest
import torch
from torch import nn

from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.gather_cuda import gather_tiered_cuda
from graphmill.kernels.rows.slots import DEVICE, STAGED, Tiers, make_slots
from graphmill.trainers.devices.accelerator import Accelerator
from graphmill.trainers.record.ledger import Ledger, Line
from tests import accelerator
from tests.accelerator.backend import SimulatedBackend, seeing
from tests.accelerator.kernels import kernels


def trained(device: str) -> list[float]:
    torch.manual_seed(0)
    x, labels = torch.randn(64, 12).to(device), torch.randint(0, 5, (64,)).to(device)
    model = nn.Sequential(nn.Linear(12, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 5))
    model.to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.01)
    losses = []
    for _ in range(5):
        loss = nn.functional.cross_entropy(model(x), labels, reduction="sum")
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


def test_training_ends_with_the_losses_of_the_cpu():
    assert trained(accelerator.NAME) == pytest.approx(trained("cpu"), rel=1e-6)


def test_gradients_of_own_functions_run_on_the_device():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            assert grad.device.type == accelerator.NAME
            return grad * 2

    x = torch.ones(3, device=accelerator.NAME, requires_grad=True)
    Double.apply(x).sum().backward()
    assert x.grad is not None and x.grad.cpu().tolist() == [2, 2, 2]


def test_what_a_gpu_refuses_is_refused():
    x = torch.ones(3, 2, device=accelerator.NAME)
    with pytest.raises(TypeError, match="can't convert simulated"):
        x.numpy()
    for mixed in (lambda: x + torch.ones(3, 2), lambda: torch.cat([x, torch.ones(3, 2)]), lambda: x @ torch.ones(2, 2)):
        with pytest.raises(RuntimeError, match="same device"):
            mixed()
    assert (x * torch.tensor(2.0)).sum().item() == 12  # a single number may stay on the host


def test_copies_are_counted_and_the_fallbacks_own_are_not():
    before = accelerator.counts()
    x = torch.ones(100, dtype=torch.float64).to(accelerator.NAME)
    y = (x + x).sqrt().view(10, 10).t().contiguous()
    crossed = accelerator.counts().since(before)
    assert (crossed.h2d_calls, crossed.h2d_bytes, crossed.d2h_bytes) == (1, 800, 0)
    y[0].cpu()
    y.sum().item()
    crossed = accelerator.counts().since(before)
    assert (crossed.d2h_calls, crossed.d2h_bytes) == (2, 88)


def test_memory_is_limited():
    with accelerator.limited(accelerator.counts().live_bytes + 1000):
        held = torch.empty(900, dtype=torch.uint8, device=accelerator.NAME)
        with pytest.raises(torch.OutOfMemoryError, match="simulated device out of memory: tried to allocate 200 bytes"):
            torch.empty(200, dtype=torch.uint8, device=accelerator.NAME)
    assert held.cpu().unique().tolist() == [0xA5]  # garbage, not zeros


ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)


def gathered(tier, tiers):
    """Rows of a tier, gathered by a kernel that has not run yet."""
    slots = kernels().upload(make_slots(tier, np.arange(4)))
    out = torch.empty(4, 3, device=accelerator.NAME)
    gather_tiered_cuda(slots, tiers, out, kernels(), trusted=True)
    return out


def test_a_copy_that_nobody_waits_for_is_not_there_on_another_stream():
    stream = accelerator.new_stream()
    with accelerator.using_stream(stream):
        there = torch.from_numpy(ROWS).to(accelerator.NAME, non_blocking=True)
    assert not np.array_equal(there.cpu().numpy(), ROWS)
    accelerator.wait_for(stream)
    np.testing.assert_array_equal(there.cpu().numpy(), ROWS)
    with accelerator.using_stream(stream):  # what follows on the same stream comes after it
        again = torch.from_numpy(ROWS).to(accelerator.NAME, non_blocking=True)
        np.testing.assert_array_equal((again + 1).cpu().numpy(), ROWS + 1)


@pytest.mark.parametrize("waits", [True, False])
def test_pinned_memory_that_is_given_back_too_early_is_garbage(waits):
    staged = kernels().pinned(ROWS.shape, np.float32)
    staged[:] = ROWS
    out = gathered(STAGED, Tiers(staged=staged))
    if waits:
        kernels().synchronize()
    del staged
    assert np.array_equal(out.cpu().numpy(), ROWS) == waits
    assert ("the pool (64 bytes) is given back while gather_tiered" in accelerator.take_fault()) == (not waits)


@pytest.mark.parametrize("recorded", [True, False])
def test_memory_of_a_side_stream_waits_for_the_step_that_it_was_handed_to(recorded):
    device = Accelerator(SimulatedBackend())
    with device.preparing():
        rows = torch.from_numpy(ROWS).to(accelerator.NAME, non_blocking=True)
    if recorded:
        device.hand_over([rows])
    out = gathered(DEVICE, Tiers(device=rows))
    del rows
    assert np.array_equal(out.cpu().numpy(), ROWS) == recorded
    assert ("memory of a device" in accelerator.take_fault()) == (not recorded)


def test_devices_have_memory_and_counters_of_their_own():
    before = [accelerator.counts(index) for index in range(3)]
    x = torch.ones(100, dtype=torch.float64).to("simulated:1")
    y = x.to("simulated:2") * 2
    crossed = [accelerator.counts(index).since(each) for index, each in enumerate(before)]
    assert [each.h2d_bytes for each in crossed] == [0, 800, 0] and [each.d2d_bytes for each in crossed] == [0, 0, 800]
    live = [each.live_bytes - then.live_bytes for each, then in zip(crossed, before, strict=True)]
    assert live == [0, 800, 800]
    assert y.device == torch.device("simulated:2") and y.sum().item() == 200
    with accelerator.limited(1, device=1):
        assert torch.empty(8, device="simulated:2").device.index == 2
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(8, device="simulated:1")


def test_tensors_of_two_devices_are_refused():
    first, second = torch.ones(3, device="simulated:0"), torch.ones(3, device="simulated:1")
    for mixed in (lambda: first + second, lambda: torch.cat([first, second]), lambda: first.add_(second)):
        with pytest.raises(RuntimeError, match="found at least two devices, simulated:"):
            mixed()
    first.copy_(second)  # a copy may cross


def test_gradients_cross_devices_with_the_copies_of_the_forward_pass():
    x = torch.ones(3, device="simulated:1", requires_grad=True)
    ((x * 2).to("simulated:2") * 3).sum().backward()
    assert x.grad is not None and x.grad.device.index == 1 and x.grad.cpu().tolist() == [6, 6, 6]


@pytest.mark.parametrize("waits", [True, False])
def test_a_device_that_does_not_wait_reads_garbage_of_another(waits):
    """By its kernels; torch's copies between devices wait for the streams of both."""
    there = torch.from_numpy(ROWS).to("simulated:1", non_blocking=True)
    if waits:
        kernels(1).synchronize()
    assert np.array_equal(gathered(DEVICE, Tiers(device=there)).cpu().numpy(), ROWS) == waits
    late = torch.from_numpy(ROWS).to("simulated:1", non_blocking=True)
    np.testing.assert_array_equal(late.to("simulated:2").cpu().numpy(), ROWS)


def test_memory_that_another_device_still_reads_is_garbage_if_it_is_freed():
    there = torch.from_numpy(ROWS).to("simulated:1")
    out = gathered(DEVICE, Tiers(device=there))
    del there
    assert not np.array_equal(out.cpu().numpy(), ROWS)
    assert "memory of a device" in accelerator.take_fault()


def test_a_thread_sees_the_devices_that_it_is_shown():
    with seeing(2, 2):
        assert SimulatedBackend.num_devices() == 2
        first = Accelerator(SimulatedBackend(), work_bytes=1 << 20)
        second = first.sibling(1)
        with pytest.raises(InputError, match="device 2 of 2"):
            first.sibling(2)
    assert [str(each.torch_device) for each in (first, second)] == ["simulated:2", "simulated:3"]
    assert second.work_bytes == 1 << 20 and second.traffic is not first.traffic
    ledger, line = Ledger(), Line("d2d", "feature")
    rows = torch.from_numpy(ROWS).to(first.torch_device, non_blocking=True)
    assert first.send_tensor(rows, line, ledger) is rows and ledger.moved_bytes("d2d") == 0
    np.testing.assert_array_equal(second.send_tensor(rows, line, ledger).cpu().numpy(), ROWS)
    assert ledger.moved_bytes("d2d") == ROWS.nbytes
