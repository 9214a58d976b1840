"""The texts of all estimates: `inspect`, `plan`, `simulate cluster`, the question before a large work, and records of runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from graphmill.assets.costs.needs import Term
from graphmill.assets.pipeline.file import Pipeline, load_pipeline
from graphmill.assets.pipeline.needs import KnownSizes
from graphmill.assets.pipeline.steps import Step, preprocessing_steps
from graphmill.assets.storage.store import Store
from graphmill.jobs.command import graphmill
from graphmill.jobs.commands.pipelines.needs import pipeline_needs
from graphmill.jobs.commands.pipelines.plan import plan_lines, plan_values
from graphmill.jobs.launch import Launch, launch
from graphmill.jobs.operations.size import built_bytes, is_big, least_work, raw_bytes
from graphmill.jobs.planning.plan import make_plan
from graphmill.jobs.runs.training import training_steps
from graphmill.trainers.ranks.group import Ranks
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.training import stage as model_stage
from graphmill.trainers.training.stage import ModelStage
from graphmill.trainers.training.training import RunExecution
from tests.golden.machine import MEMORY, SPEEDS, same_machine

FOLDER = Path(__file__).parent / "texts"
DIGITS = 6
"""Digits of numbers with a fraction: the last ones differ from processor to processor."""


def graph_text(name: str, text: str, folder: Path) -> str:
    """All estimates of one pipeline: before anything is built, and with all data there.

    Args:
        name, text: the pipeline file; of the R-MAT graph on a machine of eight cores, too.
        folder: an empty folder.
    """
    path, home, lines = folder / "mine.toml", folder / "home", []
    path.write_text(text)
    with same_machine(folder, 2):
        pipeline = load_pipeline(path, TrainTable)
        lines += [*_heading("question", _question(pipeline)), *_heading("not built", _estimates(pipeline, home))]
        launch(Launch(pipeline=pipeline, selection="preprocess", home=home, report=lambda line: None, in_process=True))
    for cores in (2, 8) if name == "rmat" else (2,):
        with same_machine(folder, cores):
            lines += _heading(f"built, {cores} cores", _estimates(pipeline, home))
            lines += _heading(f"records of runs, {cores} cores", _records(pipeline, home))
    return "\n".join(lines).replace(str(folder), "FOLDER") + "\n"


def cluster_text() -> str:
    """What `simulate cluster` prints of two graphs."""
    lines = []
    for more in (
        ("--nodes", "1e10", "--edges", "1e11", "--machines", "64"),
        ("--nodes", "1e7", "--edges", "2e8", "--machines", "2"),
    ):
        for form in ((), ("--json",)):
            ran = CliRunner().invoke(graphmill, ["simulate", "cluster", *more, *form])
            assert ran.exit_code == 0, ran.output
            lines += _heading(
                " ".join([*more, *form]), _flat("", json.loads(ran.output)) if form else ran.output.splitlines()
            )
    return "\n".join(lines) + "\n"


def _heading(name: str, lines: Any) -> list[str]:
    return [f"## {name}", *lines]


def _question(pipeline: Pipeline) -> Iterator[str]:
    for trains in (False, True):
        found = least_work(pipeline, trains=trains)
        yield f"least work, trains = {trains}: {_rounded(asdict(found))} {found.problems(MEMORY >> 12)}"
    yield f"files {raw_bytes(pipeline)}, built {built_bytes(pipeline)}, big {is_big(pipeline)}"


def _estimates(pipeline: Pipeline, home: Path) -> Iterator[str]:
    found = pipeline_needs(pipeline, home)
    yield from found.lines()
    for each, values in zip(found.steps, found.values()["steps"], strict=True):
        yield f"{each.name}: {_rounded({key: value for key, value in values.items() if key != 'memory'})}"
        for phase in [] if each.need is None else each.need.phases:
            yield f"{each.name} phase: {[_term(term) for term in phase]}"
    said: list[str] = []
    plan = make_plan(pipeline, home, report=said.append)
    yield from (*said, *plan_lines(plan))
    for row in plan_values(plan)["rows"]:
        yield f"plan {row['name']} memory: {row.pop('memory')}"
        yield f"plan {row['name']}: {_rounded(row)}"


def _term(term: Term) -> list[Any]:
    return [term.name, term.most, term.key, term.bound]


def _records(pipeline: Pipeline, home: Path) -> Iterator[str]:
    """What the record of each training would say of its memory, and predict: without measured speeds, and with some."""
    store = Store(home)
    data, tables, known = (
        preprocessing_steps(pipeline, store.home),
        {each.name: each for each in pipeline.train},
        KnownSizes(store),
    )
    for step in training_steps(pipeline, data):
        table = tables[step.name]
        yield from _record(step, known, RunExecution(**asdict(table.execution), checkpoints=home / "checkpoints"))


def _record(step: Step, known: KnownSizes, execution: RunExecution) -> Iterator[str]:
    config = step.configs[0]
    ranks = config.train.own_settings.ranks
    stage = ModelStage(cast(Ranks, type("Some", (), {"world": ranks, "rank": 0})()))
    artifacts = {role: artifact for role, each in step.sources.items() if (artifact := known.artifacts(each)[0])}
    yield f"{step.name} need: {stage._said(config, execution, artifacts)}"
    for speeds in (None, SPEEDS):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(model_stage, "kept_speeds", lambda path, found=speeds: found)
            found = stage._forecast(config, execution, artifacts)
        for exact, each in found.items():
            yield f"{step.name}, {'with' if speeds else 'without'} speeds, exact evaluation {exact}: {_rounded(each)}"


def _flat(name: str, value: Any) -> Iterator[str]:
    """A line for each number or text of JSON-ready values."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _flat(f"{name} / {key}", each)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for place, each in enumerate(value):
            yield from _flat(f"{name} / {each.get('step') or each.get('what') or each.get('name') or place}", each)
    else:
        yield f"{name} = {_rounded(value)}"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, (list, tuple)) else value
