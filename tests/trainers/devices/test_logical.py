"""A logical device counts live torch storages and enforces its budget (law 4)."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from graphmill.assets.storage.names.home import ROOT
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.devices.protocol import CACHE, OverBudget, kernel_array


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


def test_numpy_arrays_are_booked_while_they_live_and_views_as_their_owner() -> None:
    device = LogicalDevice(work_bytes=1000)
    table = np.zeros(100, np.float32)
    device.adopt([table[10:20], table, table.reshape(10, 10)], "topology")
    assert device.live_bytes == 400 and device.peak == {"topology": 400, "total": 400}
    with pytest.raises(OverBudget, match=r"slots on device 0 \(workspace 1,000\) asks for 800 bytes where 600"):
        device.adopt([np.zeros(100)], "slots")
    labels = torch.zeros(50, dtype=torch.float64)
    device.adopt([labels, table], "labels")
    assert device.live_bytes == 800
    del table, labels
    assert device.live_bytes == 0 and device.peak["total"] == 800


def test_memory_of_a_mapped_file_is_not_the_devices(tmp_path: Path) -> None:
    np.zeros(100).tofile(tmp_path / "rows")
    mapped, device = np.memmap(tmp_path / "rows"), LogicalDevice()
    device.adopt([mapped, mapped[5:]], "rows")
    assert device.live_bytes == 0


def test_each_direction_to_the_host_has_a_link_of_its_own() -> None:
    device, plain = LogicalDevice(link_gbps=2.0), LogicalDevice()
    up, down = device.link("h2d"), device.link("d2h")
    assert up is device.link("h2d") and up is not down and up is not None and up.gbps == 2.0
    up.carry(100, up.now())
    assert (up.charged_bytes, down.charged_bytes if down else None) == (100, 0)
    assert device.link("d2d") is device.link("rank") is plain.link("h2d") is None


def test_rows_of_any_stored_type_are_allocated_under_the_cache_budget() -> None:
    device = LogicalDevice(work_bytes=0, cache_bytes=800)
    rows = device.alloc((10, 10), np.dtype(np.float64), CACHE)
    assert rows.dtype == torch.float64 and device.live_bytes == 0 and device.peak == {"cache": 800, "total": 800}
    assert kernel_array(rows).shape == (10, 10)


def test_booking_does_not_load_the_compiler_and_a_model_that_uses_it_is_booked_alike(tmp_path: Path) -> None:
    (tmp_path / "compiled_model.py").write_text(COMPILED)
    environment = {"PYTHONPATH": f"{ROOT}:{tmp_path}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", BOOKED], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "True", "True"]


COMPILED = """
import torch

class Compiled(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.made = inner, None

    def forward(self, x):
        if self.made is None:  # compiled at the first step, when storages are booked already
            self.made = torch.compile(self.inner, backend="eager")
        return self.made(x)
"""
BOOKED = """
import sys
import torch
from graphmill.assets.storage.names.user_code import Reference, load_reference
from pathlib import Path
from graphmill.trainers.devices.logical import COMPILER, LogicalDevice

def peak(model):
    device = LogicalDevice()
    with device.active():
        for _ in range(2):
            model(x).sum().backward()
    return device.peak["total"]

x, inner = torch.ones(100, 8), torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
plain = peak(inner)
print(COMPILER in sys.modules)
of_user = load_reference(Reference("compiled_model:Compiled", Path.cwd()))
print(peak(of_user(inner)) == plain, COMPILER in sys.modules)
"""
