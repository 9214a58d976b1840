"""How often the host waits for a device, and how much it launches, per batch.

That is what bounds an epoch where a batch's kernels are short: on a GPU each wait empties its queue, and each launch takes microseconds of
the host. The simulated accelerator counts both (accelerator.cpp says what counts), so a wait that comes back is a test that fails.
"""

import json
from typing import Any, NamedTuple

import pytest

from benchmarks.gpu_trace import waits_of
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.kernels.cuda.device import device_of
from graphmill.kernels.sampling.sample_cuda import CudaSampler
from graphmill.kernels.types import BatchKey
from graphmill.kernels.warn_once import forget
from graphmill.trainers.batches.on_device import place_topology
from graphmill.trainers.devices.accelerator import Accelerator
from graphmill.trainers.loop.loop import Loop
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from tests import accelerator
from tests.accelerator.backend import SimulatedBackend, seeing, stand_in
from tests.assets.packed_chunks.packed import build_packed
from tests.kernels.graphs import random_topology
from tests.trainers.runs import DRAWN, Stops, content, train_fresh, train_packed, train_parts, train_small

CACHED = {"device": "2KiB", "host": "64KiB", "seed": 3}
TYPICAL: dict[str, Any] = {"device": "cuda", "epochs": 2, "dropout": 0.3, "norm": "layer", "eval_every": 0}
LOSS = 1
"""Waits at the end of an epoch, for the sum of its losses."""


class Epoch(NamedTuple):
    """An epoch that was trained."""

    num_batches: int
    crossed: accelerator.Counts

    def waits(self) -> float:
        """Returns the waits per batch, the one at the end of the epoch left out."""
        return (self.crossed.waits - LOSS) / self.num_batches

    def launches(self) -> float:
        """Returns the launches per batch."""
        return self.crossed.launches / self.num_batches


@pytest.fixture
def epochs(monkeypatch):
    """The epochs that are trained on simulated devices while the test runs."""
    stand_in(monkeypatch)
    found, train = [], Loop._train_epoch

    def counted(self):
        before = accelerator.counts()
        ended = train(self)
        found.append(Epoch(self.plan.num_batches, accelerator.counts().since(before)))
        return ended

    monkeypatch.setattr(Loop, "_train_epoch", counted)
    return found


ALL_CACHED = CACHED | {"device": "64KiB", "host": 0}
THERE: dict[str, Any] = {"topology": "device", "features": "memory"}
DRAWN_BY_DEVICE = {"drawn": True}
ONLINE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "host, rows pinned": ({"features": "memory"}, {}),
    "host, rows mapped": ({}, {"lent": True}),
    "host, rows cached": ({"memory": CACHED}, {"lent": True}),
    "host, all rows cached": ({"memory": ALL_CACHED}, {}),
    "device, rows pinned": (THERE, DRAWN_BY_DEVICE),
    "bus, rows pinned": ({"topology": "uva", "features": "memory"}, DRAWN_BY_DEVICE),
    "device, rows cached": (THERE | {"memory": CACHED}, DRAWN_BY_DEVICE),
    "device, all rows cached": ({"topology": "device", "memory": ALL_CACHED}, DRAWN_BY_DEVICE),
    "device, gcn": (THERE | {"model": "gcn"}, DRAWN_BY_DEVICE),
    "device, gin": (THERE | {"model": "gin"}, DRAWN_BY_DEVICE),
    "device, gat": (THERE | {"model": "gat", "heads": 2}, DRAWN_BY_DEVICE),
    "device, mean with self": (THERE | {"aggregator": "gcn"}, DRAWN_BY_DEVICE),
    "device, rows mapped": ({"topology": "device"}, {"drawn": True, "found": False, "lent": True}),
}


@pytest.mark.parametrize("case", ONLINE)
def test_waits_of_batches_that_are_sampled_online(tmp_path, epochs, case):
    more, how = ONLINE[case]
    train_small(tmp_path, **(TYPICAL | more))
    least = waits_of(
        **how | ({"lent": False} if case == "host, rows cached" else {})
    )  # if a batch finds all in the cache
    assert len(epochs) == 2 and least <= epochs[1].waits() <= waits_of(**how), epochs[1]


@pytest.mark.parametrize("name", DRAWN)
def test_waits_of_batches_that_are_drawn_otherwise(tmp_path, epochs, name):
    sampling, model = DRAWN[name]
    train_small(tmp_path, sampling=sampling, model=model, **THERE, **TYPICAL)
    assert epochs[1].waits() == waits_of(drawn=True), epochs[1]


@pytest.mark.parametrize("fanouts", [(4, -1), (-1, 3), (-1, -1)])
def test_each_layer_of_all_neighbours_is_one_wait_more(tmp_path, epochs, fanouts):
    sampling = SamplingConfig(fanouts=fanouts, batch_size=32)
    train_small(tmp_path, sampling=sampling, **THERE, **TYPICAL)
    assert epochs[1].waits() == waits_of(drawn=True, whole_layers=fanouts.count(-1)), epochs[1]


def test_waits_of_stored_batches(tmp_path, epochs):
    packed = build_packed(tmp_path)
    train_packed(packed, tmp_path / "disk", **TYPICAL)
    train_packed(packed, tmp_path / "online", trainer="minibatch", samples="stored", features="memory", **TYPICAL)
    assert [epochs[1].waits(), epochs[3].waits()] == [waits_of(lent=True), waits_of()], epochs


@pytest.mark.parametrize("topology", ["host", "device"])
def test_waits_of_samplers_and_trainers(tmp_path, epochs, topology):
    how = TYPICAL | {"trainer": "factored", "settings": FactoredSettings(samplers=2), "features": "memory"}
    with seeing(0):
        train_small(tmp_path, topology=topology, **how)
    assert epochs[1].waits() == waits_of(drawn=topology == "device"), epochs[1]


HELD = {"device": "2KiB", "host": "64KiB"}
RANKED = {"policy": "performance+features"}
HOT = {"device": "30%", "host": "10%"}
OTHERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "fresh": (lambda home, **how: train_fresh(home, features="memory", **how), {"pruned": True}),
    "fresh, ranked": (lambda home, **how: train_fresh(home, features="memory", fresh=RANKED, **how), {"pruned": True}),
    "fresh, without features": (
        lambda home, **how: train_fresh(home, features="memory", fresh={"policy": "accuracy"}, **how),
        {"pruned": True},
    ),
    "fresh, ahead": (
        lambda home, **how: train_fresh(home, features="memory", fresh=RANKED | {"lookahead": 1}, **how),
        {"pruned": True},
    ),
    "fresh, rows cached": (
        lambda home, **how: train_fresh(home, features="memory", memory=HELD, **how),
        {"pruned": True},
    ),
    "fresh, device samples": (lambda home, **how: train_fresh(home, **THERE, **how), {"pruned": True, "drawn": True}),
    "fresh-factored": (
        lambda home, **how: train_fresh(home, trainer="fresh-factored", features="memory", **how),
        {"pruned": True},
    ),
    # Rows of other ranks are copied to memory that is held instead of waited for.
    "distributed": (lambda home, **how: train_parts(home, 1, **how), {}),
    "distributed, device samples": (
        lambda home, **how: train_parts(home, 1, topology="device", **how),
        {"drawn": True, "found": False},
    ),
    "distributed, rows on the device": (lambda home, **how: train_parts(home, 1, memory=HOT, **how), {}),
    "fresh-distributed": (lambda home, **how: train_parts(home, 1, fresh={}, **how), {"pruned": True}),
    "fresh-distributed, ranked": (lambda home, **how: train_parts(home, 1, fresh=RANKED, **how), {"pruned": True}),
    "fresh-distributed, rows on the device": (
        lambda home, **how: train_parts(home, 1, fresh={}, memory=HOT, **how),
        {"pruned": True},
    ),
    "fresh-distributed, device samples": (
        lambda home, **how: train_parts(home, 1, fresh={}, topology="device", **how),
        {"pruned": True, "drawn": True},
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_waits_of_other_trainers(tmp_path, epochs, name):
    train, how = OTHERS[name]
    with seeing(0):
        train(tmp_path, **TYPICAL)
    assert epochs[1].waits() == waits_of(**how), epochs[1]


@pytest.mark.parametrize("layers", [2, 3])
def test_a_batch_is_sampled_by_few_launches(layers):
    """Of recorded launches: the replay, the cut, and three for each transpose."""
    device = Accelerator(SimulatedBackend())
    graph = random_topology(300, 3000)
    with device.preparing():
        there = place_topology(graph, "device", device)
        sampler = CudaSampler(there, (4, 3, 2)[:layers], seed=1, device=device_of(there.in_degree))
    sampler.records, found = True, []
    for step in range(4):
        before = accelerator.counts()
        with device.preparing():
            sampler.sample(BatchKey(0, 0, step), range(40 - step), transpose="hidden")
        found.append(accelerator.counts().since(before).launches)
    assert found[3] == found[2] == found[1] == 2 + 3 * (layers - 1) <= 12 < found[0], found


STEPS: dict[str, Any] = {
    "host": lambda home, **how: train_small(home, features="memory", **how),
    "device": lambda home, **how: train_small(home, **THERE, **how),
    "sampler and trainer": lambda home, **how: train_small(
        home, trainer="factored", settings=FactoredSettings(samplers=1), features="memory", **how
    ),
    "parts": lambda home, **how: train_parts(home, 1, **how),
}


def launches_of_a_batch(home: Any, epochs: list[Epoch], name: str, layers: int, batch_sizes: tuple[int, ...]) -> float:
    """Returns the launches of a batch and its step, which are the same for all batch sizes, without those at an epoch's end."""
    found = []
    for batch_size in batch_sizes:
        sampling = SamplingConfig(fanouts=(4, 3, 2, 2)[:layers], batch_size=batch_size)
        how = {"device": "cuda", "epochs": 2, "eval_every": 0, "accumulate": 1, "layers": layers}
        with seeing(0):
            STEPS[name](home / f"{name} {batch_size} {layers}", sampling=sampling, **how)
        found.append((epochs[-1].num_batches, epochs[-1].crossed.launches))
    (few, least), *others = found
    (slope,) = {(launches - least) / (batches - few) for batches, launches in others}
    return slope


@pytest.mark.parametrize("name", STEPS)
def test_launches_of_a_batch_depend_on_the_layers_alone(tmp_path, epochs, name):
    """Not on the size of the batch; and each layer between the first and the last has as many as the others."""
    counts = [launches_of_a_batch(tmp_path, epochs, name, layers, (40, 24)) for layers in (2, 3, 4)]
    assert counts[2] - counts[1] == counts[1] - counts[0] > 0 and all(count == round(count) for count in counts), counts


def test_a_device_that_samples_launches_three_more_for_each_layer(tmp_path, epochs):
    """The replay, the cut and the slots of the rows, and three for each transpose, of which the last block has none."""
    for layers in (2, 3):
        by_host, by_device = (
            launches_of_a_batch(tmp_path, epochs, name, layers, (40, 24, 16)) for name in ("host", "device")
        )
        assert by_device - by_host == 3 + 3 * (layers - 1), (by_host, by_device)


DRAWN_THERE: dict[str, Any] = {
    "minibatch": train_small,
    "weighted": lambda home, **how: train_small(home, sampling=DRAWN["weighted"][0], model="gcn", **how),
    "walks": lambda home, **how: train_small(home, sampling=DRAWN["walks"][0], model="pinsage", **how),
    "factored": lambda home, **how: train_small(home, trainer="factored", settings=FactoredSettings(samplers=2), **how),
    "distributed": lambda home, **how: train_parts(home, 2, **how),
    "fresh": train_fresh,
}


@pytest.mark.parametrize("name", DRAWN_THERE)
def test_recorded_launches_change_no_bit_and_what_cannot_be_recorded_is_launched(tmp_path, epochs, monkeypatch, name):
    how = TYPICAL | {"topology": "device", "features": "memory"}
    with seeing(0):
        recorded = DRAWN_THERE[name](tmp_path / "recorded", **how)

    def refuses(self, work):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr("tests.accelerator.kernels.SimulatedKernels.record", refuses)
    forget()
    with (
        seeing(0),
        pytest.warns(RuntimeWarning, match="sampled launch by launch, since .* when stream is capturing"),
    ):
        plain = DRAWN_THERE[name](tmp_path / "plain", **how)
    for file in ("weights.safetensors", "metrics.jsonl"):
        assert content(recorded)[file] == content(plain)[file]
    assert epochs[1].launches() < epochs[3].launches() - 10, epochs
    counts = [json.loads(each.file("ledger.json").read_text())["counts"] for each in (recorded, plain)]
    assert counts[0] == counts[1]


@pytest.mark.parametrize("name", ["minibatch", "factored", "fresh"])
def test_a_training_that_was_stopped_goes_on_to_the_same_bits(tmp_path, epochs, name):
    how = TYPICAL | {"topology": "device", "features": "memory", "checkpoint_steps": 1}
    with seeing(0):
        whole = DRAWN_THERE[name](tmp_path / "whole", **how)
        with pytest.raises(ConnectionAbortedError):
            DRAWN_THERE[name](tmp_path / "again", progress=Stops(10), **how)
        found = DRAWN_THERE[name](tmp_path / "again", resume=True, **how)
    for file in ("weights.safetensors", "metrics.jsonl"):
        assert content(found)[file] == content(whole)[file]
