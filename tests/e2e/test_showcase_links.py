"""The shipped pipeline `showcase-links`: links by every exact technique, models that must be equal are, and near the best ranking."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.names.home import ROOT
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.techniques import TECHNIQUES
from tests.e2e.commands import graphmill
from tests.e2e.test_showcase import train_here

SHIPPED = ROOT / "jobs/pipelines/showcase-links.toml"
SMALLER = {"nodes = 10000": "nodes = 1000", "edges = 100000": "edges = 6000", "batch_size = 2048": "batch_size = 512"}
EQUAL = {"online", "cached", "stored", "disk", "factored"}


def test_exact_techniques_are_in_it_and_each_table_has_a_model_of_its_own() -> None:
    tables = load_pipeline(str(SHIPPED), TrainTable).train
    exact = {name for name, technique in TECHNIQUES.items() if not technique.approximate}
    assert {table.trainer for table in tables} == exact == {"minibatch", "disk", "factored", "distributed", "fullgraph"}
    assert len({table.config for table in tables}) == len(tables)


def scores(path: Path, home: Path) -> dict[str, float]:
    """The test scores of the tables, after a look at what is equal."""
    shown = json.loads(graphmill("leaderboard", str(path), "--json", home=home).stdout)
    assert [{*names} for names in shown["equal_to_the_bit"]] == [EQUAL]
    moved = {row["name"]: row["bytes_per_epoch"] for row in shown["rows"]}
    assert moved["cached"]["mapped"] < moved["online"]["mapped"] and moved["disk"]["disk"] > 0
    assert moved["distributed"]["rank"] > 0
    return {row["name"]: row["test"][0] for row in shown["rows"]}


def test_its_models_are_equal_and_above_chance(tmp_path: Path) -> None:
    text = SHIPPED.read_text()
    for old, new in SMALLER.items():
        assert old in text
        text = text.replace(old, new)
    path, home = tmp_path / "links.toml", tmp_path / "home"
    path.write_text(text)
    train_here(path, home)
    assert all(value > 0.5 for value in scores(path, home).values())


@pytest.mark.slow("the pipeline as it is shipped, by one command")
def test_it_ranks_nearly_as_well_as_can_be(tmp_path: Path) -> None:
    home = tmp_path / "home"
    run = graphmill("run", str(SHIPPED), home=home)
    assert run.returncode == 0, run.stderr
    graph: Any = load_pipeline(str(SHIPPED), TrainTable).graph
    assert scores(SHIPPED, home)["online"] > graph.best_roc_auc - 0.02
