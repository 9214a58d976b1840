"""How often the host waits for a device, and how much it launches, per batch.

That is what bounds an epoch where a batch's kernels are short: on a GPU each wait empties its queue, and each launch takes microseconds of
the host. The simulated accelerator counts both (accelerator.cpp says what counts), so a wait that comes back is a test that fails.
"""

import json
from typing import Any, NamedTuple

import pytest

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
from tests.trainers.runs import DRAWN, Stops, content, train_fresh, train_packed, train_parts, train_small, train_whole

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


ONLINE: dict[str, tuple[dict[str, Any], int]] = {
    # The host samples. Rows that the device reads in place need no wait, others one: their staging memory is lent again.
    "host, rows pinned": ({"features": "memory"}, 0),
    "host, rows mapped": ({}, 1),
    "host, rows cached": ({"memory": CACHED}, 1),
    "host, all rows cached": ({"memory": CACHED | {"device": "64KiB", "host": 0}}, 0),
    # The device samples: the sizes of the blocks.
    "device, rows pinned": ({"topology": "device", "features": "memory"}, 1),
    "bus, rows pinned": ({"topology": "uva", "features": "memory"}, 1),
    "device, rows cached": ({"topology": "device", "features": "memory", "memory": CACHED}, 1),
    "device, all rows cached": ({"topology": "device", "memory": CACHED | {"device": "64KiB", "host": 0}}, 1),
    "device, gcn": ({"topology": "device", "features": "memory", "model": "gcn"}, 1),
    "device, gin": ({"topology": "device", "features": "memory", "model": "gin"}, 1),
    "device, gat": ({"topology": "device", "features": "memory", "model": "gat", "heads": 2}, 1),
    "device, mean with self": ({"topology": "device", "features": "memory", "aggregator": "gcn"}, 1),
    # The host finds the rows: their ids come to it, and it waits for staged ones.
    "device, rows mapped": ({"topology": "device"}, 3),
}


@pytest.mark.parametrize("case", ONLINE)
def test_waits_of_batches_that_are_sampled_online(tmp_path, epochs, case):
    more, most = ONLINE[case]
    train_small(tmp_path, **(TYPICAL | more))
    assert len(epochs) == 2
    assert epochs[1].waits() <= most and epochs[1].launches() <= MOST_LAUNCHES, epochs[1]


@pytest.mark.parametrize("name", DRAWN)
def test_waits_of_batches_that_are_drawn_otherwise(tmp_path, epochs, name):
    sampling, model = DRAWN[name]
    train_small(tmp_path, sampling=sampling, topology="device", features="memory", model=model, **TYPICAL)
    assert epochs[1].waits() <= 1, epochs[1]


def test_a_layer_of_all_neighbours_is_one_wait_more(tmp_path, epochs):
    sampling = SamplingConfig(fanouts=(4, -1), batch_size=32)
    train_small(tmp_path, sampling=sampling, topology="device", features="memory", **TYPICAL)
    assert epochs[1].waits() <= 2, epochs[1]


def test_waits_of_stored_batches(tmp_path, epochs):
    packed = build_packed(tmp_path)
    train_packed(packed, tmp_path / "disk", **TYPICAL)
    train_packed(packed, tmp_path / "online", trainer="minibatch", samples="stored", features="memory", **TYPICAL)
    assert [epochs[1].waits() <= 1, epochs[3].waits() <= 0] == [True, True], epochs


@pytest.mark.parametrize("topology", ["host", "device"])
def test_waits_of_samplers_and_trainers(tmp_path, epochs, topology):
    how = TYPICAL | {"trainer": "factored", "settings": FactoredSettings(samplers=2), "features": "memory"}
    with seeing(0):
        train_small(tmp_path, topology=topology, **how)
    assert epochs[1].waits() <= (1 if topology == "device" else 0), epochs[1]


HELD = {"device": "2KiB", "host": "64KiB"}
RANKED = {"policy": "performance+features"}
OTHERS: dict[str, tuple[Any, int]] = {
    "fresh": (lambda home: train_fresh(home, features="memory", **TYPICAL), 1),
    "fresh, ranked": (lambda home: train_fresh(home, features="memory", fresh=RANKED, **TYPICAL), 1),
    "fresh, without features": (
        lambda home: train_fresh(home, features="memory", fresh={"policy": "accuracy"}, **TYPICAL),
        1,
    ),
    "fresh, ahead": (lambda home: train_fresh(home, features="memory", fresh=RANKED | {"lookahead": 1}, **TYPICAL), 1),
    "fresh, rows cached": (lambda home: train_fresh(home, features="memory", memory=HELD, **TYPICAL), 1),
    "fresh, device samples": (lambda home: train_fresh(home, features="memory", topology="device", **TYPICAL), 2),
    "fresh-factored": (lambda home: train_fresh(home, trainer="fresh-factored", features="memory", **TYPICAL), 1),
    "distributed": (lambda home: train_parts(home, 1, **TYPICAL), 1),
    "fresh-distributed": (lambda home: train_parts(home, 1, fresh={}, **TYPICAL), 1),
    "fresh-distributed, ranked": (lambda home: train_parts(home, 1, fresh=RANKED, **TYPICAL), 1),
    "fullgraph": (lambda home: train_whole(home, parts=1, **TYPICAL), 44),
}
"""What other trainers take today, which may not rise; `fullgraph` has one batch of all seeds, in three chunks."""
MOST_LAUNCHES = 130
"""Launches of a batch and its step, of 2 layers; the largest number is GAT's."""


@pytest.mark.parametrize("name", OTHERS)
def test_waits_of_other_trainers_do_not_rise(tmp_path, epochs, name):
    train, most = OTHERS[name]
    with seeing(0):
        train(tmp_path)
    assert epochs[1].waits() <= most, epochs[1]


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
