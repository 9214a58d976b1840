"""Trials by --set: lists of values, what the leaderboard shows of them, assets that they leave alone; and names of commands."""

from __future__ import annotations

import json
from pathlib import Path

import click
import dagster as dg
import pytest
from click.testing import CliRunner

from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.jobs.command import graphmill
from graphmill.jobs.commands.options import Asked
from graphmill.jobs.commands.results.tuned import _keys
from graphmill.jobs.commands.running import _grown
from graphmill.jobs.runs.instance import open_instance
from tests.docs.cli_page import all_commands
from tests.e2e.commands import graphmill as run_graphmill
from tests.recipes import write_tiny


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A home in which the tiny pipeline was run, and then tried with other keys; and its file."""
    folder = tmp_path_factory.mktemp("tried")
    path, home = write_tiny(folder), folder / "home"
    said(home, "run", path, "-q")
    said(home, "train", f"{path}/sage", "-q", "--set", "train.sage.hidden=4,16")
    said(home, "train", path, "gcn", "-q", "--set", "train.gcn.dropout=0.25")
    return path, home


def said(home: Path, *words: object, code: int = 0) -> str:
    """Runs a command and returns what it printed."""
    ended = run_graphmill(*map(str, words), home=home, forked=True)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout


def test_all_models_with_what_was_tuned(tried: tuple[Path, Path]) -> None:
    path, home = tried
    rows = {
        (row["name"], row["tuned"]) for row in json.loads(said(home, "leaderboard", path, "--all", "--json"))["rows"]
    }
    assert rows == {
        ("sage", "hidden = 8"), ("sage-hidden-4", "hidden = 4"), ("sage-hidden-16", "hidden = 16"),
        ("gcn", "dropout = 0.5"), ("gcn", "dropout = 0.25"),
    }  # fmt: skip
    assert "dropout = 0.25" in said(home, "leaderboard", path, "--all")
    own = json.loads(said(home, "leaderboard", path, "--json"))["rows"]
    assert {(row["name"], row["tuned"]) for row in own} == {("sage", None), ("gcn", None)}


def test_models_of_other_code_are_other_rows() -> None:
    def model(digest: str) -> Artifact:
        manifest = {
            "stage": "model",
            "version": "a" * 64,
            "config": {"seed": 0, "train": {"lr": 0.1}},
            "inputs": {},
            "raw": {"model": digest * 64},
        }
        return Artifact(path=Path(), manifest=manifest)

    one, other = _keys(model("1")), _keys(model("2"))
    assert one != other and one == _keys(model("1")) and one["lr"] == 0.1


def test_a_table_that_begins_alike_is_not_trained(tried: tuple[Path, Path], tmp_path: Path) -> None:
    text = tried[0].read_text()
    path = tmp_path / "more.toml"
    path.write_text(
        text
        + text[text.index("[[train]]") :]
        .split("[[train]]")[1]
        .join(["\n[[train]]", ""])
        .replace('name = "sage"', 'name = "sage-big"')
    )
    asked = Asked(str(path), ("train.sage.lr=0.01,0.03",))
    assert _grown(asked, asked.load(), "sage") == ["sage-lr-0_01", "sage-lr-0_03"]
    assert _grown(Asked(str(path), ("seed=4",)), Asked(str(path), ("seed=4",)).load(), "sag") == ["sag"]


def test_a_trial_leaves_the_last_materialisation_alone(tried: tuple[Path, Path]) -> None:
    path, home = tried
    (model,) = (row for row in json.loads(said(home, "status", path, "--json")) if row["step"] == "gcn")
    with open_instance(home) as instance:
        last = instance.get_latest_materialization_event(dg.AssetKey(["tiny", "gcn"]))
        assert last is not None and last.asset_materialization is not None
        assert last.asset_materialization.metadata["artifacts"].value == f"model/{model['version'][:12]}"
        assert dg.AssetKey(["tiny", "trial", "gcn"]) in instance.all_asset_keys()
    assert "is there" in said(home, "status", path)


def test_a_stage_is_verified(tried: tuple[Path, Path]) -> None:
    _, home = tried
    models = sum(each.stage == "model" for each in Store(home).artifacts())
    lines = said(home, "verify", "model").splitlines()
    assert len(lines) == models == 5 and all(line.startswith("model/") and "sound" in line for line in lines)
    assert {line.split("/")[0] for line in said(home, "verify", "graph", "features").splitlines()} == {
        "graph",
        "features",
    }


def test_a_table_is_named_with_its_pipeline(tried: tuple[Path, Path], tmp_path: Path) -> None:
    path, home = tried
    assert "reused" in said(home, "train", f"{path}/gcn", "-q")
    for number, words in enumerate(([f"{path}/gcn"], [path, "gcn"])):
        assert "artifacts" in said(home, "bundle", *words, tmp_path / f"bundle{number}")
    result = CliRunner().invoke(graphmill, ["--home", str(home), "bundle", str(path), str(tmp_path / "no")])
    assert "write PIPELINE NAME OUT or PIPELINE/NAME OUT" in str(result.exception)


def test_every_command_is_whole_at_80_columns() -> None:
    context = click.Context(graphmill, info_name="graphmill", terminal_width=80, max_content_width=80)
    with context:
        listed = graphmill.get_help(context)
    assert "..." not in listed.partition("Commands:")[2] and max(map(len, listed.splitlines())) <= 80
    for name, command in all_commands():
        inner = click.Context(command, info_name=f"graphmill {name}", terminal_width=80, max_content_width=80)
        assert max(map(len, command.get_help(inner).splitlines())) <= 80, name
