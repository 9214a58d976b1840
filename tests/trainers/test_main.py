"""`python -m graphmill.trainers`: training on artifacts that are there, without any orchestrator."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from graphmill.assets.building.materialize import materialize
from graphmill.assets.features.stage import FEATURES
from graphmill.assets.graph.stage import GRAPH
from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.storage.store import Store
from graphmill.trainers.__main__ import main
from graphmill.trainers.recipe.config import TrainTable
from tests.assets.sources.own_data import build_config
from tests.recipes import recipe, sbm

ROOT = Path(__file__).parent.parent.parent
RECIPE = recipe(
    {"name": "sage", "layers": 1, "hidden": 4, "epochs": 1},
    graph=sbm(nodes=200, edges=1000, features=4, classes=2),
    sampling={"fanouts": [3], "batch_size": 64},
)


@pytest.fixture
def prepared(tmp_path):
    """A pipeline file and a home with its graph and features."""
    path, home = tmp_path / "small.toml", tmp_path / "home"
    path.write_text(RECIPE)
    pipeline = load_pipeline(path, TrainTable)
    built = build_config(home, pipeline.graph, threads=1)
    return path, home, built


def test_it_trains_and_then_reuses(prepared, capsys):
    path, home, _ = prepared
    assert main([str(path), "sage", "--home", str(home)]) == 0
    assert "trained model/" in capsys.readouterr().out
    assert main([str(path), "sage", "--home", str(home)]) == 0
    assert "reused model/" in capsys.readouterr().out
    assert [each.stage for each in Store(home).artifacts()] == ["features", "graph", "model"]


@pytest.mark.parametrize(("flag", "lines"), [("-q", 0), ("-v", 130), ("", 66)])
def test_epochs_are_told_as_often_as_asked_for(prepared, capsys, flag, lines):
    path, home, _ = prepared
    path.write_text(RECIPE.replace("epochs = 1", "epochs = 130"))
    assert main([str(path), "sage", "--home", str(home), *filter(None, [flag])]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "sage: seed 0, epoch " in line]
    assert len(said) == lines


def test_a_copied_graph_is_named_by_its_version(prepared, tmp_path, monkeypatch):
    """On a machine that has the artifact and not what it was built from; the orchestrator is not needed there."""
    path, home, built = prepared
    shutil.copytree(home / "store", tmp_path / "copy" / "store", ignore=shutil.ignore_patterns(".staging"))
    for stage in (GRAPH, FEATURES):
        monkeypatch.setattr(type(stage), "raw", lambda *_: pytest.fail("raw content was read"))
    named = [f"--input={stage}={each.version[:12]}" for stage, each in built.inputs.items()]
    assert main([str(path), "sage", "--home", str(tmp_path / "copy"), *named]) == 0
    assert [each.stage for each in Store(tmp_path / "copy").artifacts()] == ["features", "graph", "model"]


def test_it_needs_no_orchestrator(prepared):
    path, home, _ = prepared
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['dagster', 'dagster_pipes', 'duckdb', 'polars', 'matplotlib']));"
        "import runpy; sys.argv = ['graphmill.trainers', *sys.argv[1:]]; runpy.run_module('graphmill.trainers', run_name='__main__')"
    )
    command = [sys.executable, "-c", code, str(path), "sage", "--home", str(home)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "trained model/" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sag"], "no [[train]] table 'sag'"),
        (["sage", "--input", "graph=ffffffffff"], "no artifact in"),
    ],
)
def test_mistakes_end_with_1_and_one_message(prepared, capsys, arguments, message):
    path, home, _ = prepared
    assert main([str(path), *arguments, "--home", str(home)]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["graph", "features"])
def test_what_is_missing_is_named_with_what_brings_it(prepared, capsys, missing):
    path, home, built = prepared
    Store(home).discard(missing, built.inputs[missing].version)
    assert main([str(path), "sage", "--home", str(home)]) == 1
    said = capsys.readouterr().err
    assert f"{missing}/{built.inputs[missing].version[:12]} is not in" in said and f"graphmill build {path}" in said


def test_all_that_is_missing_is_named_at_once(prepared, capsys):
    path, home, built = prepared
    for stage, each in built.inputs.items():
        Store(home).discard(stage, each.version)
    assert main([str(path), "sage", "--home", str(home)]) == 1
    said = capsys.readouterr().err
    assert all(f"{stage}/{each.version[:12]}" in said for stage, each in built.inputs.items())
    assert f"remedy: build them: graphmill build {path}; or copy them" in said


def test_a_home_of_an_older_version_is_answered_with_the_command_that_rebuilds_it(prepared, capsys, tmp_path):
    path, _, built = prepared
    old = Store(tmp_path / "old")
    with old.writer("graph", "1" * 64) as writer:
        for name in built.graph.files:
            if name.endswith(".npy"):
                writer.save(name.removesuffix(".npy"), built.graph.array(name.removesuffix(".npy")))
        writer.save("features", built.table.open())
        numbers = dict(built.graph.summary["numbers"])
        writer.publish({}, {}, {"numbers": numbers, "checks": [], "figures": {}}, {}, code_version=1)
    assert main([str(path), "sage", "--home", str(old.home)]) == 1
    said = capsys.readouterr().err
    assert "built by an older version of graphmill" in said and f"graphmill build {path}" in said
    shutil.copytree(built.features.path, old.root / "features" / built.features.version)
    named = ["--input", "graph=1111", "--input", f"features={built.features.version}"]
    assert main([str(path), "sage", "--home", str(old.home), *named]) == 1
    said = capsys.readouterr().err
    assert "graph/111111111111 was built by an older version of graphmill" in said and "graphmill build" in said


def test_a_worker_of_torchrun_takes_a_gpu_before_anything_else(monkeypatch):
    """The driver reads the variable once, so it is set before the recipe is looked at, which here does not exist."""
    monkeypatch.setattr("graphmill.trainers.__main__.end_with_parent", lambda: None)
    for name, value in {"TORCHELASTIC_RUN_ID": "1", "LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "4,GPU-9"}.items():
        monkeypatch.setenv(name, value)
    assert main(["no-such-pipeline", "sage"]) == 1
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-9"


def test_features_of_another_graph_are_refused(prepared, tmp_path, capsys):
    path, home, _ = prepared
    (tmp_path / "other.toml").write_text(RECIPE.replace("nodes = 200", "nodes = 201"))
    other = build_config(home, load_pipeline(tmp_path / "other.toml", TrainTable).graph)
    named = f"features={other.features.version}"
    assert main([str(path), "sage", "--home", str(home), "--input", named]) == 1
    assert "are about 201 nodes, the graph about 200" in capsys.readouterr().err


def test_a_cache_needs_hotness_and_resolves_its_own_budgets(prepared, capsys):
    path, home, built = prepared
    path.write_text(RECIPE + '[hotness]\npolicy = "degree"\n[memory]\ndevice = "25%"\nhost = 0\n')
    assert main([str(path), "sage", "--home", str(home)]) == 1
    assert "hotness/" in (said := capsys.readouterr().err) and "graphmill build" in said
    pipeline = load_pipeline(path, TrainTable)
    from graphmill.assets.building.execution import Threads
    from graphmill.assets.hotness.config import hotness_config
    from graphmill.assets.hotness.stage import HOTNESS

    config = hotness_config(pipeline.table("hotness"), pipeline.sampling, pipeline.seed)
    materialize(Store(home), HOTNESS, config, Threads(threads=1), {"graph": built.graph})
    assert main([str(path), "sage", "--home", str(home), "--input", f"graph={built.graph.version[:9]}"]) == 0
    (model,) = [each for each in Store(home).artifacts() if each.stage == "model"]
    assert model.run_record()["cache"]["device_rows"] == 50
    assert {each.stage for each in Store(home).artifacts()} == {"graph", "features", "hotness", "budgets", "model"}
