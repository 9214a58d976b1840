"""The pass on devices with memory of their own: the same gradients on any number, and no byte crosses that the ledger does not tell of."""

import json

import pytest
import torch

from graphmill.kernels.errors import InputError
from graphmill.trainers.devices.accelerator import Accelerator
from graphmill.trainers.devices.protocol import OverBudget
from graphmill.trainers.record.checks import LEDGER_EQUALS_PLAN
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.techniques.fullgraph.passes.layer_passes import ForwardPass
from tests.accelerator.backend import seeing
from tests.accelerator.test_typed import RECIPE_OF
from tests.laws.trainings import Case
from tests.trainers.graphs import random_graph_artifacts
from tests.trainers.ranks.threads import run_threads
from tests.trainers.runs import Stops, build_chunks, content, train_whole
from tests.trainers.techniques.fullgraph.passed import cut, gradients, made_model
from tests.trainers.techniques.fullgraph.passes.test_whole_pass import MODES, assert_near, problem

OPTIONS = [
    {"model": "gcn"}, {"model": "gat", "heads": 2, "attention_dropout": 0.3},
    {"model": "sage", "input": "linear", "head": "linear", "jk": "cat"},
]  # fmt: skip
NORMED = {"model": "sage", "norm": "batch", "residual": "linear", "head": "linear"}
"""A model whose biases have no gradient but that of rounding, since its norms take constants out again."""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("options", [*OPTIONS, NORMED | {"dtype": "float64"}])
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
        assert crossed.h2d_bytes + pulled_bytes(booked) == booked.moved_bytes("h2d")
        assert crossed.d2h_bytes == booked.moved_bytes("d2h")
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


@pytest.fixture
def several(place):
    """The kind of device of a test that needs two of it."""
    if place.Backend.num_devices() < 2:
        pytest.skip("needs two GPUs")
    return place


SLOW = pytest.mark.slow("all models by all modes on two devices")


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        *zip([*OPTIONS, NORMED], ("vanilla", "p2p+reuse", "p2p+reuse", "p2p+reuse"), strict=True),
        pytest.param(OPTIONS[0], "p2p+reuse", marks=SLOW),
        *(pytest.param(each, mode, marks=SLOW) for each in OPTIONS for mode in MODES[:2] if each is not OPTIONS[0]),
    ],
)
def test_a_pass_on_two_devices_has_the_bits_of_one(several, mode, options):
    """Cached aggregates or not; every byte between devices is booked, and rows that cross are those of sets of nodes."""
    graph, x, labels, train_ids, made = problem(60, 300, 4, 2, 1)
    model, found = made_model(6, 3, layers=3, hidden=8, dropout=0.4, **options), []
    for count, hybrid in ((1, True), (2, True), (2, False)):
        first, ledger = Accelerator(several.Backend()), Ledger()
        devices = [first, *(first.sibling(index) for index in range(1, count))]
        model.to(first.torch_device)
        several.begin()
        loss, there = cut(graph, x, labels, train_ids, model, made, mode, devices=devices, hybrid=hybrid, ledger=ledger)
        crossed = several.crossed()
        assert isinstance(loss, torch.Tensor)
        found.append({"loss": loss.cpu()} | {name: value.cpu() for name, value in there.items()})
        assert crossed.d2d_bytes == ledger.moved_bytes("d2d")
        lines = {
            (row["kind"], row["phase"]): row
            for row in ledger.rows()["moves"]
            if row["link"] == "d2d" and row["layer"] == 2
        }
        rows = 0 if mode == "vanilla" else between(made, count, mode == "p2p+reuse")
        again = not hybrid or options["model"] == "gat"
        for kind, phase, times in (
            ("neighbour", "forward", 1),
            ("neighbour", "backward", again),
            ("gradient", "backward", 1),
        ):
            row = lines.get((kind, phase), {"requests": 0, "moved_bytes": 0})
            width = COLUMNS[options["model"]]
            assert (row["requests"], row["moved_bytes"]) == (times * rows, times * rows * width * 4), (kind, phase)
    for other in found[1:]:
        assert other.keys() == found[0].keys()
        for name, value in found[0].items():
            assert torch.equal(other[name], value), name


COLUMNS = {"gcn": 3, "gat": 6, "sage": 8}
"""Columns of the rows that the last layer's chunks read: mapped ones if it narrows, of two heads, and those of the layer below a head."""


def between(made, devices, reuse):
    """Rows that chunks read of nodes of another device, with reuse those that the step before did not read, of a pass, by sets."""
    device_of = made.part_of * devices // made.num_parts
    rows = 0
    for part in range(made.num_parts):
        before = set()
        for j in range(made.chunks_per_part):
            here = {v for v in made._neighbours(part, j) if device_of[v] != part * devices // made.num_parts}
            rows += len(here - before if reuse else here)
            before = here
    return rows


TRAINED = {"device": "cuda", "epochs": 2, "threads": 1, "dropout": 0.3}


def bits(model):
    assert all(check["passed"] for check in model.summary["checks"] if check["name"] == LEDGER_EQUALS_PLAN)
    return [content(model)[name] for name in ("weights.safetensors", "metrics.jsonl")]


def test_trainings_on_devices_have_the_bits_of_one_behind_a_stop_too(tmp_path, several):
    """The exact evaluation of every epoch, class weights and bfloat16 included."""
    options = TRAINED | {"class_weights": "balanced", "dtype": "bf16", "model": "gcn", "eval_every": 1}
    one = train_whole(tmp_path / "one", 4, 2, devices=1, **options)
    two = train_whole(tmp_path / "two", 4, 2, devices=2, **options)
    assert bits(two) == bits(one) and two.version == one.version
    assert two.summary["numbers"] == one.summary["numbers"]
    peaks = [each["peak_bytes"]["total"] for each in two.run_record()["executors"]["devices"]]
    assert len(peaks) == 2 and min(peaks) > 0
    with pytest.raises(ConnectionAbortedError):
        train_whole(tmp_path / "stopped", 4, 2, devices=2, progress=Stops(1), **options)
    resumed = train_whole(tmp_path / "stopped", 4, 2, devices=2, resume=True, **options)
    assert bits(resumed) == bits(one) and content(resumed) == content(two)


@pytest.mark.parametrize(
    "name",
    ["rows of nodes", pytest.param("everything", marks=pytest.mark.slow("relations and weights on several devices"))],
)
def test_typed_graphs_on_devices_have_the_bits_of_one(tmp_path, several, name):
    """Learnable rows of nodes are copied to the other devices, and their gradients come back in order, as parameters do."""
    made, how = Case(tmp_path, RECIPE_OF[name]), {"device": "cuda", "epochs": 2, "accumulate": 1, "cut": (2, 2)}
    one, two = (made.train("fullgraph", settings={"devices": devices}, **how) for devices in (1, 2))
    assert bits(two) == bits(one)


@pytest.mark.parametrize("place", ["simulated"], indirect=True)
def test_two_ranks_of_two_devices_have_the_bits_of_one(tmp_path, place):
    one = train_whole(tmp_path / "one", 4, 2, **TRAINED)
    build_chunks(tmp_path / "four", random_graph_artifacts(tmp_path / "four").inputs["graph"], 4, 2)

    def train(ranks):
        with seeing(2 * ranks.rank, 2):
            return train_whole(tmp_path / "four", 4, 2, devices=4, ranks=ranks, **TRAINED)

    four = run_threads(2, train)[0]
    assert bits(four) == bits(one)
    assert {row["link"] for row in json.loads(four.file("ledger.json").read_text())["moves"]} >= {"d2d", "rank"}


def test_an_error_on_one_device_names_it_and_ends_the_pass(tmp_path, several, monkeypatch):
    """So does too little memory; the bound is each device's own."""
    real, chunks = ForwardPass.chunk, []

    def fails(self, supply):
        chunks.append((supply.place.device.index, supply.step))
        if supply.place.device.index and supply.step:
            raise error
        return real(self, supply)

    name = several.name.replace("0", "1")
    monkeypatch.setattr(ForwardPass, "chunk", fails)
    error = ZeroDivisionError("a device that fails")
    with pytest.raises(ZeroDivisionError) as found:
        train_whole(tmp_path, 4, 2, devices=2, **TRAINED)
    assert any(name in note for note in found.value.__notes__)
    assert max(j for _, j in chunks) == 1  # the others have stopped
    error = torch.OutOfMemoryError("out of memory: tried to allocate 7 bytes")
    with pytest.raises(OverBudget, match=f"training on {name} .*7 bytes"):
        train_whole(tmp_path, 4, 2, devices=2, **TRAINED)
    error = InputError("a wrong row", "none")
    with pytest.raises(InputError, match=f"on device {name}: a wrong row"):
        train_whole(tmp_path, 4, 2, devices=2, **TRAINED)


@pytest.mark.parametrize("place", ["simulated"], indirect=True)
def test_more_devices_than_the_machine_has_are_refused(tmp_path, place):
    with seeing(0, 3), pytest.raises(InputError, match=r"devices = 4 needs 4 accelerators .* shows 3"):
        train_whole(tmp_path, 4, 2, devices=4, **TRAINED)
