"""Rows name the commit that they were measured at; a tree with uncommitted changes has none."""

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks import record as recording


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one committed file, where rows are recorded."""
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    (tmp_path / "code.py").write_text("1\n")
    (results / "old.jsonl").write_text("{}\n")
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "code"]):
        subprocess.run(["git", "-C", tmp_path, *arguments], check=True)
    monkeypatch.setattr(recording, "RESULTS", results)
    monkeypatch.setattr(recording.Recorder, "dirty", False)
    return tmp_path


def rows(tree: Path, name: str) -> list[dict]:
    path = tree / "benchmarks" / "results" / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def test_a_clean_tree_leaves_rows_with_commit_and_processor(tree: Path) -> None:
    recording.require_clean_tree(dirty=False)
    recording.record("a", {"n": 1})
    recording.record("a", {"n": 2})
    first, second = rows(tree, "a.jsonl")
    assert first["commit"] == second["commit"] == recording.commit()
    assert second["n"] == 2 and second["machine"]["cpu"] == recording.processor_name()


def test_rows_and_pages_that_were_written_do_not_make_a_tree_dirty(tree: Path) -> None:
    (tree / "benchmarks" / "results" / "old.jsonl").write_text("{}\n{}\n")
    assert recording.changed_files() == []
    recording.require_clean_tree(dirty=False)


def test_a_dirty_tree_is_refused_before_and_after_measuring(tree: Path) -> None:
    (tree / "code.py").write_text("2\n")
    with pytest.raises(SystemExit, match=r"code\.py"):
        recording.require_clean_tree(dirty=False)
    with pytest.raises(SystemExit, match="no page may cite"):
        recording.record("a", {"n": 1})
    assert rows(tree, "a.jsonl") == []
    (row,) = rows(tree, "dirty/a.jsonl")
    assert row["commit"].endswith("-dirty")


def test_rows_of_a_dirty_tree_go_elsewhere_when_they_are_asked_for(tree: Path) -> None:
    (tree / "code.py").write_text("2\n")
    recording.require_clean_tree(dirty=True)
    recording.record("a", {"n": 1})
    recording.record("a", {"n": 2})
    assert rows(tree, "a.jsonl") == [] and len(rows(tree, "dirty/a.jsonl")) == 2
