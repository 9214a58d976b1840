"""Commands and answers that a first day needs: lists, keys that are set, JSON, help under headings, files that differ."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from graphmill.jobs.command import HEADINGS, graphmill
from tests.recipes import write_tiny


def ask(home: Path, *words: str) -> Result:
    return CliRunner().invoke(graphmill, ["--home", str(home), *words])


def test_every_command_stands_under_one_heading() -> None:
    listed = [command.name for commands in HEADINGS.values() for command in commands]
    assert sorted(listed) == sorted(graphmill.commands)
    said = CliRunner().invoke(graphmill, ["--help"]).output
    assert all(f"\n{heading}:\n" in said for heading in HEADINGS) and "\n  sql " in said


def test_pipelines_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tiny(tmp_path / "mine")
    monkeypatch.setenv("GRAPHMILL_PIPELINES", str(tmp_path / "mine"))
    assert f"tiny{' ' * 4}" in ask(tmp_path, "ls", "--pipelines").output
    assert json.loads(ask(tmp_path, "ls", "--pipelines", "--json").output)["tiny"] == str(path)


def test_validate_answers_a_program(tmp_path: Path) -> None:
    found = json.loads(ask(tmp_path, "validate", str(write_tiny(tmp_path)), "--json").output)
    assert found["trains"] == ["sage", "gcn"] and found["needs"]["steps"][0]["step"] == "graph"
    assert json.loads(ask(tmp_path, "budgets", "--json").output)["measured"]["memory_bytes"] > 0


def test_inspect_and_plan_set_keys(tmp_path: Path) -> None:
    path = str(write_tiny(tmp_path))
    assert "400 nodes" in ask(tmp_path, "inspect", path, "--set", "graph.nodes=400").output
    for command in ("inspect", "plan"):
        refused = ask(tmp_path, command, path, "--set", "train.class_weights=[1, 2]")
        assert refused.exit_code and "has 2 entries" in str(refused.exception)
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    assert "is data" in str(ask(tmp_path, "inspect", str(tmp_path / "edges.csv"), "--set", "seed=1").exception)


def test_inspect_names_columns_that_some_files_lack(tmp_path: Path) -> None:
    (tmp_path / "edges-1.csv").write_text("src,dst\n0,1\n")
    (tmp_path / "edges-2.csv").write_text("src,dst,weight\n1,2,3\n")
    said = ask(tmp_path, "inspect", str(tmp_path / "edges-*.csv")).output
    assert "column 'weight' is in 1 of 2 files: edges-1.csv lacks it" in said
    (tmp_path / "edges-1.csv").write_text("src,dst,weight\n0,1,2\n")
    assert "lacks it" not in ask(tmp_path, "inspect", str(tmp_path / "edges-*.csv")).output
