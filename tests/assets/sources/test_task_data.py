"""Mistakes in the data and keys of labels, numbers and links: each is told once, with its row or its key, and nothing else is refused."""

from __future__ import annotations

import random
import re
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from graphmill.assets.building.materialize import materialize_together
from graphmill.assets.pipeline.file import parse_pipeline
from graphmill.assets.pipeline.steps import preprocessing_steps
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.pipelines.checked import report_pipeline
from graphmill.jobs.definitions import execution_of
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.run import train_table
from tests.adversary.files import LIBRARY
from tests.assets.sources.task_data import FORMS, KINDS, Made, drawn_case, mistakes_of

SECONDS = 600
"""Time of the long form."""


def refusal(text: str, folder: Path) -> InputError | None:
    """What `graphmill run` refuses of a pipeline file, in this process; None if it trains."""
    try:
        pipeline = parse_pipeline(folder / "mine.toml", text.encode(), TrainTable)
        steps = preprocessing_steps(pipeline, folder / "home")
        asked: Any = [(step.recipe, step.configs[0]) for step in steps]
        execution: Any = execution_of(steps[0].recipe, 1)
        found = materialize_together(Store(folder / "home"), asked, execution)
        inputs = {artifact.stage: artifact for artifact in found}
        (table,) = pipeline.train
        train_table(Store(folder / "home"), inputs, table, pipeline.sampling, 0, report=lambda line: None)
    except InputError as error:
        return error
    return None


def validated(text: str, folder: Path) -> list[InputError]:
    """What `graphmill validate` tells."""
    try:
        pipeline = parse_pipeline(folder / "mine.toml", text.encode(), TrainTable)
        return report_pipeline(pipeline, folder / "home", here=False)[1]
    except InputError as error:
        return [error]


def number_told(said: str) -> int:
    """The number of mistakes that a message tells."""
    counted = re.search(r"(\d+) mistakes?:", said)
    return int(counted[1]) if counted else said.count("remedy:")


def fault(text: str, made: Made, folder: Path) -> str:
    """What is wrong with the answer to a drawn case, "" if nothing is."""
    for answer in (validated, refusal):
        try:
            given = answer(text, folder)
        except Exception as error:
            return f"{answer.__name__} ended in {type(error).__name__}: {error}"
        found = given if isinstance(given, list) else [] if given is None else [given]
        said = "\n".join(map(str, found))
        if not made.said and found:
            return f"{answer.__name__} refused sound data: {said}"
        if made.said and answer is refusal and not found:
            return "was trained"
        if LIBRARY.search(said):
            return f"{answer.__name__} says what a library wrote: {said}"
        if found and not re.search(made.said, said, re.S):
            return f"{answer.__name__} does not name the place {made.said!r}: {said}"
        if answer is refusal and found and number_told(said) != 1:
            return f"{answer.__name__} says more than one thing: {said}"
    return ""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, quick_readers: None) -> None:
    """Figures take most of the time of a small build."""
    monkeypatch.setattr("graphmill.assets.graph.stage._draw", lambda *given: {})


@pytest.mark.parametrize("form", FORMS)
def test_each_mistake_is_told_once_with_its_place(tmp_path: Path, form: str) -> None:
    faults = []
    for kind in KINDS:
        splits = ("random", "given", "time") if kind == "links" else ("random",)
        names = {each.__name__ for split in splits for each in mistakes_of(form, kind, split)}
        every = [*enumerate(["", *sorted(names)])]
        for number, mistake in every[FORMS.index(form) % 2 :: 2]:  # the long form draws from all of them
            folder = tmp_path / f"{kind}-{number}"
            folder.mkdir()
            text, made = drawn_case(random.Random(number), folder, form, kind, mistake)
            if found := fault(text, made, folder):
                faults.append(f"{made.what}\n{found}")
    assert not faults, "\n\n".join(faults)


def drawn_faults(folder: Path, first: int, seconds: float) -> tuple[Counter[str], list[str]]:
    """Draws cases for some time; returns how many there were of each mistake, and the faults."""
    counts, faults, until, number = Counter[str](), [], time.monotonic() + seconds, first
    while time.monotonic() < until:
        place = folder / str(number)
        place.mkdir()
        text, made = drawn_case(random.Random(number), place)
        counts[made.what.split(", ", 3)[3].partition(":")[0]] += 1
        if found := fault(text, made, place):
            faults.append(f"{number}: {made.what}\n{found}")
            print(faults[-1], flush=True)
        shutil.rmtree(place)
        number += 1
    return counts, faults


@pytest.mark.slow("ten minutes of drawn mistakes in labels, numbers and links")
def test_drawn_mistakes_are_told_once_with_their_place(tmp_path: Path) -> None:
    counts, faults = drawn_faults(tmp_path, 0, SECONDS)
    print(sum(counts.values()), dict(counts))
    assert not faults, "\n\n".join(faults)
    assert len(counts) > 20
