"""What a pipeline file says for its readers: where mistakes stand, what Dagster takes, and that no version knows of it."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.pipeline.notes import Notes
from graphmill.assets.pipeline.steps import Versions, preprocessing_steps, recipe_hash
from graphmill.jobs.runs.training import training_steps
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable

TABLES = """
[graph]
source = "sbm"
nodes = 100
edges = 500
[features]
dtype = "float32"
[sampling]
fanouts = [4, 4]
[hotness]
[[train]]
name = "a"
[[train]]
name = "b"
lr = 0.5
"""
NOTES = """description = "Who knows whom."
owners = ["ann.b@example.org", "team:graphs"]
tags = { area = "social", "org.example/level" = "2" }
"""


def load(folder: Path, text: str):
    path = folder / "mine.toml"
    path.write_text(text)
    return load_pipeline(path, TrainTable)


def steps_of(pipeline):
    data = preprocessing_steps(pipeline)
    return [*data, *training_steps(pipeline, data)]


def test_notes_are_read_and_no_version_knows_of_them(tmp_path):
    plain, noted = load(tmp_path, TABLES), load(tmp_path, NOTES + TABLES)
    assert plain.notes == Notes()
    assert noted.notes.description == "Who knows whom." and noted.notes.owners == ("ann.b@example.org", "team:graphs")
    assert noted.notes.tags == {"area": "social", "org.example/level": "2"}
    before, after = steps_of(plain), steps_of(noted)
    assert [recipe_hash(step) for step in before] == [recipe_hash(step) for step in after]
    assert [Versions().of(step) for step in before] == [Versions().of(step) for step in after]
    dg.AssetSpec("a", owners=list(noted.notes.owners), tags=dict(noted.notes.tags))


def test_each_step_knows_the_line_of_its_table(tmp_path):
    pipeline = load(tmp_path, TABLES)
    found = {step.name: step.origin.line for step in steps_of(pipeline)}
    # No table asks for budgets by name, so theirs is the graph's line.
    assert found == {"graph": 2, "features": 6, "hotness": 10, "budgets": 2, "a": 11, "b": 13}
    without = load(tmp_path, TABLES.replace('[features]\ndtype = "float32"\n', ""))
    assert {step.name: step.origin.line for step in steps_of(without)}["features"] == 2
    assert all(step.origin.path == pipeline.path for step in steps_of(pipeline))


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        ('"team:graphs"', '"graphs"', 2, 'owners[1] = "graphs" is neither an e-mail address nor team:NAME'),
        ('"team:graphs"', '\n"team:"', 3, 'owners[1] = "team:" is neither'),
        ('"team:graphs"', "3", 2, "owners[1] = 3 is not a text in quotes"),
        ('"social"', '"social media"', 3, 'tags: area = "social media" is not a value of a tag'),
        ('"social"', "1", 3, "area = 1 is not a text in quotes"),
        ("area =", '"an area" =', 3, 'tags: "an area" is not a tag'),
        ("org.example/level", "dagster/code", 3, 'tags: "dagster/code" has a prefix of tags that'),
        ('"Who knows whom."', "1", 1, "description = 1 is not a text in quotes"),
    ],
)
def test_mistakes_have_their_line(tmp_path, old, new, line, problem):
    with pytest.raises(InputError) as caught:
        load(tmp_path, NOTES.replace(old, new) + TABLES)
    assert f"mine.toml:{line}: {problem}" in str(caught.value)


def test_what_is_refused_is_what_dagster_refuses():
    for owner in ("graphs", "team:"):
        with pytest.raises(dg.DagsterInvalidDefinitionError):
            dg.AssetSpec("a", owners=[owner])
    for tags in ({"an area": ""}, {"area": "social media"}):
        with pytest.raises(dg.DagsterInvalidDefinitionError):
            dg.AssetSpec("a", tags=tags)
