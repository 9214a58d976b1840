"""The pass on a device with memory of its own: the same gradients, and no byte crosses that the ledger does not tell of."""

import pytest
import torch

from tests.trainers.graphs import random_graph_artifacts
from tests.trainers.runs import build_chunks, content, train_whole
from tests.trainers.techniques.fullgraph.passed import cut, gradients, made_model
from tests.trainers.techniques.fullgraph.test_whole_pass import MODES, assert_near, problem
from trainers.devices.accelerator import Accelerator
from trainers.record.ledger import Ledger

OPTIONS = [
    {"model": "gcn"}, {"model": "gat", "heads": 2, "attention_dropout": 0.3},
    {"model": "sage", "input": "linear", "head": "linear", "jk": "cat"},
]  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("options", OPTIONS)
def test_a_device_computes_the_same_and_every_byte_is_booked(place, mode, options):
    graph, x, labels, train_ids, made = problem(60, 300, 3, 3, 1)
    model = made_model(6, 3, layers=3, hidden=8, dropout=0.4, **options)
    loss, expected = cut(graph, x, labels, train_ids, model, made, mode)
    device = Accelerator(place.Backend())
    model.to(device.torch_device)
    found = []
    for hybrid in (True, False, True):
        ledger = Ledger()
        place.begin()
        device.traffic = Ledger()
        there, _ = cut(graph, x, labels, train_ids, model, made, mode, devices=[device], hybrid=hybrid, ledger=ledger)
        crossed = place.crossed()
        booked = Ledger.from_rows(ledger.rows())
        booked.merge(device.traffic)
        assert crossed is None or crossed.h2d_bytes + pulled_bytes(booked) == booked.moved_bytes("h2d")
        assert crossed is None or crossed.d2h_bytes == booked.moved_bytes("d2h")
        assert isinstance(there, torch.Tensor) and there.item() == pytest.approx(loss, rel=1e-5)
        found.append({name: value.cpu() for name, value in gradients(model).items()})
        assert_near(found[-1], expected, 1e-5)
    for other in found[1:]:
        for name, value in found[0].items():
            assert torch.equal(other[name], value), name


@pytest.mark.parametrize("mode", ["p2p+reuse", "vanilla"])
def test_ranks_with_an_accelerator_each_have_the_bits_of_one(tmp_path, place, mode):
    options = {"mode": mode, "device": "cuda", "epochs": 2, "threads": 1, "dropout": 0.3, "norm": "layer"}
    one = train_whole(tmp_path / "one", 4, 2, **options)
    build_chunks(tmp_path / "two", random_graph_artifacts(tmp_path / "two").inputs["graph"], 4, 2)
    two = place.ranks(2, lambda ranks: train_whole(tmp_path / "two", 4, 2, ranks=ranks, **options))[0]
    assert content(one)["weights.safetensors"] == content(two)["weights.safetensors"]
    assert all(check["passed"] for check in two.summary["checks"] if check["name"] == "ledger equals plan")


def pulled_bytes(ledger):
    """Bytes that kernels read over the bus, which are no copies of torch's: all rows that came from the host."""
    kinds = ("neighbour", "gradient", "checkpoint", "output", "logit", "feature")
    return sum(row["moved_bytes"] for row in ledger.rows()["moves"] if row["link"] == "h2d" and row["kind"] in kinds)
