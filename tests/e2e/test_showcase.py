"""The shipped pipeline `showcase`: every technique on one graph, and models that must be equal are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.names.home import ROOT
from graphmill.trainers.__main__ import train
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.order import Order
from graphmill.trainers.recipe.techniques import TECHNIQUES
from tests.e2e.commands import graphmill

SHIPPED = ROOT / "jobs/pipelines/showcase.toml"
SMALLER = {
    "nodes = 150000": "nodes = 4000",
    "edges = 1500000": "edges = 40000",
    "epochs = 6": "epochs = 2",
    "epochs = 30": "epochs = 2",
}
GROUPS = (
    {"fresh", "fresh-factored"},
    {"fullgraph", "fullgraph-ranks"},
    {"distributed", "distributed-stored", "distributed-packed"},
    {"fresh-distributed", "fresh-stored"},
)
"""Tables with equal bits, besides those that train on mini-batches in one process."""


def test_every_technique_is_in_it_and_each_table_has_a_model_of_its_own() -> None:
    tables = load_pipeline(str(SHIPPED), TrainTable).train
    assert {table.trainer for table in tables} == set(TECHNIQUES)
    assert len({table.config for table in tables}) == len(tables)


def train_here(path: Path, home: Path) -> None:
    """Builds the data and trains in this process, which spares ten others that load torch."""
    built = graphmill("build", str(path), home=home)
    assert built.returncode == 0, built.stderr
    pipeline = load_pipeline(str(path), TrainTable)
    for table in pipeline.train:
        train(Order(pipeline=pipeline, table=table.name, home=home, resume=False, epoch_lines="none"))


def run_command(path: Path, home: Path) -> None:
    """Runs it as users do."""
    run = graphmill("run", str(path), home=home)
    assert run.returncode == 0, run.stderr
    assert sum(line.startswith("Equal to the bit") for line in run.stdout.splitlines()) == 1 + len(GROUPS)


@pytest.mark.first
@pytest.mark.parametrize(
    "run",
    [
        train_here,
        pytest.param(run_command, marks=pytest.mark.slow("the pipeline by one command, each training a process")),
    ],
)
def test_its_models_are_equal_and_moved_what_they_say(tmp_path: Path, run: Callable[[Path, Path], None]) -> None:
    text = SHIPPED.read_text()
    for old, new in SMALLER.items():
        assert old in text
        text = text.replace(old, new)
    path, home = tmp_path / "showcase.toml", tmp_path / "home"
    path.write_text(text)
    run(path, home)
    board = graphmill("leaderboard", str(path), home=home).stdout
    equal = [line for line in board.splitlines() if line.startswith("Equal to the bit")]
    tables = load_pipeline(str(path), TrainTable).train
    apart = {table.name for table in tables if table.technique.own_shards or table.technique.approximate}
    whole = {table.name for table in tables if table.technique.whole_graph} - apart
    names = {table.name for table in tables} - whole - apart
    groups = {frozenset(line.rstrip(".").partition(": ")[2].split(" = ")) for line in equal}
    assert groups == {frozenset(each) for each in (names, *GROUPS)}
    shown = json.loads(graphmill("leaderboard", str(path), "--json", home=home).stdout)
    moved = {row["name"]: row["bytes_per_epoch"] for row in shown["rows"]}
    assert set(moved) == names | whole | apart and {frozenset(each) for each in shown["equal_to_the_bit"]} == groups
    assert shown["one_model"] == []
    # Every way delivers the same rows: what it took from the device's cache and what crossed the link are one sum.
    delivered = {name: moved[name]["h2d"] + moved[name].get("d2d", 0) for name in names}
    assert max(delivered.values()) - min(delivered.values()) <= 1, delivered
    # Embeddings of earlier steps spare rows, and feature rows of the arena cross no link.
    assert moved["fresh"]["h2d"] < moved["online"]["h2d"] and moved["fresh"]["d2d"] > 0
    assert moved["cached"] == moved["stored"] and moved["cached"]["mapped"] < moved["online"]["mapped"]
    # Rows that are packed for the batches of each part leave nothing to be exchanged but gradients and labels.
    assert moved["distributed-packed"]["rank"] < moved["distributed"]["rank"] == moved["distributed-stored"]["rank"]
    assert moved["distributed-packed"]["disk"] > 0 and "disk" not in moved["distributed"]
    assert set(moved["memory"]) == {"h2d"} and set(moved["disk"]) == {"disk", "h2d", "d2d"}
    assert all(row["peak_memory_bytes"] > 0 and row["epoch_seconds"] > 0 for row in shown["rows"])
    page = report_of(path, home)
    # The curves of equal results are one.
    assert {f"{' = '.join(names)}: " in page for names in shown["equal_to_the_bit"]} == {True}
    assert all(f'id="timeline-{name}-title"' in page for name in moved)
    for what in ("loss-over-epochs", "score-over-seconds", "hit-rates", "tiers", "links", "memory", "quality"):
        assert f'data-save="{what}.svg"' in page, what


def report_of(path: Path, home: Path) -> str:
    """Writes the report of all techniques; returns the page."""
    out = home.parent / "report.html"
    done = graphmill("report", str(path), "--out", str(out), home=home)
    assert done.returncode == 0, done.stderr
    assert out.stat().st_size < 5_000_000
    return out.read_text()
