"""What changed since the last report: artifacts with the reason, scores, and lines of the file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphmill.jobs.report.changes import find_changes, record_path, remember
from graphmill.jobs.report.facts import ReportFacts, read_facts
from graphmill.kernels.errors import InputError
from tests.jobs.report.conftest import NOW


@pytest.fixture
def home(trained: SimpleNamespace, tmp_path: Path) -> Path:
    """A home of its own with the same store."""
    (tmp_path / "store").symlink_to(trained.home / "store")
    return tmp_path


def of(facts: ReportFacts, home: Path) -> ReportFacts:
    return replace(facts, home=home)


def test_the_first_report_has_no_past_and_the_second_no_changes(trained: SimpleNamespace, home: Path) -> None:
    facts = of(trained.tiny, home)
    assert find_changes(facts).since is None
    remember(facts)
    again = find_changes(facts)
    assert again.since == NOW and not again.any
    assert [path.name for path in (home / "reports").iterdir()] == ["tiny.json"]


def test_another_recipe_is_told_with_keys_scores_and_lines(trained: SimpleNamespace, home: Path) -> None:
    before = of(trained.tiny, home)
    remember(before)
    # The same pipeline after an edit: sage with other keys and seeds, gcn not trained any more.
    pipeline = replace(trained.other.pipeline, name="tiny")
    found = find_changes(replace(of(trained.other, home), pipeline=pipeline))
    rows = {row[0]: row[1:] for row in found.artifacts.rows}
    assert set(rows) == {"sage", "gcn"} and rows["gcn"][1:] == ["-", "not there any more"]
    assert rows["sage"][2] == "2 artifacts, 1 before" and rows["sage"][1].count("model/") == 2
    assert {row[0] for row in found.scores.rows} == {"sage", "gcn"}
    assert "-lr" not in "".join(found.recipe) and "+lr = 0.01" in found.recipe and "-epochs = 2" in found.recipe


def test_the_reason_names_the_keys_that_differ(trained: SimpleNamespace, home: Path) -> None:
    one, other = of(trained.tiny, home), of(trained.other, home)
    single = [
        state for state in other.states if state.name != "sage" or state.version == other.entries[0].models[0].version
    ]
    remember(one)
    changed = replace(other, pipeline=one.pipeline, states=single)
    (row,) = [row for row in find_changes(changed).artifacts.rows if row[0] == "sage"]
    assert "train.epochs = 3, was 2" in row[3] and "seed = 1, was 0" in row[3]


def test_other_keys_have_a_report_of_their_own(trained: SimpleNamespace, home: Path) -> None:
    trial = replace(trained.tiny.pipeline, settings="--set train.lr=0.1")
    assert record_path(home, trial) != record_path(home, trained.tiny.pipeline)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 1}', '{"format": 1, "made": "x", "recipe": "", "artifacts": {}, "scores": {}}']
)
def test_a_damaged_record_is_none(trained: SimpleNamespace, home: Path, text: str) -> None:
    facts = of(trained.tiny, home)
    path = record_path(home, facts.pipeline)
    path.parent.mkdir()
    path.write_text(text)
    assert find_changes(facts).since is None
    remember(facts)
    assert json.loads(path.read_text())["scores"].keys() == {"sage", "gcn"}
    assert find_changes(facts).since is not None
    flipped = bytearray(path.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    path.write_bytes(flipped)
    assert find_changes(facts).since is None


def test_a_home_that_cannot_be_written_is_an_error_with_a_remedy(trained: SimpleNamespace, home: Path) -> None:
    (home / "reports").write_text("a file")
    with pytest.raises(InputError, match="cannot be written"):
        remember(of(trained.tiny, home))


def test_facts_of_a_pipeline_without_models_name_the_command(trained: SimpleNamespace, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"graphmill run .* trains them"):
        read_facts(trained.tiny.pipeline, tmp_path / "empty")
    assert not (tmp_path / "empty").exists()
