"""The law of options on an accelerator: every cell of the table of options that is not refused there, with `device = "cuda"` in each file.

A file is trained, stopped, gone on with and predicted with, and has the weights that tests/laws/test_options.py promises, all on the
device.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphmill.assets.pipeline.file import Pipeline
from graphmill.trainers.recipe.option_table import OPTIONS
from graphmill.trainers.recipe.techniques import TECHNIQUES
from tests.accelerator.places import Place
from tests.laws.asked import Ask, pipeline_text
from tests.laws.made import Made
from tests.laws.test_options import (
    assert_changes_nothing,
    assert_works,
    keys_of,
    limits,
    slow_marks,
    together,
)

ON_CPU = {"booked", "uva"}
"""Options that mean something on the CPU alone."""


class MadeOnDevice(Made):
    """Files with `device = "cuda"` in their train table."""

    def parse(self, text: str) -> Pipeline:
        """The pipeline of a text, and of the key."""
        given = text if 'device = "cuda"' in text else text.replace("[[train]]\n", '[[train]]\ndevice = "cuda"\n')
        return super().parse(given)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return MadeOnDevice(tmp_path_factory.mktemp("made"))


@pytest.fixture
def made(files: Made, place: Place) -> Made:
    """Files of one store, so that cells share graphs and the plain trainings that they are compared with."""
    return files


def works(option: str, trainer: str) -> bool:
    """Tells whether a cell is not refused on a GPU."""
    refused = any(limit.when in ("", "gpu") for limit in limits(option, trainer))
    return OPTIONS[option].has_key(TECHNIQUES[trainer]) and not refused and option not in ON_CPU


def cells() -> list[Any]:
    """Every cell that works, those with "minibatch" and of users' code in every run."""
    return [
        pytest.param(option, trainer, marks=[] if OPTIONS[option].scope == "code" else slow_marks(option, trainer))
        for option in OPTIONS
        for trainer in TECHNIQUES
        if works(option, trainer)
    ]


@pytest.mark.parametrize(("option", "trainer"), cells())
def test_each_cell_works_on_a_device(made: Made, tmp_path: Path, option: str, trainer: str) -> None:
    assert_works(made, tmp_path, option, trainer)


@pytest.mark.parametrize("trainer", sorted({*TECHNIQUES} - {"minibatch"}))
def test_options_that_change_no_weight_change_none_together(made: Made, tmp_path: Path, trainer: str) -> None:
    def is_file(ask: Ask) -> bool:
        return made.is_valid(pipeline_text(trainer, ask, **keys_of(trainer)))

    groups = [(names, ask) for names, ask in together(trainer, is_file) if is_file(ask)]
    assert sum(len(names) for names, _ in groups) > len(groups) > 0
    for names, ask in groups:
        assert_changes_nothing(made, tmp_path, trainer, ask, trial=" ".join(names))
