"""A logical device counts live torch storages and enforces its budget (law 4)."""

import pytest
import torch

from trainers.devices.logical import LogicalDevice
from trainers.devices.protocol import OverBudget


def test_live_bytes_follow_what_is_alive() -> None:
    device = LogicalDevice()
    with device:
        x = torch.zeros(10, 25)  # 1,000 bytes
        assert device.live_bytes == 1000
        view = x[2:]  # shares the storage
        assert device.live_bytes == 1000
        y = x + 1
        assert device.live_bytes == 2000
        del x
        assert device.live_bytes == 2000  # the view keeps it
        del view
        assert device.live_bytes == 1000
        del y
    assert device.live_bytes == 0
    assert device.peak["total"] == 2000


def test_activations_that_autograd_keeps_count_until_backward() -> None:
    device = LogicalDevice()
    weight = torch.nn.Parameter(torch.zeros(100, 100))
    device.adopt([weight], "parameters")
    with device:
        x = torch.zeros(50, 100)
        loss = (x @ weight).exp().sum()
        kept = device.live_bytes
        loss.backward()
        assert kept >= 40_000 + 2 * 20_000  # parameters, input, the exponential that its backward pass needs
        del loss
        assert device.live_bytes == 40_000 + 20_000 + 40_000  # the gradient has come, the activation has gone
    assert device.peak["parameters"] == 40_000


def test_a_budget_is_enforced_at_the_operation_that_exceeds_it() -> None:
    device = LogicalDevice(3, work_bytes=1500)
    with device:
        kept = torch.zeros(250)
        with pytest.raises(OverBudget, match="work on device 3") as error:
            torch.zeros(250)
        assert (error.value.asked, error.value.free) == (1000, 500)
        del kept
        assert device.live_bytes == 0
        torch.zeros(250)


def test_alloc_books_under_its_purpose_and_refuses_before_allocating() -> None:
    device = LogicalDevice(work_bytes=1000)
    rows = device.alloc((10, 10), torch.float32, "inputs")
    assert rows.shape == (10, 10) and device.peak == {"inputs": 400, "total": 400}
    with pytest.raises(OverBudget, match="inputs on device 0"):
        device.alloc((10, 100), torch.float32, "inputs")
    assert device.live_bytes == 400
