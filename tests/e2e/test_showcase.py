"""The shipped pipeline `showcase`: every technique on one graph, and models that must be equal are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assets.pipeline.file import load_pipeline
from assets.storage.home import ROOT
from tests.e2e.commands import graphmill
from trainers.config import TrainTable
from trainers.techniques import TECHNIQUES

SHIPPED = ROOT / "jobs/pipelines/showcase.toml"
SMALLER = {
    "nodes = 150000": "nodes = 4000",
    "edges = 1500000": "edges = 40000",
    "epochs = 6": "epochs = 2",
    "epochs = 30": "epochs = 2",
}


def test_every_technique_is_in_it_and_each_table_has_a_model_of_its_own() -> None:
    tables = load_pipeline(str(SHIPPED), TrainTable).train
    assert {table.trainer for table in tables} == set(TECHNIQUES)
    assert len({table.config for table in tables}) == len(tables)


@pytest.mark.first
def test_its_models_are_equal_and_moved_what_they_say(tmp_path: Path) -> None:
    text = SHIPPED.read_text()
    for old, new in SMALLER.items():
        assert old in text
        text = text.replace(old, new)
    path, home = tmp_path / "showcase.toml", tmp_path / "home"
    path.write_text(text)
    run = graphmill("run", str(path), home=home)
    assert run.returncode == 0, run.stderr
    (equal,) = [line for line in run.stdout.splitlines() if line.startswith("Equal to the bit")]
    tables = load_pipeline(str(path), TrainTable).train
    whole, names = ({table.name for table in tables if table.technique.whole_graph is each} for each in (True, False))
    assert set(equal.rstrip(".").partition(": ")[2].split(" = ")) == names
    shown = json.loads(graphmill("leaderboard", str(path), "--json", home=home).stdout)
    moved = {row["name"]: row["bytes_per_epoch"] for row in shown["rows"]}
    assert set(moved) == names | whole and set(shown["equal_to_the_bit"][0]) == names and shown["one_model"] == []
    # Every way delivers the same rows: what it took from the device's cache and what crossed the link are one sum.
    delivered = {name: moved[name]["h2d"] + moved[name].get("d2d", 0) for name in names}
    assert max(delivered.values()) - min(delivered.values()) <= 1, delivered
    assert moved["cached"] == moved["stored"] and moved["cached"]["mapped"] < moved["online"]["mapped"]
    assert set(moved["memory"]) == {"h2d"} and set(moved["disk"]) == {"disk", "h2d", "d2d"}
    assert all(row["peak_memory_bytes"] > 0 and row["epoch_seconds"] > 0 for row in shown["rows"])
