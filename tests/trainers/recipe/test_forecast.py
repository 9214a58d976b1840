"""Forecasts of tiny trainings against what their ledgers and records say afterwards; speeds that the home keeps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assets.building.needs import Sizes
from assets.building.stage import Silent
from assets.sampling.config import SamplingConfig
from assets.storage.artifact import Artifact
from jobs.planning.graph import stand_in
from kernels.sampling.epoch_plan import EpochPlan
from kernels.sampling.sample import Sampler
from tests.assets.packed_chunks.packed import build_packed
from tests.trainers.ranks.threads import run_threads
from tests.trainers.runs import content, parts_inputs, train_fresh, train_packed, train_parts, train_small, train_whole
from trainers.recipe.config import ModelConfig, TrainTable
from trainers.recipe.drawn import draw_batches, pages_of
from trainers.recipe.forecast import Speeds
from trainers.recipe.kept_speeds import keep_speeds, kept_speeds, speeds_path
from trainers.record.ledger import Ledger


def predicted(model: Artifact) -> dict[str, Any]:
    return model.run_record()["prediction"]


def moved(model: Artifact) -> dict[str, float]:
    epochs = model.summary["numbers"]["epochs_run"]
    links = Ledger.from_rows(json.loads(model.file("ledger.json").read_text())).bytes_by_link()
    return {link: num_bytes / epochs for link, num_bytes in links.items() if num_bytes}


def test_a_minibatch_training_moves_what_drawn_batches_say(tmp_path: Path) -> None:
    """Behind a cache each row comes from one place, and all places together from the drawn batches."""
    cached = {"device": "10%", "host": "20%", "seed": 3}
    for memory in (None, cached):
        model = train_small(tmp_path, epochs=2, samplers=1, memory=memory, retrain=True)
        found, counted = predicted(model), moved(model)
        assert found["bytes_per_epoch"].keys() == counted.keys()
        for link, num_bytes in counted.items():
            assert found["bytes_per_epoch"][link] == pytest.approx(num_bytes, rel=0.05), (link, memory)
        assert found["memory_bytes"] > 100 << 20 and found["epoch_seconds"] is None and not found["exact"]


def test_stored_batches_are_forecast_to_the_byte(tmp_path: Path) -> None:
    packed = build_packed(tmp_path, epochs=2)
    for trainer, options in (("disk", {}), ("minibatch", {"samples": "stored"})):
        keys: dict[str, Any] = {"epochs": 4} | options
        model = train_packed(packed, tmp_path, trainer, **keys)
        assert predicted(model)["bytes_per_epoch"] == moved(model), trainer
    assert not predicted(model)["exact"] and predicted(train_packed(packed, tmp_path, epochs=2))["exact"]


@pytest.mark.parametrize(("mode", "model"), [("p2p+reuse", "sage"), ("vanilla", "gcn"), ("p2p", "gat")])
def test_a_full_graph_epoch_is_forecast_to_the_byte(tmp_path: Path, mode: str, model: str) -> None:
    trained = train_whole(tmp_path, mode=mode, model=model, epochs=2, input_dropout=0.5 if model == "gcn" else 0.0)
    found = predicted(trained)
    assert found["exact"] and found["bytes_per_epoch"] == moved(trained)


def test_rows_of_other_ranks_are_forecast_from_parts(tmp_path: Path) -> None:
    parts_inputs(tmp_path, 2)
    model = run_threads(2, lambda rank: train_parts(tmp_path, 2, rank, accumulate=1))[0]
    found, counted = predicted(model)["bytes_per_epoch"], moved(model)
    assert found.keys() == counted.keys() and "rank" in counted
    for link, num_bytes in counted.items():
        assert found[link] == pytest.approx(num_bytes, rel=0.05), link


def test_rows_without_columns_are_not_exchanged(tmp_path: Path) -> None:
    parts_inputs(tmp_path, 2, width=0)
    model = run_threads(2, lambda rank: train_parts(tmp_path, 2, rank, accumulate=1, width=0))[0]
    assert predicted(model)["bytes_per_epoch"] == moved(model)


def test_a_history_spares_about_what_the_rates_of_visits_say(tmp_path: Path) -> None:
    model = train_fresh(tmp_path, epochs=8, fresh={"t_stale": 6, "arena": "60%"}, accumulate=1)
    counts = {
        row["name"]: row["n"] for row in json.loads(model.file("ledger.json").read_text())["counts"] if row["layer"] < 2
    }
    assert counts["history_hits"] > 100, "the history is used"
    found, counted = predicted(model)["bytes_per_epoch"], moved(model)
    assert found["h2d"] == pytest.approx(counted["h2d"], rel=0.15)


def test_speeds_are_kept_and_a_damaged_file_counts_as_none(tmp_path: Path) -> None:
    path, speeds = tmp_path / "home" / "pieces.json", Speeds(step={1: 0.5, 4: 0.25}, copy_rate=1e9)
    assert kept_speeds(path) is None
    keep_speeds(path, speeds)
    assert kept_speeds(path) == speeds
    assert [speeds.at("step", threads) for threads in (1, 2, 3, 64)] == [0.5, 0.5, 0.25, 0.25]
    path.write_bytes(path.read_bytes().replace(b"0.25", b"0.75"))
    assert kept_speeds(path) is None


def test_speeds_of_a_stand_in_are_not_those_of_the_built_graph(tmp_path: Path) -> None:
    sizes = Sizes(num_nodes=1000, num_edges=8000, num_classes=3, width=8, row_bytes=32)
    semantic = ModelConfig(seed=1, train=TrainTable(name="sage").config, sampling=SamplingConfig(fanouts=(4, 3)))
    others = (replace(sizes, num_classes=4), replace(sizes, num_nodes=10**6))
    paths = {speeds_path(tmp_path, semantic, each, built=True) for each in (sizes, *others)}
    paths.add(speeds_path(tmp_path, semantic, sizes, built=False))
    assert len(paths) == 4
    assert speeds_path(tmp_path, semantic, replace(sizes, num_nodes=1001), built=True) in paths, "a little larger"


def test_drawing_stops_after_some_seconds() -> None:
    sizes = Sizes(num_nodes=100, num_edges=800, num_train=8, num_classes=2)
    topology = stand_in(sizes, 1, None).graph.topology
    plan, sampler = EpochPlan(np.arange(8, dtype=np.int32), 1, seed=0), Sampler(topology, (2,), seed=0)
    assert len(draw_batches(plan, sampler).blocks) == 8
    assert len(draw_batches(plan, sampler, most_seconds=0).blocks) == 1


def test_pages_of_rows_are_counted_once() -> None:
    assert pages_of(np.array([0, 1, 2]), 1024) == 4096
    assert pages_of(np.array([0, 3, 4]), 1024) == 2 * 4096
    assert pages_of(np.array([0, 1]), 3000) == 2 * 4096  # the second row ends in the second page
    assert pages_of(np.array([], np.int64), 1024) == pages_of(np.array([7]), 0) == 0


def test_a_prediction_that_fails_is_told_and_ends_no_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any) -> None:
        raise ZeroDivisionError("a formula")

    class Told(Silent):
        def tell(self, line: str) -> None:
            told.append(line)

    told: list[str] = []
    plain = train_small(tmp_path / "plain", epochs=1)
    monkeypatch.setattr("trainers.training.stage.open_outlook", fails)
    model = train_small(tmp_path / "failed", epochs=1, progress=Told())
    assert "no prediction was recorded: ZeroDivisionError: a formula" in told
    assert predicted(plain) and not predicted(model)
    assert content(model) == content(plain)
