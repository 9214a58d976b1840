"""The benchmark of the GPU runs on the CPU and on the simulated accelerator: equality is checked, and each figure is there."""

from typing import Any

import numpy as np
import pytest
from torch import Tensor

from benchmarks import gpu, gpu_graph
from benchmarks.gpu import (
    CACHED,
    Place,
    Size,
    compare_epochs,
    kernel_rates,
    make_rows,
    measure,
    peer_rate,
)
from benchmarks.gpu_graph import make_topology
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
    device, rows, gather = open_device(kind), make_rows(size.nodes), Place.gather
    place = Place(make_topology(size.nodes, size.edges, device), device)

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


@pytest.mark.parametrize(("made", "ranges"), [(7000, 1), (1000, 3), (999, 50)])
@pytest.mark.parametrize("num_nodes", [1, 37, 300])
def test_a_device_makes_the_graph_of_the_processor(
    monkeypatch: pytest.MonkeyPatch, num_nodes: int, made: int, ranges: int
) -> None:
    """In pieces of any size, and in more ranges of destinations than there are nodes."""
    stand_in(monkeypatch)
    monkeypatch.setattr(gpu_graph, "MADE", made)
    monkeypatch.setattr(gpu_graph, "SORTED", -(-7000 // ranges))
    here, there = (make_topology(num_nodes, 7000, open_device(kind)) for kind in ("cpu", "cuda"))
    for name in ("indptr", "indices", "in_degree", "out_degree"):
        one, other = getattr(here, name), getattr(there, name)
        assert one.dtype == other.dtype and one.tobytes() == other.tobytes(), name
    assert num_nodes == 1 or len(here.indices) > 0
