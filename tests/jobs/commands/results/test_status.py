"""What a pipeline has, what a run would build, and the reasons that are given."""

from pathlib import Path

import pytest
import torch

from graphmill.assets.pipeline.file import Pipeline, load_pipeline
from graphmill.jobs.commands.results.status import pipeline_states, print_status
from graphmill.jobs.launch import Launch, launch
from graphmill.trainers.loop.checkpoint import Checkpoint, RunState, write_checkpoint
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.record.checkpoint_head import checkpoint_path
from tests.recipes import load_tiny, write_tiny


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, quick_launches: None) -> Path:
    """The folder of a home in which the tiny pipeline is built and trained."""
    folder = tmp_path_factory.mktemp("trained")
    launch(Launch(pipeline=load_tiny(folder), home=folder / "home", report=lambda line: None))
    return folder / "home"


def said(folder: Path, home: Path, **edits: str) -> tuple[dict[str, str], str]:
    """Step -> its line, and the last line, for the tiny pipeline with edits "old -> new" of its keys."""
    return said_of(load_pipeline(write_tiny(folder, **edits), TrainTable), home)


def said_of(pipeline: Pipeline, home: Path) -> tuple[dict[str, str], str]:
    """Step -> its line, and the last line."""
    lines: list[str] = []
    print_status(pipeline, home, lines.append)
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
    from graphmill.assets.pipeline.steps import Versions, preprocessing_steps
    from graphmill.jobs.runs.training import training_steps

    pipeline = load_pipeline(write_tiny(tmp_path, hidden="8 -> 9"), TrainTable)
    data = preprocessing_steps(pipeline, trained)
    wanted = [version for step in [*data, *training_steps(pipeline, data)] for version in Versions().of(step)]
    assert [state.label.split("/")[1] for state in pipeline_states(pipeline, trained)] == [each[:12] for each in wanted]


def test_another_pipeline_is_no_measure(tmp_path: Path, trained: Path) -> None:
    lines: list[str] = []
    print_status(load_pipeline(write_tiny(tmp_path, "fresh", nodes="300 -> 310"), TrainTable), trained, lines.append)
    assert all(line.endswith("never built") for line in lines[:-1])


def test_a_checkpoint_that_waits_is_named(tmp_path: Path, trained: Path) -> None:
    """The header alone is read; a file that is no checkpoint, or one of another model, waits for nothing."""
    pipeline = load_pipeline(write_tiny(tmp_path, epochs="2 -> 9"), TrainTable)
    state = next(each for each in pipeline_states(pipeline, trained) if each.step == "gcn")
    path = checkpoint_path(trained / "checkpoints", state.version)
    path.parent.mkdir(exist_ok=True)
    for version, position, said in (
        (state.version, 0, "a checkpoint of epoch 4 waits for --resume"),
        (state.version, 3, "a checkpoint of epoch 4 and 3 batches waits for --resume"),
        ("0" * 64, 0, "train.epochs = 9, was 2"),
    ):
        run = RunState(epoch=4, position=position)
        write_checkpoint(path, Checkpoint(version, run, {}, {"model": {"w": torch.zeros(2)}}))
        lines, last = said_of(pipeline, trained)
        assert said in lines["gcn"] and last.endswith(" --resume") == ("waits" in said)
    path.write_bytes(b"no checkpoint")
    assert "waits" not in said_of(pipeline, trained)[0]["gcn"]
    path.unlink()
