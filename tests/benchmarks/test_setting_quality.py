"""Scores of settings beside plain sampling: what changes nothing differs by nothing, and harm is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.paired import paired
from benchmarks.payoff import FOLDER
from benchmarks.setting_quality import (
    ALL_ADMITTED,
    CASES,
    LIMIT,
    PLAIN,
    SETTINGS,
    Case,
    Setting,
    Trainings,
    case_of,
    fresh,
    measured,
    shipped,
    told,
)
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.store import Store
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.techniques.fresh.settings import FreshSettings

GRAPH = {"nodes": 600, "edges": 4_000, "features": 16, "classes": 4, "noise": 3.0, "p_in": 0.8}


@pytest.fixture
def case() -> Case:
    graph = config_class("sbm")(**GRAPH, undirected=True, train_ratio=0.4, valid_ratio=0.1)
    keys = {"hidden": 16, "epochs": 4, "eval": "exact", "eval_every": 0, "threads": 1, "lr": 0.02}
    return Case(graph=graph, sampling=SamplingConfig(fanouts=(4, 4), batch_size=20), keys=keys)


def test_differences_are_paired_by_seed() -> None:
    assert paired([90.0, 80.0, 85.0], [89.0, 79.0, 84.0]) == {
        "difference": -1.0,
        "standard_error": 0.0,
        "half_interval": 0.0,
    }
    # Differences of 0, 1 and -2: a deviation of 1.5275, over sqrt(3), times 4.303.
    spread = paired([90.0, 80.0, 85.0], [90.0, 81.0, 83.0])
    assert spread == {"difference": -0.333, "standard_error": 0.882, "half_interval": 3.795}


def test_what_changes_nothing_differs_by_nothing_and_harm_is_found(case: Case, tmp_path: Path) -> None:
    settings = {
        "nothing kept": fresh(FreshSettings(t_stale=0)),
        "untrained": Setting(keys={"lr": 1e-9}),
        "stored": fresh(FreshSettings(**ALL_ADMITTED, t_stale=6, lookahead=1), reuse=1),
    }
    row = measured(Store(tmp_path), case, settings, 2)
    nothing, untrained, stored = row["settings"]
    assert nothing["scores"] == row[PLAIN] and nothing["held"] and nothing["shown"] and nothing["saving"] == 0
    assert not nothing["changed"] and untrained["changed"] and stored["changed"]
    assert untrained["difference"] < -10 and not untrained["held"] and "LOST" in told(untrained)
    assert stored["saving"] > 0.1 and row["steps"] == 12


def test_the_library_the_samples_and_the_parts_of_a_setting_reach_the_training(case: Case, tmp_path: Path) -> None:
    trainings = Trainings(Store(tmp_path), case)
    plain, other = trainings.model(Setting(), 0), trainings.model(SETTINGS["other products"], 0)
    names = [model.run_record()["products"] for model in (plain, other)]
    assert sorted(names) == ["blas", "onednn"]
    assert trainings.sampling(Setting(reuse=2)).reuse == 2
    assert trainings.sampling(Setting(parts=2)).batch_size == 10
    assert trainings.model(Setting(parts=2), 0).config["train"]["trainer"] == "distributed"
    assert trainings.table(SETTINGS["half the epochs"]).epochs == 2


def test_the_score_counts_validation_and_test_nodes(case: Case, tmp_path: Path) -> None:
    trainings = Trainings(Store(tmp_path), case)
    model = trainings.model(Setting(), 0)
    numbers, opened = model.summary["numbers"], trainings.graph.open()
    right = numbers["valid_accuracy"] * len(opened.valid_ids) + numbers["test_accuracy"] * len(opened.test_ids)
    every = len(opened.valid_ids) + len(opened.test_ids)
    assert trainings.score(model) == pytest.approx(100 * right / every, abs=1e-3)


def test_the_shipped_setting_is_that_of_the_pipeline() -> None:
    pipeline, setting = load_pipeline(FOLDER / "link.toml", TrainTable), shipped()
    (table,) = (each for each in pipeline.train if each.trainer == "fresh")
    settings = setting.keys["settings"]
    for name in ("p_grad", "t_stale", "stabilise", "lookahead"):
        assert getattr(settings, name) == getattr(table.settings, name)
    assert settings.policy == "accuracy" and setting.reuse == pipeline.sampling.reuse and LIMIT == 0.3


def test_each_graph_has_about_a_hundred_steps_an_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHMILL_TEST_DATA", str(tmp_path))
    for name in CASES:
        full, quick = case_of(name), case_of(name, quick=True)
        assert full.keys["epochs"] == 4 * quick.keys["epochs"] and full.sampling == quick.sampling
        if name != "photo":
            steps = full.graph.nodes * full.graph.train_ratio / full.sampling.batch_size  # pyright: ignore
            assert 90 <= steps <= 110
