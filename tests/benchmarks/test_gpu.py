"""The benchmark of the GPU runs on the CPU and on the simulated accelerator: equality is checked, and each figure is there."""

from typing import Any

import numpy as np
import pytest
from torch import Tensor

from benchmarks import gpu
from benchmarks.gpu import (
    CACHED,
    Place,
    Size,
    compare_epochs,
    kernel_rates,
    make_rows,
    make_topology,
    measure,
    peer_rate,
)
from graphmill.trainers.devices.logical import open_device
from tests import accelerator
from tests.accelerator.backend import stand_in

accelerator.load()  # before any backward pass of this process, see tests/accelerator/conftest.py


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_every_figure_is_measured(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    stand_in(monkeypatch)
    monkeypatch.setattr(gpu, "FANOUTS", (3, 2, 2))
    monkeypatch.setattr(gpu, "BATCH_SIZE", 16)
    found = measure(Size(nodes=300, edges=2000, seeds=32, repeats=1, epochs=1), open_device(kind))
    assert [row["name"] for row in found["kernels"]] == ["sampling", "gather", "aggregation", "peer"]
    assert all(row["gb_per_second"] > 0 and row["of_copy"] > 0 for row in found["kernels"])
    assert [row["features"] for row in found["epochs"]] == ["on the device", "10% cached"]
    assert all(row["ours_seconds"] > 0 and row["torch_seconds"] > 0 for row in found["epochs"])


@pytest.mark.parametrize("part", ["rates", "peer", "all on the device", "cached"])
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_gather_of_one_wrong_row_is_refused(monkeypatch: pytest.MonkeyPatch, kind: str, part: str) -> None:
    stand_in(monkeypatch)
    monkeypatch.setattr(gpu, "FANOUTS", (3, 2, 2))
    size = Size(nodes=300, edges=2000, seeds=32, repeats=1, epochs=1)
    place, rows, gather = Place(make_topology(size), open_device(kind)), make_rows(size.nodes), Place.gather

    def wrong(self: Place, slots: Any, tiers: Any, out: Tensor) -> Tensor:
        found = gather(self, slots, tiers, out)
        found[7] += 1
        return found

    monkeypatch.setattr(Place, "gather", wrong)
    with pytest.raises(AssertionError, match="gathered rows differ"):
        if part == "rates":
            list(kernel_rates(place, rows, size))
        elif part == "peer":
            peer_rate(place, size)
        else:
            share = CACHED if part == "cached" else 1.0
            compare_epochs(place, rows, np.zeros(size.nodes, np.int32), np.arange(32), share, size)
