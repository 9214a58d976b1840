"""Tiles on threads: in order, a few at a time, each on one thread of torch; logits have the same bits on any number of threads."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.trainers.devices.side_by_side import AHEAD_BYTES, TileThreads
from graphmill.trainers.devices.torch_threads import torch_threads
from graphmill.trainers.models.build import build_model
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.rows.source import TableSource
from tests.trainers.graphs import random_topology
from tests.trainers.inference.infer import infer_exact


@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize("tile_bytes", [0, AHEAD_BYTES // 3, 2 * AHEAD_BYTES])
def test_results_come_in_order_and_few_tiles_wait(number: int, tile_bytes: int) -> None:
    taken, done, most = [], [], 0
    waits = np.random.default_rng(number).integers(0, 3, 200) / 1000

    def tiles() -> Iterator[tuple[int, int, float]]:
        for low in range(200):
            taken.append(low)
            yield low, low + 1, waits[low]

    def computed(low: int, high: int, seconds: float) -> tuple[int, int, bool, str]:
        time.sleep(seconds)
        return low * high, torch.get_num_threads(), torch.is_grad_enabled(), threading.current_thread().name

    with TileThreads(number) as threads:
        for low, high, result in threads.in_order(computed, tiles(), tile_bytes):
            done.append((low, high, *result))
            most = max(most, len(taken) - len(done) + 1)
    assert [each[:3] for each in done] == [(low, low + 1, low * (low + 1)) for low in range(200)]
    assert {each[3:5] for each in done} == {(1, False)} and len({each[5] for each in done}) <= number
    assert most == number + {0: 64, AHEAD_BYTES // 3: 3, 2 * AHEAD_BYTES: 1}[tile_bytes]


def test_threads_that_compute_alone_leave_the_numbers_of_others_alone() -> None:
    found: list[int] = []

    def numbers(low: int, high: int) -> int:
        return torch.get_num_threads()

    with torch_threads(3), TileThreads(2) as threads:
        assert [result for *_, result in threads.in_order(numbers, [(0, 1)], 1)] == [1]
        other = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
        other.start()
        other.join()
        assert found == [torch.get_num_threads()] == [3]
        assert torch.is_grad_enabled()


def test_a_tile_that_fails_is_an_error_of_the_caller_and_ends_the_others() -> None:
    begun: list[int] = []

    def failing(low: int, high: int) -> int:
        begun.append(low)
        if low == 3:
            raise ZeroDivisionError
        time.sleep(0.01)
        return low

    with pytest.raises(ZeroDivisionError), TileThreads(2) as threads:
        for low, high, result in threads.in_order(failing, ((low, low + 1) for low in range(1000)), 0):
            assert result == low == high - 1 < 3
    assert max(begun) < 70


@pytest.mark.parametrize("hidden", [16, 100])
@pytest.mark.parametrize(
    "ends", [{}, {"residual": True, "activation": "gelu"}, {"head": "linear", "jk": "cat", "norm": "layer"}], ids=str
)
@pytest.mark.parametrize("name", ["sage", "gcn", "gin", "gat"])
def test_no_number_of_threads_changes_a_bit(name: str, ends: dict[str, Any], hidden: int) -> None:
    """Of torch or of the kernels: five tiles of 4,096 rows, which two threads share where they may, while one computes each alone."""
    topology = random_topology(17_000, 90_000, seed=3)
    rows = np.random.default_rng(0).standard_normal((17_000, 33)).astype(np.float32)
    config = TrainConfig(model=name, layers=2, hidden=hidden, heads=4 if name == "gat" else 1, **ends)
    model = build_model(config, 33, 7, seed=0)
    found = []
    for threads, others in ((1, 1), (2, 1), (1, 2), (3, 4)):
        with torch_threads(others):
            found.append(infer_exact(model, topology, TableSource(rows, False, threads), threads=threads))
    assert all(torch.equal(each, found[0]) for each in found)
