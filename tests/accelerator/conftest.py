"""Registers the simulated accelerator before any test runs, and opens the accelerators that trainings are tested on.

Torch's autograd starts a thread per device at its first backward pass, and knows no device that comes later.
"""

from typing import Any

import pytest

from tests import accelerator
from tests.conftest import asked_for_gpu


def pytest_configure(config: pytest.Config) -> None:
    if not asked_for_gpu(config):  # beside a GPU torch would see two kinds of accelerator
        accelerator.load()


@pytest.fixture(autouse=True)
def _within_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compares what each training took of its first device with what was planned, whatever test it is of."""
    from graphmill.assets.costs.needs import sizes_of
    from graphmill.trainers.devices.accelerator import Accelerator
    from graphmill.trainers.recipe.costs.device import device_need
    from graphmill.trainers.training.training import Training

    write = Training.write

    def compared(self: Training, *given: Any) -> Any:
        device, run = self.features.device, self.run
        sizes = sizes_of({**run.inputs, **run.reads})
        if isinstance(device, Accelerator) and sizes is not None:
            need = device_need(run.semantic, run.execution, sizes)
            assert need is not None
            assert device.peak["total"] <= need.memory_bytes, f"{device.peak}: {[*need.lines()]}"
        return write(self, *given)

    # The simulated devices have no library of matrix products, whose bytes would hide those of small graphs.
    monkeypatch.setattr("graphmill.trainers.recipe.costs.device.PRODUCT_BYTES", 0)
    monkeypatch.setattr(Training, "write", compared)


@pytest.fixture(params=["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def place(request, monkeypatch):
    """Makes `device = "cuda"` mean the simulated accelerator, or a GPU under -m gpu."""
    from tests.accelerator.places import CudaPlace, SimulatedPlace

    return (SimulatedPlace if request.param == "simulated" else CudaPlace)(monkeypatch)
