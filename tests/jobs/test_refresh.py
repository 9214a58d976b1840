"""A pipeline with all stages, after one value of its tables changed: what is built again, and what stays valid."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.pipeline.steps import Versions, preprocessing_steps, recipe_hash
from graphmill.jobs.launch import Launch, launch
from graphmill.jobs.runs.training import training_steps
from graphmill.trainers.recipe.config import TrainTable
from tests.assets.sources.own_data import Drawn, edge_frame, node_frame
from tests.recipes import PACKED, recipe

pytestmark = [pytest.mark.first, pytest.mark.usefixtures("quick_launches")]

TRAIN = {"layers": 2, "hidden": 4, "epochs": 1}
TABLES: dict[str, Any] = {
    "features": {"dtype": "float16"},
    "sampling": {"fanouts": [3, 3], "batch_size": 16, "reuse": 1},
    **PACKED,
}
STAGES = ("graph", "features", "hotness", "budgets", "samples", "cache_plan", "packed_chunks", "online", "disk")
MODELS = {"online", "disk"}
OF_FEATURES = {"features", "budgets", "cache_plan", "packed_chunks", *MODELS}
OF_SAMPLES = {"hotness", "samples", "cache_plan", "packed_chunks", *MODELS}


@pytest.fixture(autouse=True)
def no_home(monkeypatch):
    monkeypatch.setenv("GRAPHMILL_HOME", "unset-by-the-test")
    monkeypatch.setenv("DAGSTER_HOME", "unset-by-the-test")


def write(folder: Path, form: str) -> Path:
    """Writes tables and a pipeline over them; returns the folder."""
    drawn = Drawn(num_nodes=200, num_edges=900, width=40)
    edge_frame(drawn).write_parquet(folder / "edges.parquet")
    node_frame(drawn).write_parquet(folder / "nodes.parquet")
    graph = {
        "source": "edges",
        "edges": "edges.parquet",
        "nodes": "nodes.parquet",
        "features": "f*",
        "label_column": "y",
    }
    graph |= {"split_column": "part"} if form == "split_column" else {}
    trains = {"name": "online"} | TRAIN, {"name": "disk", "trainer": "disk"} | TRAIN
    (folder / "mine.toml").write_text(recipe(*trains, graph=graph, **TABLES))
    return folder


def versions(folder: Path) -> dict[str, tuple[str, ...]]:
    """Returns step -> the versions that it would have now."""
    pipeline, known = load_pipeline(folder / "mine.toml", TrainTable), Versions()
    data = preprocessing_steps(pipeline, folder / "home")
    return {step.name: known.of(step) for step in [*data, *training_steps(pipeline, data)]}


def run(folder: Path) -> dict[str, str]:
    """Runs the whole pipeline; returns step -> "built" or "reused"."""
    lines: list[str] = []
    launch(
        Launch(
            pipeline=load_pipeline(folder / "mine.toml", TrainTable),
            home=folder / "home",
            report=lines.append,
            in_process=True,
        )
    )
    said = dict(line.split(": ", 1) for line in lines)
    found = {name: text.split()[0] for name, text in said.items() if name in STAGES}
    # A training says itself what it did, on its own output.
    return {name: found.get(name, "built") for name in STAGES}


def first(name, value):
    return pl.when(pl.int_range(pl.len()) == 0).then(value).otherwise(name)


CHANGES = {
    "a feature value": ("nodes", {"f3": first("f3", 9.0)}, OF_FEATURES, OF_FEATURES),
    "an edge": ("edges", {"dst": first("dst", 7)}, {"graph", *OF_SAMPLES}, {"graph", *OF_SAMPLES}),
    # With a column of splits the seeds stay; splits that are drawn by class follow the labels.
    "a label": ("nodes", {"y": first("y", 2)}, {"graph", *MODELS}, {"graph", *OF_SAMPLES}),
    "an id": ("nodes", {"id": pl.Series(np.roll(np.arange(200), 1))}, set(STAGES), set(STAGES)),
}


@contextmanager
def changed(folder: Path, form: str, change: str) -> Iterator[set[str]]:
    """Changes one value in a table for a while; yields the steps that depend on it."""
    file, columns, with_splits, with_drawn_splits = CHANGES[change]
    path = folder / f"{file}.parquet"
    before = path.read_bytes()
    pl.read_parquet(path).with_columns(**columns).write_parquet(path)
    try:
        yield with_splits if form == "split_column" else with_drawn_splits
    finally:
        path.write_bytes(before)


FORMS = ("split_column", "drawn split")


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("form", FORMS)
def test_a_change_gives_new_versions_to_what_it_decides_and_nothing_else(tmp_path, form, change):
    folder = write(tmp_path, form)
    before = versions(folder)
    assert set(before) == set(STAGES)
    with changed(folder, form, change) as wanted:
        now = versions(folder)
    assert {name for name in STAGES if now[name] != before[name]} == wanted
    assert versions(folder) == before


@pytest.mark.parametrize(
    ("form", "changes"),
    [
        ("split_column", ["a label"]),
        *(
            pytest.param(form, list(CHANGES), marks=pytest.mark.slow("runs of whole pipelines after every change"))
            for form in FORMS
        ),
    ],
)
def test_a_run_builds_what_has_a_new_version_and_nothing_else(tmp_path, form, changes):
    folder = write(tmp_path, form)
    assert set(run(folder).values()) == {"built"}
    for change in changes:
        with changed(folder, form, change) as wanted:
            found = run(folder)
        assert {name for name, what in found.items() if what == "built"} == wanted, change
        assert set(run(folder).values()) == {"reused"}, change


@pytest.mark.parametrize("form", FORMS)
def test_keys_of_labels_and_features_mark_no_sample_as_changed(tmp_path, form):
    """What the UI shows as unsynced after an edit of the file is what would be built again."""
    folder = write(tmp_path, form)
    text = (folder / "mine.toml").read_text()

    def hashes(old: str, new: str) -> dict[str, str]:
        (folder / "edited.toml").write_text(text.replace(old, new))
        steps = preprocessing_steps(load_pipeline(folder / "edited.toml", TrainTable), folder / "home")
        return {step.name: recipe_hash(step) for step in steps}

    whole = hashes("", "")
    for old, new, wanted in (
        ('dtype = "float16"', 'dtype = "float32"', OF_FEATURES - MODELS),
        ('label_column = "y"', 'label_column = "y"\nlabels = "names"', {"graph"}),
        ("[sampling]", "[sampling]\nmethod = 'uniform'", set()),
    ):
        changed = {name for name, digest in hashes(old, new).items() if digest != whole[name]}
        if wanted == {"graph"} and form == "drawn split":
            wanted = {"graph", *OF_SAMPLES} - MODELS
        assert changed == wanted
