"""Online presampling (FGNN 6.3) where the device draws the batches: it counts the visits of the CPU, and nothing else of a run changes."""

import json
from typing import Any

import numpy as np
import pytest

from graphmill.assets.storage.store import Store
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from graphmill.trainers.techniques.factored import executor
from graphmill.trainers.techniques.factored.executor import OnlineVisits
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from tests.accelerator.test_training import assert_booked
from tests.trainers.graphs import random_graph_artifacts
from tests.trainers.rows.caches import resolve
from tests.trainers.runs import SAMPLING, TABLE, content

EPOCHS, NUM_BATCHES = 3, 7


@pytest.fixture
def ranked(monkeypatch):
    """Collects the visits by which caches are filled."""
    found: list[np.ndarray] = []
    rank = executor.rank
    monkeypatch.setattr(executor, "rank", lambda visits: rank(found.append(np.array(visits)) or visits))
    return found


@pytest.fixture
def one_device(place):
    """On several devices a standby trainer takes batches when it has time, and has a smaller cache: counts of tiers do not repeat there."""
    with place.devices(1):
        yield


def train(home, topology="host", presample=2, resume=False, sharing="space", samplers=2, trainers=0, **options: Any):
    graph = random_graph_artifacts(home)
    keys = {
        "trainer": "factored",
        "model": "sage",
        "epochs": EPOCHS,
        "dropout": 0.3,
        "topology": topology,
        "device": "cuda",
    }
    settings = FactoredSettings(presample=presample, sharing=sharing, samplers=samplers, trainers=trainers)
    reads = {"budgets": resolve(home, graph, device="30%", host="10%")} if presample else {}
    table = TrainTable(**(TABLE | keys | {"settings": settings} | options))
    how: dict[str, Any] = {"reads": reads, "resume": resume, "report": lambda line: None}
    return train_table(Store(home), graph.inputs, table, SAMPLING, 5, **how)[0]


def cached_rows(model):
    """Rows by tier, of all training batches."""
    counts = json.loads(model.file("ledger.json").read_text())["counts"]
    return {row["name"]: row["n"] for row in counts if row["layer"] == 0 and row["name"].startswith(("hits", "misses"))}


@pytest.mark.usefixtures("one_device")
def test_a_device_that_draws_counts_the_visits_of_the_cpu(tmp_path, place, ranked):
    plain = train(tmp_path / "plain", presample=0)
    by_cpu = train(tmp_path / "cpu")
    on_cpu = train(tmp_path / "host", device="cpu")
    assert len(ranked) == 2 and ranked[0].sum() > 2 * 200
    for topology in ("device", "uva"):
        place.begin()
        found = train(tmp_path / topology, topology)
        crossed = place.crossed()
        assert found.version == by_cpu.version != on_cpu.version
        for file in ("weights.safetensors", "metrics.jsonl"):
            assert found.files[file]["digest"] == by_cpu.files[file]["digest"] == plain.files[file]["digest"]
        assert cached_rows(found) == cached_rows(by_cpu) and cached_rows(found)["hits_device"] > 0
        batches = json.loads(found.file("ledger.json").read_text())["moves"]
        pulled = sum(row["moved_bytes"] for row in batches if (row["link"], row["kind"]) == ("h2d", "topology"))
        kinds = ("topology", "ids", "label") if topology == "uva" else ("ids", "label")
        assert_booked(found, crossed, kinds, pulled=pulled)
    assert len(ranked) == 4
    for visits in ranked[1:]:
        assert visits.dtype == ranked[0].dtype == np.int32
        np.testing.assert_array_equal(visits, ranked[0])


@pytest.mark.parametrize("how", [{}, {"sharing": "time", "trainers": 2, "samplers": 0}], ids=["space", "time"])
def test_several_devices_count_the_same(tmp_path, place, ranked, how):
    """Where batches are trained on: on the host in space, on each device in time."""
    with place.devices(2):
        by_cpu = train(tmp_path / "cpu")
        found = train(tmp_path / "device", "device", **how)
    np.testing.assert_array_equal(*ranked)
    assert found.files["weights.safetensors"]["digest"] == by_cpu.files["weights.safetensors"]["digest"]
    assert cached_rows(found)["hits_device"] > 0


@pytest.mark.parametrize(
    "stop",
    [NUM_BATCHES + 3, pytest.param(2 * NUM_BATCHES, marks=pytest.mark.slow("a restart behind the last counted batch"))],
)
@pytest.mark.usefixtures("one_device")
def test_counts_on_the_device_survive_a_restart(tmp_path, ranked, monkeypatch, stop):
    """The run ends in the second counted epoch, or behind it, and goes on from its checkpoint on a device or on the CPU's samplers."""
    straight = train(tmp_path / "straight", "device", checkpoint_steps=1)
    add, calls = OnlineVisits.add, []

    def counted(self, input_ids):
        calls.append(input_ids)
        if len(calls) == stop:
            raise KeyboardInterrupt
        add(self, input_ids)

    for goes_on in ("device", "host"):
        home = tmp_path / goes_on
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            calls.clear()
            patched.setattr(OnlineVisits, "add", counted)
            train(home, "device", checkpoint_steps=1)
        resumed = train(home, goes_on, resume=True, checkpoint_steps=1)
        np.testing.assert_array_equal(ranked[-1], ranked[0])
        if goes_on == "device":
            assert content(resumed) == content(straight)
        assert resumed.files["weights.safetensors"] == straight.files["weights.safetensors"]
    assert len(ranked) == 3
