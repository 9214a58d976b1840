"""Works of more than a week, or of far more than the machine's memory, are asked about first."""

from pathlib import Path

import click
import pytest

from graphmill.assets.pipeline.file import load_pipeline, pipeline_files
from graphmill.jobs.operations import size
from graphmill.jobs.operations.size import WorkEstimate, ask_about, least_work
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from tests.e2e.commands import graphmill
from tests.recipes import recipe, sbm


def write(folder: Path, *, nodes: int = 1000, edges: int = 4000, epochs: int = 1) -> Path:
    path = folder / "asked.toml"
    long = {"name": "long", "model": "sage", "epochs": epochs}
    sampling = {"fanouts": [2, 2], "batch_size": 10}
    path.write_text(recipe(long, graph=sbm(nodes=nodes, edges=edges, features=16), sampling=sampling))
    return path


def test_a_long_training_and_a_large_graph_are_told(tmp_path: Path) -> None:
    pipeline = load_pipeline(write(tmp_path, epochs=100_000_000), TrainTable)
    seconds = least_work(pipeline, trains=True).seconds
    batches = -(-int(1000 * pipeline.graph.train_ratio) // 10)
    assert seconds == pytest.approx(100_000_000 * batches * size.STEP_SECONDS)
    assert least_work(pipeline, trains=False).problems(1 << 30) == []
    large = load_pipeline(write(tmp_path, nodes=10_000_000, edges=3_000_000_000), TrainTable)
    (said,) = least_work(large, trains=False).problems(1 << 30)
    assert "graph and features take about" in said and "times the memory" in said
    assert WorkEstimate(stored_bytes=16 << 30, seconds=size.MOST_SECONDS).problems(1 << 30) == []


def test_a_person_is_asked_and_a_program_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = load_pipeline(write(tmp_path, epochs=100_000_000), TrainTable)
    with pytest.raises(InputError, match=r"at least [\d,]+ days(?s:.*)--yes"):
        ask_about(pipeline, trains=True, yes=False)
    ask_about(pipeline, trains=True, yes=True)
    ask_about(pipeline, trains=False, yes=False)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    asked = []
    for answer in (True, False):
        monkeypatch.setattr(click, "confirm", lambda text, answer=answer, **how: asked.append(text) or _answer(answer))
        if answer:
            ask_about(pipeline, trains=True, yes=False)
        else:
            with pytest.raises(click.Abort):
                ask_about(pipeline, trains=True, yes=False)
    assert len(asked) == 2 and asked[0].endswith("Go on?")


def _answer(yes: bool) -> bool:
    if not yes:
        raise click.Abort
    return yes


def test_the_command_line_refuses_it_before_anything_is_built(tmp_path: Path) -> None:
    done = graphmill("run", str(write(tmp_path, epochs=100_000_000)), home=tmp_path / "home")
    assert done.returncode == 1 and "--yes" in done.stderr and "Traceback" not in done.stderr
    assert not list((tmp_path / "home" / "store").glob("*/*"))
    assert graphmill("build", str(write(tmp_path, epochs=100_000_000)), home=tmp_path / "home").returncode == 0


REAL = ("cora", "minesweeper", "minesweeper-blocks", "photo")
"""Pipelines on real graphs, whose files tests may lack."""


@pytest.mark.parametrize("name", sorted(name for name in pipeline_files() if not name.endswith(REAL)))
def test_no_shipped_pipeline_is_asked_about(name: str) -> None:
    assert least_work(load_pipeline(name, TrainTable), trains=True).problems(8 << 30) == []
