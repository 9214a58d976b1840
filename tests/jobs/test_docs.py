"""The reference of pipeline files, with that of data files, names every key that a file may have, and its example is valid."""

import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.pipeline.notes import Notes
from graphmill.assets.pipeline.schedule import RunTable, ScheduleTable
from graphmill.assets.samples.config import SampleSet, SamplesTable
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.score import ScoreTable
from graphmill.assets.sources.interface import TableConfig
from graphmill.assets.sources.registry import SOURCES, config_class
from graphmill.trainers.recipe.config import TrainTable

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "pipelines.md").read_text()
# The keys of the sources that read files stand where their layouts do.
REFERENCE = TEXT + "".join((DOCS / name).read_text() for name in ("own-data.md", "tables.md", "formats.md"))


@pytest.mark.parametrize(
    "schema",
    [
        Notes,
        ScheduleTable,
        RunTable,
        ScoreTable,
        SampleSet,
        SamplingConfig,
        SamplesTable,
        TableConfig,
        TrainTable,
        *(config_class(source) for source in SOURCES),
    ],
)
def test_every_key_is_documented(schema: type) -> None:
    keys = [field.name for field in fields(schema) if field.metadata.get("key", True)]
    assert not [key for key in keys if f"`{key}`" not in REFERENCE and f"`{key} =" not in REFERENCE]


def test_the_examples_are_valid(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", edge_index=np.array([[0], [1]]))
    names = []
    for example in re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL):
        (tmp_path / "mine.toml").write_text(example)
        names += [table.name for table in load_pipeline(tmp_path / "mine.toml", TrainTable).train]
    of_sets = ["two-layers", "three-layers", "three-layers-on-ranks"]
    assert names == ["sage", "on-text", "rgcn", *of_sets, "sage-disk", "with-edges", "gcn", "ranks-from-disk"]
