"""Rows that a device reads and writes where the host has them give the bits of copied rows, and are counted and booked like them."""

import numpy as np
import pytest
import torch

from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.techniques.fullgraph.rows.host_rows import consecutive, rows_in_place
from tests.trainers.techniques.fullgraph.passed import KernelSteps, cut, made_model
from tests.trainers.techniques.fullgraph.passes.test_whole_pass import problem

MODELS = [
    {"model": "gcn"}, {"model": "gcn", "residual": True}, {"model": "gcn", "norm": "layer"}, {"model": "sage"},
    {"model": "sage", "activation": "elu"}, {"model": "gin"}, {"model": "gat", "heads": 2}, {"model": "gat", "residual": True},
]  # fmt: skip


def passed(options, hybrid, classes):
    """Returns loss, gradients and moved bytes of a pass over chunks of consecutive ids."""
    graph, x, labels, train_ids, _ = problem(300, 1500, 1, 4, 1, width=32, classes=classes)
    model = made_model(32, classes, layers=3, hidden=16, dropout=0.3, **options)
    ledger, steps = Ledger(), KernelSteps(graph, np.zeros(300, np.int32), 1, 4)
    assert all(consecutive(steps.step(0, j).dst_ids) for j in range(4))
    loss, found = cut(graph, x, labels, train_ids, model, steps, ledger=ledger, hybrid=hybrid)
    return loss, found, ledger.rows()["moves"]


@pytest.mark.parametrize("options", MODELS, ids=str)
@pytest.mark.parametrize("hybrid", [True, False])
@pytest.mark.parametrize("classes", [3, 16])
def test_rows_in_place_give_the_bits_of_copies(options, hybrid, classes, monkeypatch):
    loss, found, moves = passed(options, hybrid, classes)
    monkeypatch.setattr(LogicalDevice, "in_host_memory", False)
    copied_loss, copied, copied_moves = passed(options, hybrid, classes)
    assert loss == copied_loss and moves == copied_moves
    assert found.keys() == copied.keys() and all(torch.equal(found[name], copied[name]) for name in copied)


def test_only_aligned_rows_of_consecutive_nodes_are_lent_and_they_are_booked():
    values, device = torch.arange(64.0).view(4, 16).numpy(), LogicalDevice()
    found = rows_in_place(values, np.array([1, 2]), device, "staged")
    assert found is not None and found.data_ptr() == values[1].ctypes.data and device.live_bytes == 128
    assert rows_in_place(values, np.array([0, 2]), device, "staged") is None
    assert rows_in_place(values, np.array([2, 1]), device, "staged") is None
    assert rows_in_place(values[:, :15].copy(), np.array([1]), device, "staged") is None
    assert rows_in_place(values, np.array([1]), LogicalDevice(link_gbps=1.0), "staged") is None


@pytest.mark.parametrize(
    "options", [{"model": "gcn"}, {"model": "sage"}, {"model": "sage", "aggregator": "gcn"}], ids=str
)
def test_an_update_is_made_once_though_the_nodes_of_a_chunk_are_scattered(options, monkeypatch):
    """The output rows of a chunk tell its gradient wherever they lie, with the bits of an update that is made again."""
    graph, x, labels, train_ids, _ = problem(300, 1500, 2, 4, 1, width=32, classes=3)
    steps = KernelSteps(graph, np.arange(300, dtype=np.int32) % 2, 2, 4)
    assert not any(consecutive(steps.step(part, j).dst_ids) for part in range(2) for j in range(4))

    def updates():
        model, made = made_model(32, 3, layers=3, hidden=16, dropout=0.3, **options), []
        for layer in model.layers:
            update = layer.update
            layer.update = lambda *args, update=update: made.append(0) or update(*args)
        ledger = Ledger()
        loss, found = cut(graph, x, labels, train_ids, model, steps, ledger=ledger)
        return len(made), loss, found, ledger.rows()["moves"]

    once, loss, found, moves = updates()
    monkeypatch.setattr(LogicalDevice, "in_host_memory", False)
    twice, again_loss, again, again_moves = updates()
    assert (once, twice) == (3 * 2 * 4, 2 * 3 * 2 * 4)
    assert loss == again_loss and moves == again_moves
    assert found.keys() == again.keys() and all(torch.equal(found[name], again[name]) for name in again)
