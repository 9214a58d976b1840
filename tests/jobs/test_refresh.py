"""A pipeline with all stages, after one value of its tables changed: what is built again, and what stays valid."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from assets.pipeline.file import load_pipeline
from jobs.launch import Launch, launch
from tests.assets.sources.own_data import Drawn, edge_frame, node_frame
from trainers.config import TrainTable

pytestmark = pytest.mark.first

RECIPE = """
[graph]
source = "edges"
edges = "edges.parquet"
nodes = "nodes.parquet"
features = "f*"
label_column = "y"
SPLIT
[features]
dtype = "float16"
[sampling]
fanouts = [3, 3]
batch_size = 16
reuse = 1
[hotness]
policy = "presample"
rounds = 1
[samples]
[memory]
device = "10%"
host = "20%"
disk = "9x"
[cache_plan]
[packed]
[[train]]
name = "online"
layers = 2
hidden = 4
epochs = 1
[[train]]
name = "disk"
trainer = "disk"
layers = 2
hidden = 4
epochs = 1
"""
STAGES = ("graph", "features", "hotness", "budgets", "samples", "cache_plan", "packed_chunks", "online", "disk")
MODELS = {"online", "disk"}
OF_FEATURES = {"features", "budgets", "cache_plan", "packed_chunks", *MODELS}
OF_SAMPLES = {"hotness", "samples", "cache_plan", "packed_chunks", *MODELS}


@pytest.fixture(autouse=True)
def no_home(monkeypatch):
    monkeypatch.setenv("GRAPHMILL_HOME", "unset-by-the-test")
    monkeypatch.setenv("DAGSTER_HOME", "unset-by-the-test")


@pytest.fixture(scope="module")
def built(request, tmp_path_factory):
    """Tables, a pipeline over them, and a home with all of its artifacts."""
    folder, graph = tmp_path_factory.mktemp("refresh"), Drawn(num_nodes=200, num_edges=900, width=40)
    edge_frame(graph).write_parquet(folder / "edges.parquet")
    node_frame(graph).write_parquet(folder / "nodes.parquet")
    split = 'split_column = "part"' if request.param == "split_column" else ""
    (folder / "mine.toml").write_text(RECIPE.replace("SPLIT", split))
    assert set(run(folder).values()) == {"built"}
    assert set(run(folder).values()) == {"reused"}
    return folder, request.param


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


CASES = [
    # How splits are made tells for labels only.
    pytest.param(form, change, marks=[pytest.mark.slow] if form == "drawn split" and change != "a label" else [])
    for form in ("split_column", "drawn split")
    for change in CHANGES
]


@pytest.mark.parametrize(("built", "change"), CASES, indirect=["built"])
def test_a_change_rebuilds_what_it_decides_and_nothing_else(built, change):
    folder, form = built
    file, columns, with_splits, with_drawn_splits = CHANGES[change]
    path = folder / f"{file}.parquet"
    before = path.read_bytes()
    pl.read_parquet(path).with_columns(**columns).write_parquet(path)
    try:
        found = run(folder)
    finally:
        path.write_bytes(before)
    rebuilt = with_splits if form == "split_column" else with_drawn_splits
    assert {name for name, what in found.items() if what == "built"} == rebuilt
    assert set(run(folder).values()) == {"reused"}


@pytest.mark.parametrize("built", ["split_column", "drawn split"], indirect=True)
def test_keys_of_labels_and_features_mark_no_sample_as_changed(built):
    """What the UI shows as unsynced after an edit of the file is what would be built again."""
    from assets.pipeline.data_steps import preprocessing_steps
    from assets.pipeline.steps import recipe_hash

    folder, form = built
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
