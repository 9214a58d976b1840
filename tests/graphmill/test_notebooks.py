"""The functions of a notebook: a pipeline without a file, in a cell's event loop, and results that a cell can show."""

import asyncio
import io
import tempfile
import tomllib
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest

import graphmill
from graphmill.assets.building.terminal import descriptor_of
from graphmill.assets.pipeline.file import pipeline_files
from graphmill.assets.pipeline.settings import toml_of
from graphmill.jobs.launch import outside_of_cells
from tests.jobs.conftest import quick_launches as quick_launches
from tests.recipes import sbm

CONTENT: dict[str, Any] = {
    "seed": 3,
    "graph": sbm(nodes=np.int64(300)),
    "sampling": {"fanouts": (4, 4), "batch_size": 64, "reuse": None},
    "train": [{"name": "sage", "hidden": 8, "epochs": 2}, {"name": "gcn", "model": "gcn", "hidden": 8, "epochs": 2}],
}
MOST_LINES = 10


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, quick_launches: None) -> Iterator[tuple[Any, Any]]:
    """A pipeline of a mapping, and its run inside an event loop as in a cell, in which a warning is an error."""
    folder = tmp_path_factory.mktemp("notebook")

    async def cell() -> tuple[Any, Any]:
        pipeline = graphmill.pipeline(CONTENT, "train.lr=0.02")
        return pipeline, graphmill.run(pipeline)

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        for name in ("GRAPHMILL_HOME", "DAGSTER_HOME"):
            patch.setenv(name, str(folder / "home"))
        patch.chdir(folder)
        warnings.simplefilter("error", RuntimeWarning)
        yield asyncio.run(cell())


def test_a_mapping_is_the_file_that_says_the_same(made: tuple[Any, Any], tmp_path: Path) -> None:
    pipeline, outcome = made
    assert (pipeline.name, pipeline.seed, pipeline.train[1].lr) == ("notebook", 3, 0.02)
    path = tmp_path / "same.toml"
    path.write_text(toml_of({**CONTENT, "name": "notebook"}))
    same = graphmill.pipeline(path, "train.lr=0.02")
    assert (same.tables, same.train) == (pipeline.tables, pipeline.train)
    assert graphmill.artifact(same, "sage").version == outcome.artifacts["sage"][0].version


def test_every_shipped_file_can_be_a_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHMILL_TEST_DATA", str(tmp_path))
    for path in pipeline_files(shipped=True).values():
        content = tomllib.loads(path.read_text())
        assert tomllib.loads(toml_of(content)) == content


def test_mistakes_of_a_mapping_are_told_at_once_and_without_lines() -> None:
    wrong = CONTENT | {"graph": sbm(nods=3), "train": [{"name": "sage", "epochss": 2}]}
    with pytest.raises(graphmill.InputError) as error:
        graphmill.pipeline(wrong)
    assert "did you mean nodes" in error.value.problem and "did you mean epochs" in error.value.problem
    assert ".toml" not in str(error.value)
    with pytest.raises(graphmill.InputError, match="a value that TOML has not"):
        graphmill.pipeline(CONTENT | {"seed": object()})


def test_results_are_shown_in_ten_lines(made: tuple[Any, Any]) -> None:
    pipeline, outcome = made
    graph = graphmill.artifact(pipeline, "graph")
    many = graphmill.Outcome(run_id=outcome.run_id, artifacts={f"step {n}": [graph] * n for n in range(40)})
    shown = [pipeline, outcome, many, graph, graphmill.batches(pipeline, "sage")]
    shown += [graphmill.open(pipeline, name) for name in ("graph", "features", "sage")]
    for each in shown:
        assert len(repr(each).splitlines()) <= MOST_LINES and len(repr(each)) < 1000, each
    assert repr(outcome).splitlines()[-1] == f"  gcn: {outcome.artifacts['gcn'][0].label}"


def test_results_are_frames(made: tuple[Any, Any], tmp_path: Path) -> None:
    pipeline, _ = made
    board = graphmill.leaderboard(pipeline)
    assert set(board["name"]) == {"sage", "gcn"} and board["valid"].list.len().to_list() == [1, 1]
    best = board["valid"].list.mean().to_list()
    assert best == sorted(best, reverse=True)
    page = graphmill.report(pipeline, tmp_path / "page.html")
    assert page == tmp_path / "page.html" and "sage" in page.read_text()
    assert graphmill.report(pipeline).is_relative_to(graphmill.Store().home)


def test_a_plan_is_a_frame(made: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, _ = made
    values = {"rows": [{"name": "sage", "fits": True}, {"name": "disk", "fits": False}], "chosen": "sage"}
    monkeypatch.setattr("graphmill.jobs.planning.plan.make_plan", lambda *asked, **more: None)
    monkeypatch.setattr("graphmill.jobs.commands.pipelines.plan.plan_values", lambda found: values)
    plan = graphmill.plan(pipeline)
    assert plan.filter("chosen")["name"].to_list() == ["sage"] and plan.columns == ["chosen", "name", "fits"]


def test_frames_become_those_of_pandas_or_say_what_is_missing(made: tuple[Any, Any]) -> None:
    frame = polars.DataFrame({"n": [1, 2], "x": [0.5, None], "of": [[1], []], "name": ["a", None]})
    if find_spec("pandas") is None:
        with pytest.raises(graphmill.InputError, match="pandas is not installed"):
            graphmill.to_pandas(frame)
        return
    found = graphmill.to_pandas(frame)
    assert found.shape == (2, 4) and found["n"].tolist() == [1, 2] and found["of"].tolist() == [[1], []]
    assert str(found["n"].dtype) == "int64" and found["name"].isna().tolist() == [False, True]


def test_lines_of_trainings_come_into_the_cell() -> None:
    """The stream of a cell has the descriptor of the terminal that began the notebook; descriptor 2 leads into the cell."""
    stream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream", "fileno": lambda self: 7})()
    with tempfile.TemporaryFile("w") as plain:
        assert descriptor_of(stream) is None and descriptor_of(plain) == plain.fileno()


def test_the_loop_of_a_cell_runs_on_afterwards() -> None:
    async def cell() -> int:
        with pytest.raises(KeyboardInterrupt), outside_of_cells():
            asyncio.run(asyncio.sleep(0))  # as another loop would inside a cell
            raise KeyboardInterrupt
        await asyncio.sleep(0)
        return id(asyncio.get_running_loop())

    assert asyncio.run(cell())
