"""The benchmark of the GPU runs on the CPU and on the simulated accelerator: equality is checked, and each figure is there."""

import pytest

from benchmarks import gpu
from benchmarks.gpu import Size, measure
from tests import accelerator
from tests.accelerator.backend import stand_in
from trainers.devices.open import open_device

accelerator.load()  # before any backward pass of this process, see tests/accelerator/conftest.py


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_every_figure_is_measured(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    stand_in(monkeypatch)
    monkeypatch.setattr(gpu, "FANOUTS", (3, 2, 2))
    monkeypatch.setattr(gpu, "BATCH_SIZE", 16)
    found = measure(Size(nodes=300, edges=2000, seeds=32, repeats=1, epochs=1), open_device(kind))
    assert [row["name"] for row in found["kernels"]] == ["sampling", "gather", "aggregation"]
    assert all(row["gb_per_second"] > 0 and row["of_copy"] > 0 for row in found["kernels"])
    assert [row["features"] for row in found["epochs"]] == ["on the device", "10% cached"]
    assert all(row["ours_seconds"] > 0 and row["torch_seconds"] > 0 for row in found["epochs"])
