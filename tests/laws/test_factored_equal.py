"""Laws 2, 4 and 5 for factored training: who samples, who trains and who switches changes no bit."""

import itertools
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from graphmill.trainers.techniques.factored.settings import FactoredSettings
from tests.assets.samples.sampled import build_samples
from tests.trainers.graphs import random_graph_artifacts
from tests.trainers.rows.caches import resolve
from tests.trainers.runs import SAMPLING, TABLE, content, train_small

EVERY = [
    (samplers, trainers, accumulate, switching)
    for samplers, trainers, accumulate, switching in itertools.product(range(1, 5), range(5), (1, 2, 4), (True, False))
    if trainers or switching
]
DRAWN = [(1, 0, 2, True), (4, 4, 4, True), (3, 1, 1, False), *random.Random(3).sample(EVERY, 2)]

# One thread per step: on a busy machine two that wait for one another take ten times as long, and there are many runs.
FAST: dict[str, Any] = {"epochs": 2, "dropout": 0.3, "threads": 1}


def settings(samplers: int, trainers: int, **more: Any) -> FactoredSettings:
    return FactoredSettings(samplers=samplers, trainers=trainers, devices=samplers + trainers, **more)


def train(home: Path, chosen: FactoredSettings, **options: Any) -> Artifact:
    return train_small(home, **(FAST | {"trainer": "factored", "settings": chosen} | options))


def assert_equal(home: Path, cases: list[tuple[int, int, int, bool]], **options: Any) -> None:
    expected: dict[int, dict[str, str]] = {}
    for number, (samplers, trainers, accumulate, switching) in enumerate(cases):
        if accumulate not in expected:
            plain = train_small(home / f"plain{accumulate}", **(FAST | {"accumulate": accumulate} | options))
            expected[accumulate] = content(plain)
        chosen = settings(samplers, trainers, switching=switching)
        found = train(home / str(number), chosen, accumulate=accumulate, **options)
        assert content(found) == expected[accumulate], (samplers, trainers, accumulate, switching)
        record = found.run_record()["executors"]
        assert (record["samplers"], record["trainers"]) == (samplers, trainers)
        assert sum(record["trained_by"].values()) == sum(record["sampled_by"].values()) == 7
        if not switching:
            assert not any(name.startswith("sampler") for name in record["trained_by"])


def test_weights_losses_and_ledger_are_those_of_one_model(tmp_path: Path) -> None:
    assert_equal(tmp_path, DRAWN, norm="batch")
    assert_equal(tmp_path / "gat", [(2, 3, 4, True)], model="gat", heads=2, norm="layer", threads=2)


@pytest.mark.slow("every number of samplers and trainers, with batch norm and for GCN")
@pytest.mark.parametrize("options", [{"norm": "batch"}, {"model": "gcn"}], ids=["sage", "gcn"])
def test_weights_are_those_of_one_model_at_every_number_of_executors(tmp_path: Path, options: dict[str, Any]) -> None:
    assert_equal(tmp_path, EVERY, **options)


@pytest.mark.parametrize("sharing", ["space", "time"])
def test_caches_links_bounds_and_stored_samples_change_no_weight(tmp_path: Path, sharing: Any) -> None:
    expected = content(train_small(tmp_path / "plain", **FAST))
    for number, options in enumerate(
        (
            {"memory": {"device": "10%", "host": "20%"}, "link": "100 GB/s"},
            {"memory": {"device": "50%", "host": "0%"}, "topology": "device", "workspace": "64MiB"},
            {"queue": "20kB", "checkpoint_steps": 1},
            {"features": "memory", "workspace": "64MiB"},
        )
    ):
        found = content(
            train(tmp_path / str(number), settings(2 * (sharing == "space"), 2, sharing=sharing), **options)
        )
        assert {name: found[name] for name in ("weights.safetensors", "metrics.jsonl")} == {
            name: expected[name] for name in ("weights.safetensors", "metrics.jsonl")
        }


def test_stored_samples_serve_as_samplers(tmp_path: Path) -> None:
    samples = build_samples(tmp_path, epochs=2)
    found = []
    for trainer, chosen in (("minibatch", None), ("factored", settings(2, 2))):
        table = TrainTable(
            **(TABLE | FAST | {"trainer": trainer, "settings": chosen, "samples": "stored", "epochs": 3})
        )
        sampling, inputs = replace(SAMPLING, reuse=2), random_graph_artifacts(tmp_path).inputs
        reads = {"samples": samples}
        found += train_table(Store(tmp_path), inputs, table, sampling, 5, reads=reads, report=lambda line: None)
    assert content(found[0]) == content(found[1]) and found[0].version != found[1].version


@pytest.mark.parametrize("trainers", [0, 2])
def test_the_bound_of_the_queue_holds_and_a_full_one_switches(tmp_path: Path, trainers: int) -> None:
    """Two batches fit at most; with no trainer the sampler has to train in the middle of the epoch."""
    found = train(tmp_path, settings(2, trainers), queue="20kB")
    record = found.run_record()["executors"]
    assert 0 < record["queue_peak_bytes"] <= 20_000
    unbounded = train(tmp_path / "unbounded", settings(1, 0), accumulate=3)
    assert unbounded.run_record()["executors"]["queue_peak_bytes"] > 20_000


@pytest.mark.parametrize("epochs", [1, 4])
def test_a_cache_that_is_filled_on_the_way_changes_no_weight(tmp_path: Path, epochs: int) -> None:
    """Two epochs count what batches need; the rest reads the hottest rows from the device."""
    graph = random_graph_artifacts(tmp_path)
    reads = {"budgets": resolve(tmp_path, graph, device="30%", host="0%")}
    plain = train_small(tmp_path / "plain", **(FAST | {"epochs": epochs}))
    for number, trainers in enumerate((1, 3)):
        table = TrainTable(
            **(TABLE | FAST | {"trainer": "factored", "settings": settings(2, trainers, presample=2), "epochs": epochs})
        )
        (found,) = train_table(
            Store(tmp_path / str(number)), graph.inputs, table, SAMPLING, 5, reads=reads, report=lambda line: None
        )
        assert content(found)["weights.safetensors"] == content(plain)["weights.safetensors"]
        counts = {
            row["name"]: row["n"]
            for row in json.loads(found.file("ledger.json").read_text())["counts"]
            if row["layer"] == 0
        }
        assert (counts.get("hits_device", 0) > 0) == (epochs > 2)
        assert counts.get("hits_device", 0) + counts.get("misses", 0) < counts["inputs"]
        assert all(check["passed"] for check in found.summary["checks"] if check["name"] == "ledger equals plan")
