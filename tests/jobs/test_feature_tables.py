"""Several feature tables in one pipeline: what each training reads, one pass for all of them, and mistakes with their line."""

from pathlib import Path

import dagster as dg
import numpy as np
import pytest

from graphmill.assets.definitions import Surroundings
from graphmill.assets.features.read import open_features
from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.pipeline.steps import preprocessing_steps
from graphmill.assets.storage.store import Store
from graphmill.jobs.definitions import build_defs
from graphmill.jobs.launch import Launch, launch
from graphmill.jobs.runs.training import training_steps
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from tests.assets.sources.own_data import Drawn, write_parquet

pytestmark = pytest.mark.usefixtures("quick_launches")

RECIPE = """
[graph]
source = "edges"
edges = "edges-*.parquet"
nodes = "nodes.parquet"
features = "x"
label_column = "y"
split_column = "part"
[features]
dtype = "float16"
[features.text]
file = "text.npy"
[sampling]
fanouts = [3]
batch_size = 16
[[train]]
name = "on-x"
layers = 1
hidden = 4
epochs = 1
[[train]]
name = "on-text"
feature_table = "text"
layers = 1
hidden = 4
epochs = 1
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("GRAPHMILL_HOME", "DAGSTER_HOME"):
        monkeypatch.setenv(name, "unset-by-the-test")
    write_parquet(tmp_path, Drawn())
    np.save(tmp_path / "text.npy", np.random.default_rng(0).random((60, 7), np.float32))
    (tmp_path / "mine.toml").write_text(RECIPE)
    return tmp_path


def test_each_training_reads_its_table_and_one_op_builds_all(folder: Path) -> None:
    pipeline = load_pipeline(folder / "mine.toml", TrainTable)
    data = preprocessing_steps(pipeline)
    assert [step.name for step in data] == ["graph", "features", "features.text"]
    assert [step.external for step in data] == ["raw", "raw.features", "raw.features.text"]
    reads = {step.name: step.inputs["features"].name for step in training_steps(pipeline, data)}
    assert reads == {"on-x": "features", "on-text": "features.text"}
    definitions = build_defs([pipeline], Surroundings(store=Store(folder / "home")))
    (source,) = [each for each in definitions.assets or () if len(getattr(each, "keys", ())) == 3]
    assert {key.path[-1] for key in source.keys} == {"graph", "features", "features.text"}  # pyright: ignore
    lines: list[str] = []
    made = launch(Launch(pipeline=pipeline, home=folder / "home", report=lines.append, in_process=True)).artifacts
    text = open_features(made["features.text"][0])
    assert np.array_equal(text.open(), np.load(folder / "text.npy")) and open_features(made["features"][0]).width == 3
    assert [made[name][0].inputs["features"]["version"] for name in ("on-x", "on-text")] == [
        made["features"][0].version,
        made["features.text"][0].version,
    ]
    assert [line.split(":")[0] for line in lines[:3]] == ["features.text", "features", "graph"]


def test_a_run_may_ask_for_one_of_the_artifacts_of_a_pass(folder: Path) -> None:
    """On a machine that does not need the others; they come when they are asked for, and what is there is reused."""
    pipeline, store = load_pipeline(folder / "mine.toml", TrainTable), Store(folder / "home")
    job = build_defs([pipeline], Surroundings(store=store)).resolve_job_def("mine__preprocess")
    with dg.instance_for_test() as instance:
        for chosen, held in (("features.text", ["features"]), ("graph", ["features", "graph"])):
            result = job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey(["mine", chosen])])
            assert result.success and [each.stage for each in store.artifacts()] == held
        result = job.execute_in_process(instance=instance)
        reused = {
            event.asset_key.path[-1]: event.step_materialization_data.materialization.metadata["reused"].value  # pyright: ignore
            for event in result.get_asset_materialization_events()
        }
    assert reused == {"graph": True, "features.text": True, "features": False}


def test_a_failed_check_of_the_graph_leaves_its_features_and_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, store = load_pipeline(folder / "mine.toml", TrainTable), Store(folder / "home")
    broken = "graphmill.assets.graph.stage.node_checks"
    from graphmill.assets.building.stage import Check

    monkeypatch.setattr(
        broken, lambda *_: [Check(name="labels are in range", passed=False, detail="broken for the test")]
    )
    job = build_defs([pipeline], Surroundings(store=store)).resolve_job_def("mine__preprocess")
    with dg.instance_for_test() as instance:
        result = job.execute_in_process(instance=instance, raise_on_error=False)
    assert not result.success and [each.stage for each in store.artifacts()] == ["features", "features"]
    checks = {each.check_name: each.passed for each in result.get_asset_check_evaluations()}
    assert checks["labels_are_in_range"] is False and checks["values_are_finite"] is True
    assert {event.asset_key.path[-1] for event in result.get_asset_materialization_events()} == {
        "features",
        "features.text",
    }  # pyright: ignore
    assert GRAPH.name == "graph"


def test_without_a_training_on_it_the_main_table_is_left_out(folder: Path) -> None:
    text = RECIPE.replace('[features]\ndtype = "float16"\n', "").replace(
        'name = "on-x"', 'name = "on-x"\nfeature_table = "text"'
    )
    (folder / "mine.toml").write_text(text)
    assert [step.name for step in preprocessing_steps(load_pipeline(folder / "mine.toml", TrainTable))] == [
        "graph",
        "features.text",
    ]


CACHED = '[hotness]\npolicy = "degree"\n[memory]\ndevice = "10%"\nhost = 0\ndisk = 0\n'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('feature_table = "text"', 'feature_table = "txt"', r'mine.toml:23: feature_table = "txt" is not one of text'),
        ("[features]\n", "[features]\ndtyp = 1\n", r"mine.toml:10: \[features\] has no key dtyp .did you mean dtype"),
        ('dtype = "float16"', 'dtype = "int4"', r'mine.toml:10: dtype = "int4" is not one of as stored, float16'),
        ('file = "text.npy"', 'tensor = "x"', r"mine.toml:12: tensor = 'x' needs a file"),
        ('file = "text.npy"', "fiel = 3", r"mine.toml:12: \[features.text\] has no key fiel .did you mean file"),
        (
            "[sampling]\n",
            f"{CACHED}[sampling]\n",
            r'mine.toml:29: feature_table = "text", but budgets of this pipeline are about the main table',
        ),
    ],
)
def test_mistakes_have_their_line(folder: Path, old: str, new: str, message: str) -> None:
    (folder / "mine.toml").write_text(RECIPE.replace(old, new))
    with pytest.raises(InputError, match=message):
        load_pipeline(folder / "mine.toml", TrainTable)


def test_a_source_with_one_table_says_so_with_the_line(folder: Path) -> None:
    (folder / "mine.toml").write_text(
        '[graph]\nsource = "rmat"\nnodes = 9\nedges = 9\n[features.more]\ncolumns = "x"\n'
    )
    with pytest.raises(InputError, match=r"mine.toml:5: columns = 'x', but source = 'rmat' has one feature table"):
        load_pipeline(folder / "mine.toml", TrainTable)
