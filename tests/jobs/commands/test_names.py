"""What artifacts may be called on the command line, and what `--json` prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from graphmill.assets.storage.store import Store
from graphmill.jobs.command import graphmill
from graphmill.jobs.commands.names import find_artifact
from graphmill.kernels.errors import InputError
from tests.jobs.trained import trained_home
from tests.recipes import write_tiny


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return trained_home(tmp_path_factory.mktemp("names"))


@pytest.fixture
def pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipelines `tiny` and `other`, whose table `sage` has the seeds 1 and 2, can be named."""
    write_tiny(tmp_path)
    write_tiny(tmp_path, "other", epochs="2 -> 3\nseeds = [1, 2]\nlr = 0.01")
    monkeypatch.setenv("GRAPHMILL_PIPELINES", str(tmp_path))


def test_beginnings_of_versions_and_steps_of_pipelines(store: Store, pipelines: None, tmp_path: Path) -> None:
    graph = next(each for each in store.artifacts() if each.stage == "graph")
    for name in (graph.version[:12], f"graph/{graph.version[:8]}", "tiny/graph", f"{tmp_path}/tiny.toml/graph"):
        assert find_artifact(store, name).label == graph.label
    sage, first, second = (find_artifact(store, name) for name in ("tiny/sage", "other/sage/1", "other/sage/2"))
    assert sage.config["train"]["epochs"] == 2 and sage.config["seed"] == 0
    assert [each.config["seed"] for each in (first, second)] == [1, 2] and first.config["train"]["epochs"] == 3


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("strange", "'strange' is neither the beginning of a version nor PIPELINE/STEP"),
        ("tiny/sagee", "has no step 'sagee'(?s:.*)its steps are: graph, features, sage, gcn"),
        ("other/sage", "other/sage is 2 models, with the seeds 1, 2(?s:.*)name one: other/sage/1"),
        ("other/sage/7", "other/sage has no seed 7(?s:.*)its seeds are: 1, 2"),
        ("other/gcn/1", "other/gcn/1 is model/.*, which .* does not have"),
        ("tinyy/sage", "no pipeline tinyy .did you mean tiny"),
        ("graph/ffff", "no artifact in .* begins with 'graph/ffff'"),
    ],
)
def test_a_name_that_means_nothing_is_answered(store: Store, pipelines: None, name: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        find_artifact(store, name)


def test_json_of_the_commands(store: Store, pipelines: None) -> None:
    def ask(*words: str) -> Any:
        result = CliRunner().invoke(graphmill, ["--home", str(store.home), *words, "--json"], catch_exceptions=False)
        return json.loads(result.output)

    listed = ask("ls")
    assert {f"{row['stage']}/{row['version']}" for row in listed} == {
        f"{a.stage}/{a.version}" for a in store.artifacts()
    }
    assert [row["version"] for row in ask("ls", "graph")] == [
        row["version"] for row in listed if row["stage"] == "graph"
    ]
    shown = ask("show", "tiny/sage")
    assert shown["manifest"]["config"]["train"]["hidden"] == 8 and shown["run"]["seconds"] > 0
    assert {row["step"]: row["is_there"] for row in ask("status", "tiny")} == dict.fromkeys(
        ("graph", "features", "sage", "gcn"), True
    )
    compared = ask("diff", "tiny/sage", "tiny/gcn")
    assert {"name": "train.model", "one": "sage", "other": "gcn"} in compared["recipe"] and len(compared["epochs"]) == 2
    assert all(not row["problems"] and row["num_bytes"] > 0 for row in ask("verify", "tiny/graph", "tiny/sage"))
    assert ask("inspect", "tiny")["num_nodes"] == 300


def test_ls_says_who_asked_for_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str], store: Store) -> None:
    from graphmill.jobs.commands.results.show import print_artifacts
    from tests.trainers.runs import train_small

    train_small(tmp_path, asked_by="mine/small")
    print_artifacts(Store(tmp_path), None)
    lines = capsys.readouterr().out.splitlines()
    assert "mine/small" in next(line for line in lines if line.startswith("model/"))
    assert lines[-1].startswith("3 artifacts, ")
