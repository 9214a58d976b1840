"""`python -m trainers`: training on artifacts that are there, without any orchestrator."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assets.building.materialize import materialize
from assets.graph.stage import GRAPH, GraphExecution
from assets.pipeline.file import load_pipeline
from assets.storage.store import Store
from trainers.__main__ import main
from trainers.config import TrainTable

ROOT = Path(__file__).parent.parent.parent
RECIPE = """
[graph]
source = "sbm"
nodes = 200
edges = 1000
features = 4
classes = 2
[sampling]
fanouts = [3]
batch_size = 64
[[train]]
name = "sage"
layers = 1
hidden = 4
epochs = 1
"""


@pytest.fixture
def built(tmp_path):
    """A pipeline file and a home with its graph."""
    path, home = tmp_path / "small.toml", tmp_path / "home"
    path.write_text(RECIPE)
    pipeline = load_pipeline(path, TrainTable)
    graph = materialize(Store(home), GRAPH, pipeline.graph, GraphExecution(threads=1), {})
    return path, home, graph


def test_it_trains_and_then_reuses(built, capsys):
    path, home, _graph = built
    assert main([str(path), "sage", "--home", str(home)]) == 0
    assert "trained model/" in capsys.readouterr().out
    assert main([str(path), "sage", "--home", str(home)]) == 0
    assert "reused model/" in capsys.readouterr().out
    assert [each.stage for each in Store(home).artifacts()] == ["graph", "model"]


def test_a_copied_graph_is_named_by_its_version(built, tmp_path, monkeypatch):
    """On a machine that has the artifact and not what it was built from; the orchestrator is not needed there."""
    path, home, graph = built
    shutil.copytree(home / "store", tmp_path / "copy" / "store", ignore=shutil.ignore_patterns(".staging"))
    monkeypatch.setattr(type(GRAPH), "raw", lambda *_: pytest.fail("raw content was read"))
    assert main([str(path), "sage", "--home", str(tmp_path / "copy"), "--input", f"graph={graph.version[:12]}"]) == 0
    assert [each.stage for each in Store(tmp_path / "copy").artifacts()] == ["graph", "model"]


def test_it_needs_no_orchestrator(built):
    path, home, _graph = built
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['dagster', 'dagster_pipes', 'duckdb', 'polars', 'matplotlib']));"
        "import runpy; sys.argv = ['trainers', *sys.argv[1:]]; runpy.run_module('trainers', run_name='__main__')"
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
def test_mistakes_end_with_1_and_one_message(built, capsys, arguments, message):
    path, home, _graph = built
    assert main([str(path), *arguments, "--home", str(home)]) == 1
    assert message in capsys.readouterr().err


def test_a_missing_graph_is_named(built, tmp_path, capsys):
    assert main([str(built[0]), "sage", "--home", str(tmp_path / "empty")]) == 1
    assert "graph/" in capsys.readouterr().err


def test_a_cache_needs_hotness_and_resolves_its_own_budgets(built, capsys):
    path, home, graph = built
    path.write_text(RECIPE + '[hotness]\npolicy = "degree"\n[memory]\ndevice = "25%"\nhost = 0\n')
    assert main([str(path), "sage", "--home", str(home)]) == 1
    assert "hotness/" in (said := capsys.readouterr().err) and "graphmill build" in said
    pipeline = load_pipeline(path, TrainTable)
    from assets.hotness.config import HotnessExecution, hotness_config
    from assets.hotness.stage import HOTNESS

    config = hotness_config(pipeline.table("hotness"), pipeline.sampling, pipeline.seed)
    materialize(Store(home), HOTNESS, config, HotnessExecution(threads=1), {"graph": graph})
    assert main([str(path), "sage", "--home", str(home), "--input", f"graph={graph.version[:9]}"]) == 0
    (model,) = [each for each in Store(home).artifacts() if each.stage == "model"]
    assert model.run_record()["cache"]["device_rows"] == 50
    assert {each.stage for each in Store(home).artifacts()} == {"graph", "hotness", "budgets", "model"}
