"""Tiers of feature rows of full-graph training: no bit changes, each row comes from one place, and rows that are loaded most stay."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.types import Array
from graphmill.trainers.record.checks import LEDGER_EQUALS_PLAN
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.techniques.fullgraph.executor import FullGraph
from graphmill.trainers.techniques.fullgraph.passes.row_passes import InputRows
from graphmill.trainers.techniques.fullgraph.rows.lists import Ways, walk
from graphmill.trainers.techniques.fullgraph.tiers import Loads, loads_of
from tests import accelerator
from tests.accelerator.backend import stand_in
from tests.assets.budgets.test_budgets import write_measured
from tests.trainers.graphs import random_graph_artifacts
from tests.trainers.ranks.threads import run_threads
from tests.trainers.rows.caches import resolve
from tests.trainers.runs import build_chunks, content, train_whole
from tests.trainers.techniques.fullgraph.passes.test_whole_pass import problem

accelerator.load()  # before any backward pass of this process, see tests/accelerator/conftest.py
MODES = ("vanilla", "p2p", "p2p+reuse")
EPOCHS, ROW_BYTES, NODES = 2, 48, 400
MODELS: dict[str, dict[str, Any]] = {
    "sage": {"model": "sage"},
    "gcn, sums made anew": {"model": "gcn", "keep_first": False},
    "dropout of the input": {"model": "sage", "input_dropout": 0.25, "hybrid": False},
    "gat, mapped apart": {"model": "gat", "heads": 2},
    "wide gat": {"model": "gat", "heads": 2, "hidden": 16, "dropout": 0.5},
    "projected": {"model": "gin", "input": "linear", "head": "linear"},
}


def ledger_of(model: Artifact) -> Ledger:
    return Ledger.from_rows(json.loads(model.file("ledger.json").read_text()))


def counts(model: Artifact) -> Counter[str]:
    return Counter({row["name"]: row["n"] for row in ledger_of(model).rows()["counts"]})


def plan_holds(model: Artifact) -> bool:
    (check,) = [check for check in model.summary["checks"] if check["name"] == LEDGER_EQUALS_PLAN]
    return check["passed"]


def assert_same_rows(plain: Artifact, cached: Artifact) -> Counter[str]:
    """Bits are equal, and every row that the plain training read from the file came from one tier; returns rows by tier."""
    assert plain.version == cached.version
    for name in ("weights.safetensors", "metrics.jsonl", "scores.json"):
        assert content(plain)[name] == content(cached)[name], name
    (before, after), found = map(Ledger.bytes_by_link, map(ledger_of, (plain, cached))), counts(cached)
    loaded = before["mapped"] // ROW_BYTES
    assert found["hits_device"] + found["hits_host"] + found["misses"] == loaded
    assert after.get("mapped", 0) == found["misses"] * ROW_BYTES
    assert before["h2d"] - after["h2d"] == found["hits_device"] * ROW_BYTES
    assert after.get("d2d", 0) - before.get("d2d", 0) == found["hits_device"] * ROW_BYTES
    assert plan_holds(plain) and plan_holds(cached)
    return found


@settings(max_examples=15, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    model=st.sampled_from(sorted(MODELS)),
    mode=st.sampled_from(MODES),
    cut=st.sampled_from([(1, 1), (1, 4), (2, 3), (4, 2), (3, 1)]),
    device=st.integers(0, 100),
    host=st.integers(0, 100),
    link=st.sampled_from([None, "1000 GB/s"]),
)
def test_tiers_change_no_bit_and_every_row_comes_from_one_place(
    tmp_path_factory: pytest.TempPathFactory, model: str, mode: str, cut: tuple[int, int], device: int, host: int, link: str | None
) -> None:  # fmt: skip
    home = tmp_path_factory.mktemp("tiers")
    options = {"mode": mode, "epochs": EPOCHS, "link": link, **MODELS[model]}
    plain = train_whole(home / "plain", *cut, **options)
    cached = train_whole(home / "cached", *cut, memory={"device": f"{device}%", "host": f"{host}%"}, **options)
    found = assert_same_rows(plain, cached)
    record = cached.run_record()["cache"]
    devices, most = cut[0], NODES * (cut[0] if mode == "vanilla" else 1)
    room = NODES * device // 100
    assert record["device_budget_bytes"] == ROW_BYTES * room
    assert record["device_rows"] <= min(most, devices * room)
    if device == 100:
        assert found["hits_host"] == found["misses"] == 0
    (told, counted), (told_plain, counted_plain) = map(told_and_counted, (cached, plain))
    assert told["h2d"] + told.get("d2d", 0) == pytest.approx(told_plain["h2d"] + told_plain.get("d2d", 0), abs=2)
    spared = {link: told_plain.get(link, 0) - told.get(link, 0) for link in ("h2d", "mapped")}
    # Parts of several devices are not quite even, and each has the same budget.
    slack = 1 if cut[0] == 1 else counted_plain["mapped"] / 4
    assert all(spared[link] <= counted_plain.get(link, 0) - counted.get(link, 0) + slack for link in spared)
    if device in (0, 100):
        assert spared["h2d"] == pytest.approx(counted_plain["h2d"] - counted["h2d"], abs=1)


def told_and_counted(model: Artifact) -> tuple[dict[str, float], dict[str, float]]:
    """Link -> bytes of an epoch, as they were forecast and as they were booked."""
    booked = {link: num_bytes / EPOCHS for link, num_bytes in ledger_of(model).bytes_by_link().items()}
    return model.run_record()["prediction"]["bytes_per_epoch"], booked


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("mode", MODES)
def test_the_rows_that_stay_are_those_that_a_pass_loads_most(tmp_path: Path, mode: str, name: str) -> None:
    """No other choice of as many rows would spare more transfers: what a device asks for is counted as it asks."""
    asked: dict[int, Counter[int]] = {}
    booked: list[Ledger] = []
    of_rows, total_loss = {name: getattr(InputRows, name) for name in ("stage", "load")}, FullGraph.total_loss

    def counting(name: str) -> Any:
        def count(self: Any, ids: Array, device: Any, ledger: Any, **given: Any) -> Any:
            if ledger in booked:  # sums that are made once, and evaluations, are booked apart
                asked.setdefault(device.index, Counter()).update(ids.tolist())
            return of_rows[name](self, ids, device, ledger, **given)

        return count

    def note(self: Any, random: Any) -> Any:
        booked.append(self.run.ledger)
        return total_loss(self, random)

    options = {"mode": mode, "epochs": 1, **MODELS[name]}
    budget = NODES * 15 // 100
    with pytest.MonkeyPatch.context() as patched:
        for each in of_rows:
            patched.setattr(InputRows, each, counting(each))
        patched.setattr(FullGraph, "total_loss", note)
        cached = train_whole(tmp_path, 2, 4, memory={"device": "15%", "host": 0}, **options)
    best = sum(sum(n for _, n in loads.most_common(budget)) for loads in asked.values())
    assert counts(cached)["hits_device"] == best > 0


def test_loads_count_the_chunks_that_need_a_row() -> None:
    graph, _, _, _, made = problem(60, 300, 3, 3, 1)
    walked = walk(made, "vanilla")
    for part in range(3):
        found = loads_of(walked, [part], 60, Loads(Ways(1, 0), 0))
        expected = np.zeros(60, int)
        for ids in walked.dst_ids[part]:
            needed = {int(node) for v in ids for node in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]}
            expected[sorted(needed | {int(v) for v in ids})] += 1
        np.testing.assert_array_equal(found, expected)
        own = loads_of(walked, [part], 60, Loads(Ways(0, 0), 3))
        assert {int(v) for ids in walked.dst_ids[part] for v in ids} == set(np.flatnonzero(own == 3))


@pytest.mark.parametrize("features", ["memory", "direct"])
def test_rows_in_memory_and_rows_read_past_the_page_cache(tmp_path: Path, features: str) -> None:
    options = {"model": "gcn", "keep_first": False, "epochs": EPOCHS, "features": features}
    plain = train_whole(tmp_path / "plain", **options)
    memory = {"device": "20%", "host": "100%"}
    cached = train_whole(tmp_path / "cached", memory=memory, **options)
    assert content(plain)["weights.safetensors"] == content(cached)["weights.safetensors"]
    found, links = counts(cached), ledger_of(cached).bytes_by_link()
    # Beside a table in memory the host caches nothing, and with all rows in memory nothing is read from the disk.
    assert (found["hits_host"] == 0) == (features == "memory") and "disk" not in links and plan_holds(cached)
    assert ("disk" in ledger_of(plain).bytes_by_link()) == (features == "direct")


def test_nodes_without_features_take_no_room(tmp_path: Path) -> None:
    graph = {"featureless": 3}
    options = {"model": "sage", "epochs": EPOCHS, "graph": graph}
    plain = train_whole(tmp_path / "plain", **options)
    cached = train_whole(tmp_path / "cached", memory={"device": "100%", "host": 0}, **options)
    assert content(plain)["weights.safetensors"] == content(cached)["weights.safetensors"]
    record = cached.run_record()["cache"]
    assert record["device_rows"] == NODES - len(range(0, NODES, 3)) and counts(cached)["misses"] == 0


def test_an_automatic_device_leaves_what_a_pass_takes(tmp_path: Path) -> None:
    """Logical devices share the machine's memory, and each holds rows beside a pass."""
    memory, options = {"device": "auto", "host": 0}, {"model": "gcn", "epochs": 1, "keep_first": False}
    write_measured(tmp_path, 1 << 30)
    first = train_whole(tmp_path, 2, 3, memory=memory, **options).run_record()["cache"]
    assert first["device_rows"] == NODES
    total = 2 * (first["simulated_peak_bytes"] * 5 // 4 + 30 * ROW_BYTES) + 7
    write_measured(tmp_path / "small", 4 * total)
    small = train_whole(tmp_path / "small", 2, 3, memory=memory, **options).run_record()["cache"]
    assert (small["device_budget_bytes"] // ROW_BYTES, small["device_rows"]) == (30, 60)


@pytest.mark.parametrize("mode", MODES)
def test_ranks_have_tiers_of_their_own_rows_and_the_bits_of_one_process(tmp_path: Path, mode: str) -> None:
    options = {"mode": mode, "epochs": EPOCHS, "threads": 1, "model": "sage", "dropout": 0.3, "keep_first": False}
    memory = {"device": "10%", "host": "15%"}
    one = train_whole(tmp_path / "one", 4, 3, **options)
    home = tmp_path / "two"
    artifacts = random_graph_artifacts(home)
    build_chunks(home, artifacts.inputs["graph"], 4, 3)
    resolve(home, artifacts, **memory)
    two = run_threads(2, lambda ranks: train_whole(home, 4, 3, ranks=ranks, memory=memory, **options))[0]
    assert content(one)["weights.safetensors"] == content(two)["weights.safetensors"]
    assert plan_holds(two) and counts(two)["hits_device"] > 0 < counts(two)["hits_host"]


@pytest.mark.parametrize("mode", MODES)
def test_a_device_of_its_own_memory_keeps_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    stand_in(monkeypatch)
    options = {"mode": mode, "epochs": EPOCHS, "model": "gcn", "keep_first": False, "device": "cuda"}
    plain = train_whole(tmp_path / "plain", 2, 3, **options)
    for features in ("auto", "memory"):
        memory = {"device": "30%", "host": "100%"}
        cached = train_whole(tmp_path / features, 2, 3, memory=memory, features=features, **options)
        assert content(plain)["weights.safetensors"] == content(cached)["weights.safetensors"]
        assert plan_holds(cached) and counts(cached)["hits_device"] > 0
        before, after = (ledger_of(each).bytes_by_link() for each in (plain, cached))
        ids = 4 * sum(counts(cached).values())  # slots that say where rows are, in place of nothing else
        assert before["h2d"] - after["h2d"] >= counts(cached)["hits_device"] * ROW_BYTES - ids
