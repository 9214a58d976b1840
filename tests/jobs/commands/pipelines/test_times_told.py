"""Bad times and rows of edges: `validate` and `build` say the same sentence, once, whatever the source and wherever the fault is."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from graphmill.assets.graph.times import EARLY
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.jobs.commands.options import Asked
from graphmill.jobs.commands.pipelines.checked import PipelineReport, load_checked, require_runnable
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.inputs import find_table_inputs
from tests.assets.graph.test_times import Events
from tests.laws.made import Made
from tests.recipes import recipe

FORMS = ("npz", "pyg", "dgl", "edges", "edges.csv", "tables")
SEEDS = 2


def plain(value: Any) -> Any:
    """Keys as a pipeline file has them."""
    if is_dataclass(value):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
        value = {name: each for name, each in value.items() if name in (*COLUMNS, "path", "source_type", "target_type")}
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items() if each is not None}
    return str(value) if isinstance(value, Path) else value


COLUMNS = ("time_column", "label_column", "split_column", "features")


def written(events: Events, form: str, folder: Path, rows: Any = None, **sampling: Any) -> Path:
    """Writes a graph and a pipeline over it; with rows f32[n, F] of edges they are read, too."""
    if form == "dgl":
        dgl = pytest.importorskip("dgl")
        graph = dgl.graph(tuple(map(torch.from_numpy, events.ends)), num_nodes=events.num_nodes)
        graph.edata["time"] = torch.from_numpy(events.time)
        parts = {name: events.part == n for n, name in enumerate(("train_mask", "val_mask", "test_mask"))}
        given = {"feat": events.x, "label": events.label, "seen": events.node_time, **parts}
        graph.ndata.update({name: torch.from_numpy(np.asarray(each)) for name, each in given.items()})
        dgl.save_graphs(str(folder / "g.dgl"), [graph])
        keys: dict[str, Any] = {"source": "dgl", "path": folder / "g.dgl", "time": "time", "node_time": "seen"}
    else:
        keys = events.write(form, folder)
    train: dict[str, Any] = {"name": "x", "layers": 1, "epochs": 1, "hidden": 4, "eval": "sampled", "threads": 1}
    tables: dict[str, Any] = {"sampling": {"fanouts": [2], "batch_size": 8, "before": "seed", **sampling}}
    if rows is not None:
        np.save(folder / "rows.npy", rows)
        tables, train = tables | {"features": {"edges": {"file": "rows.npy"}}}, train | {"edge_features": True}
    path = folder / "mine.toml"
    path.write_text(recipe(train, graph=plain(keys), **tables))
    return path


def validated(path: Path) -> PipelineReport:
    home = path.parent / "home"
    return require_runnable(load_checked(Asked(str(path)), home), home)


def built(path: Path) -> Artifact:
    (path.parent / "home").mkdir(exist_ok=True)
    made = Made(path.parent / "home")
    pipeline = load_pipeline(path, TrainTable)
    made.build(pipeline)
    return find_table_inputs(pipeline, pipeline.train[0], made.store, {}).inputs["graph"]


def require_told_once(path: Path, said: str) -> None:
    """Both commands refuse the pipeline by one sentence, which is the same."""
    sentences = []
    for action in (validated, built):
        with pytest.raises(InputError, match=said) as told:
            action(path)
        assert "mistakes" not in str(told.value)
        sentences.append(told.value.problem)
    assert sentences[0].split(": ", 1)[-1] in sentences[1] or sentences[1] in sentences[0]


def two_units(events: Events, rng: np.random.Generator) -> None:
    """Some or all times of edges, or those of seeds, are of a unit a thousand or a million times as small."""
    events.time, events.node_time = 1.7e9 + events.time, 1.7e9 + events.node_time
    factor, which = 1000.0 ** rng.integers(1, 3), rng.integers(3)
    if which == 0:
        events.node_time *= factor
    elif which == 1:
        events.time *= factor
    else:
        events.time[rng.random(len(events.time)) < 0.3] *= factor


def damaged(what: str, seed: int) -> tuple[Events, str]:
    """A graph with a fault at a drawn place, and what is to be said of it."""
    events, rng = Events(seed), np.random.default_rng(seed)
    if what == "edge":
        place = int(rng.integers(len(events.time)))
        events.time[place] = rng.choice([np.nan, np.inf, -np.inf])
        return events, f"edge {place} is -?(nan|inf)|'when' (is empty|holds '?-?(nan|inf))|neither a number nor a time"
    if what == "seed":
        place = int(rng.choice(np.flatnonzero(events.part < 3)))
        events.node_time[place] = np.nan
        return events, f"node {place} is a seed and has no time; 1 of 15 seeds have none"
    two_units(events, rng)
    return events, "times are of two units: those of .* edges and .* seeds are below"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("what", ["edge", "seed", "two units"])
def test_bad_times_are_told_by_validate_as_by_a_build(tmp_path: Path, form: str, seed: int, what: str) -> None:
    events, said = damaged(what, seed)
    require_told_once(written(events, form, tmp_path), said)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_rows_of_edges_fewer_or_more_than_edges_are_told_with_both_numbers(
    tmp_path: Path, form: str, seed: int
) -> None:
    events, rng = Events(seed), np.random.default_rng(seed)
    count = len(events.time)
    rows = rng.random((int(rng.integers(0, 2 * count)), 3)).astype(np.float32)
    require_told_once(written(events, form, tmp_path, rows), f"{len(rows):,} rows for {count:,} edges")


@pytest.mark.parametrize("form", FORMS)
def test_a_seed_before_every_edge_is_said_and_not_refused(tmp_path: Path, form: str) -> None:
    events = Events(3)
    early = np.random.default_rng(4).choice(np.flatnonzero(events.part < 3), 2, replace=False)
    events.node_time[early] = events.time.min() - 5
    path = written(events, form, tmp_path)
    said = "2 of 15 seeds are not later than the earliest edge, and have no neighbours"
    assert said in validated(path).survey.notes
    (check,) = [each for each in built(path).summary["checks"] if each["name"] == EARLY]
    assert not check["passed"] and check["detail"] == said


@pytest.mark.parametrize("window", [0, -3.5, "0d", "0.0 h"])
def test_a_window_without_time_is_told_by_validate(tmp_path: Path, window: Any) -> None:
    path = written(Events(1), "npz", tmp_path, window=window)
    require_told_once(path, rf"window = {window}.* has no time in it: give a length above 0".replace(".0 h", r"\.0 h"))


def test_sound_times_are_valid_whatever_writes_them(tmp_path: Path) -> None:
    for form in FORMS:
        folder = tmp_path / form
        folder.mkdir()
        events = Events(2)
        path = written(events, form, folder, np.ones((len(events.time), 2), np.float32))
        assert not validated(path).survey.problems
        built(path)
    assert pl.read_parquet(tmp_path / "edges" / "edges.parquet").height == len(events.time)
