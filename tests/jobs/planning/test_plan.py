"""`graphmill plan`: every technique is compared or refused with a reason, the written file validates, and errors of runs are listed."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from assets.building.needs import Sizes
from assets.pipeline.file import load_pipeline, parse_pipeline
from jobs.cli import graphmill
from jobs.commands import plan as plan_command
from jobs.operations import rates
from jobs.planning.graph import scaled_sizes, stand_in
from jobs.planning.plan import Planned, TechniquePlan
from jobs.planning.variants import Room, Variant, variants
from tests.recipes import recipe, sbm
from tests.trainers.runs import train_small
from trainers.recipe.config import TrainTable
from trainers.recipe.forecast import Forecast, Speeds
from trainers.recipe.techniques import TECHNIQUES, find_technique

SPEEDS = Speeds(
    step={1: 4e-3, 2: 3e-3}, draw={1: 1e-3, 2: 1e-3}, gather={1: 1e-3, 2: 1e-3}, prune=1e-4, edges=500, inputs=200,
    layers={1: 0.05}, disk_rate=1e9, copy_rate=4e9, call=1e-4, rank_rate=1e9,
)  # fmt: skip
TRAIN: dict[str, Any] = {"name": "sage", "hidden": 8, "epochs": 2}
TEXT = recipe(TRAIN, graph=sbm(), sampling={"fanouts": [4, 3], "batch_size": 64})
ROOM = Room(host=1 << 20, disk="3x", cores=2)


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speeds are given, so that no test waits for them or depends on them."""
    monkeypatch.setattr(rates, "_measured", lambda home: iter([(rates.COPY, 4e9), (rates.DISK, 1e9)]))
    monkeypatch.setattr("trainers.training.speeds.measure_speeds", lambda *given: SPEEDS)


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(graphmill, ["--home", *map(str, arguments)])


def planned(folder: Path, text: str = TEXT, *more: str) -> dict[str, Any]:
    (folder / "mine.toml").write_text(text)
    done = run(folder / "home", "plan", folder / "mine.toml", "--json", *more)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_every_technique_is_compared_before_anything_is_built(tmp_path: Path) -> None:
    found = planned(tmp_path)
    assert {row["trainer"] for row in found["rows"]} == set(TECHNIQUES) and not found["graph_is_built"]
    for row in found["rows"]:
        assert row["refused"] is None and row["memory_bytes"] > 100 << 20 and row["epoch_seconds"] > 0, row["name"]
        assert row["own"] == (row["name"] == "sage")
    by_name = {row["name"]: row for row in found["rows"]}
    assert {"samples", "cache_plan", "packed_chunks"} <= by_name["disk"]["prepare_seconds"].keys()
    assert (
        by_name["sage"]["prepare_seconds"].keys() == {"features", "graph"} and by_name["sage"]["paid_back_epochs"] == 0
    )
    assert found["chosen"] in by_name and "[[train]]" in found["tables"]
    assert not (tmp_path / "home" / "artifacts" / "graph").exists()


def test_the_written_file_validates_and_replaces_nothing_unasked(tmp_path: Path) -> None:
    planned(tmp_path)
    out = tmp_path / "other" / "chosen.toml"
    out.parent.mkdir()
    again = run(tmp_path / "home", "plan", tmp_path / "mine.toml", "--write", out)
    assert again.exit_code == 0 and "take " in again.output, again.output
    pipeline = load_pipeline(out, TrainTable, files=True)
    assert (
        pipeline.name == "chosen"
        and len(pipeline.train) == 1
        and pipeline.graph == load_pipeline(tmp_path / "mine.toml").graph
    )
    refused = run(tmp_path / "home", "plan", tmp_path / "mine.toml", "--write", tmp_path / "mine.toml")
    assert refused.exit_code and "is there already" in str(refused.exception)
    assert (tmp_path / "mine.toml").read_text() == TEXT
    assert run(tmp_path / "home", "plan", tmp_path / "mine.toml", "--write", out, "--overwrite").exit_code == 0


def test_a_refused_technique_has_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(recipe(TRAIN | {"norm": "batch"}, graph=sbm(), sampling={"fanouts": [4, 3], "batch_size": 64}))
    found = {each.technique.name: each for each in variants(load_pipeline(path, TrainTable), ROOM)}
    assert "batch" in found["distributed"].refused and found["distributed"].pipeline is None
    assert found["minibatch"].own and not found["minibatch"].refused


def test_the_file_of_a_variant_has_what_its_technique_needs(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT)
    for each in variants(load_pipeline(path, TrainTable), ROOM):
        assert each.pipeline is not None, each.refused
        again = parse_pipeline(path, each.pipeline.text.encode(), TrainTable)
        assert [table.trainer for table in again.train] == [each.technique.name]
        assert set(each.table.needs) <= set(again.tables)
        assert tomllib.loads(each.pipeline.text)["train"][0]["hidden"] == 8


def row(name: str, trainer: str, seconds: float, preparing: float = 0.0, *, fits: bool = True) -> Planned:
    return Planned(
        variant=Variant(name=name, technique=find_technique(trainer), own=True),
        forecast=Forecast(memory={"all": 1 << 30}, epoch_seconds=seconds),
        fits=fits,
        stages={"samples": preparing, "graph": 100.0} if preparing else {},
        epochs=10,
    )


def test_preparation_is_paid_back_by_the_seconds_that_an_epoch_spares(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(TEXT)
    pipeline = load_pipeline(tmp_path / "mine.toml", TrainTable)
    rows = [
        row("online", "minibatch", 5.0),
        row("disk", "disk", 3.0, preparing=12.0),
        row("slow", "factored", 6.0, 1.0),
    ]
    found = TechniquePlan(pipeline=pipeline, rows=rows, memory_bytes=1 << 34, built=True)
    assert [found.paid_back(each) for each in rows] == [0.0, 6.0, None]
    assert found.chosen is rows[1], "42 s against 50 s"
    nearly = replace(found, rows=[row("online", "minibatch", 5.0), row("disk", "disk", 4.6)])
    assert nearly.chosen is nearly.rows[0], "about as long: the file's order decides"
    small = replace(
        found, rows=[replace(rows[0], fits=False), replace(rows[1], fits=False), row("fresh", "fresh", 1.0)]
    )
    assert small.chosen is small.rows[2], "approximate embeddings are taken only if nothing else fits"
    assert replace(found, rows=[]).chosen is None
    assert "no training fits" in "\n".join(plan_command.plan_lines(replace(found, rows=[])))


def test_a_large_graph_is_stood_in_for_by_one_with_as_many_edges_per_node() -> None:
    sizes = Sizes(num_nodes=1000, num_edges=8000, num_train=100, num_classes=3, num_rows=1000, width=8, row_bytes=32)
    graph = stand_in(sizes, 1, None).graph
    assert (graph.topology.num_nodes, graph.topology.num_edges, len(graph.train_ids)) == (1000, 8000, 100)
    large = scaled_sizes(replace(sizes, num_nodes=10**9, num_edges=8 * 10**9, num_train=10**8))
    assert large.num_edges == 8 * 10**6 and large.num_nodes == 10**6 and large.num_train == 10**5


def test_errors_of_runs_are_listed(tmp_path: Path) -> None:
    assert "no run of this home" in run(tmp_path / "home", "plan", "--check").output
    train_small(tmp_path / "home", asked_by="mine/sage")
    listed = run(tmp_path / "home", "plan", "--check", "--json")
    (found,) = json.loads(listed.output)
    assert found["asked_by"] == "mine/sage" and found["trainer"] == "minibatch" and found["seconds"] is None
    assert found["links"]["h2d"] == pytest.approx(1, abs=0.05)
    assert found["memory"] > 0  # the peak is that of this whole process, whatever ran in it before
    printed = run(tmp_path / "home", "plan", "--check")
    assert printed.exit_code == 0 and "mine/sage" in printed.output and "predicted / measured" in printed.output


def test_a_pipeline_must_be_named(tmp_path: Path) -> None:
    assert "no pipeline is named" in str(run(tmp_path, "plan").exception)


def test_measured_speeds_are_kept_for_the_runs(tmp_path: Path) -> None:
    planned(tmp_path)
    assert list((tmp_path / "home" / "measured" / "pieces").glob("*.json"))
