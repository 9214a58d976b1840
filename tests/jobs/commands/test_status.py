"""What a pipeline has, what a run would build, and the reasons that are given."""

from pathlib import Path

import pytest

from assets.pipeline.file import load_pipeline
from jobs.commands.status import pipeline_states, print_status
from tests.jobs.trained import trained_home
from tests.recipes import write_tiny
from trainers.recipe.config import TrainTable


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a home in which the tiny pipeline is built and trained."""
    return trained_home(tmp_path_factory.mktemp("trained")).home


def said(folder: Path, home: Path, **edits: str) -> tuple[dict[str, str], str]:
    """Step -> its line, and the last line, for the tiny pipeline with edits "old -> new" of its keys."""
    lines: list[str] = []
    print_status(load_pipeline(write_tiny(folder, **edits), TrainTable), home, lines.append)
    return {line.split()[0]: line for line in lines[:-1]}, lines[-1]


def test_before_anything_is_built(tmp_path: Path) -> None:
    lines, last = said(tmp_path, tmp_path / "home")
    assert list(lines) == ["graph", "features", "sage", "gcn"]
    assert all("to be built  never built" in line for line in lines.values())
    assert last.startswith("4 of 4 to be built: graphmill run ") and not (tmp_path / "home").exists()


def test_when_everything_is_there(tmp_path: Path, trained: Path) -> None:
    lines, last = said(tmp_path, trained)
    assert (
        all("is there" in line and "B" in line.split()[-1] for line in lines.values()) and last == "everything is there"
    )


@pytest.mark.parametrize(
    ("edits", "built", "reasons"),
    [
        (
            {"nodes": "300 -> 301"},
            {"graph", "features", "sage", "gcn"},
            {"graph": "nodes = 301, was 300", "gcn": "graph is to be built"},
        ),
        ({"epochs": "2 -> 7"}, {"sage", "gcn"}, {"gcn": "train.epochs = 7, was 2"}),
    ],
)
def test_after_an_edit(tmp_path: Path, trained: Path, edits: dict, built: set, reasons: dict) -> None:
    lines, last = said(tmp_path, trained, **edits)
    assert {name for name, line in lines.items() if "to be built" in line} == built
    assert last.startswith(f"{len(built)} of 4 to be built")
    for name, reason in reasons.items():
        assert reason in lines[name]


def test_it_says_what_a_run_then_does(tmp_path: Path, trained: Path) -> None:
    """States agree with the versions that a run looks for, artifact by artifact."""
    from assets.pipeline.data_steps import preprocessing_steps
    from assets.pipeline.steps import Versions
    from jobs.runs.training import training_steps

    pipeline = load_pipeline(write_tiny(tmp_path, hidden="8 -> 9"), TrainTable)
    data = preprocessing_steps(pipeline, trained)
    wanted = [version for step in [*data, *training_steps(pipeline, data)] for version in Versions().of(step)]
    assert [state.label.split("/")[1] for state in pipeline_states(pipeline, trained)] == [each[:12] for each in wanted]
