"""Registers the simulated accelerator before any test runs, and opens the accelerators that trainings are tested on.

Torch's autograd starts a thread per device at its first backward pass, and knows no device that comes later.
"""

import pytest

from tests import accelerator
from tests.conftest import asked_for_gpu


def pytest_configure(config: pytest.Config) -> None:
    if not asked_for_gpu(config):  # beside a GPU torch would see two kinds of accelerator
        accelerator.load()


@pytest.fixture(params=["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def place(request, monkeypatch):
    """Makes `device = "cuda"` mean the simulated accelerator, or a GPU under -m gpu."""
    from tests.accelerator.places import CudaPlace, SimulatedPlace

    return (SimulatedPlace if request.param == "simulated" else CudaPlace)(monkeypatch)
