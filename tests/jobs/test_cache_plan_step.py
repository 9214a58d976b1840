"""The cache_plan step of a pipeline: mistakes in its keys, what it reads, and a run that builds it."""

import pytest

from graphmill.assets.pipeline.file import load_pipeline
from graphmill.assets.pipeline.steps import preprocessing_steps, recipe_hash
from graphmill.jobs.launch import Launch, launch
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from tests.recipes import write_tiny

pytestmark = pytest.mark.usefixtures("quick_launches")

MEMORY = '[memory]\ndevice = "10%"\nhost = "10%"\ndisk = "50x"\n'


def load(folder, tables):
    path = write_tiny(folder)
    path.write_text(path.read_text() + tables)
    return load_pipeline(path, TrainTable)


@pytest.mark.parametrize(
    ("tables", "mistakes"),
    [
        (MEMORY + "[cache_plan]\n", ["[cache_plan] needs a table [samples]"]),
        ("[samples]\nepochs = 1\n[cache_plan]\n", ["[cache_plan] needs a table [memory]"]),
        (
            f'{MEMORY}[samples]\nepochs = 1\n[cache_plan]\norder = "grey"\nsegment = 3\n',
            ["order", "segment", "did you mean segment_size"],
        ),
    ],
)
def test_mistakes_are_reported_with_their_line(tmp_path, tables, mistakes):
    with pytest.raises(InputError) as caught:
        load(tmp_path, tables)
    assert all(mistake in str(caught.value) for mistake in mistakes) and "tiny.toml:" in str(caught.value)


def test_the_plan_follows_samples_and_memory(tmp_path):
    def plan_of(name, tables):
        steps = {step.name: step for step in preprocessing_steps(load(tmp_path / name, tables))}
        return steps["cache_plan"]

    tables = f"{MEMORY}[samples]\nepochs = 1\n[cache_plan]\n"
    plan = plan_of("a", tables)
    assert set(plan.inputs) == {"features", "samples", "budgets"}
    hashes = {recipe_hash(plan)}
    for number, other in enumerate(
        (
            tables.replace("epochs = 1", "epochs = 2"),
            tables.replace("50x", "40x"),
            tables + 'order = "minhash"\n',
            tables + "segment_size = 2\n",
        )
    ):
        hashes.add(recipe_hash(plan_of(f"b{number}", other)))
    assert len(hashes) == 5


def test_a_run_builds_the_plan_and_reuses_it(tmp_path):
    pipeline = load(tmp_path, f"{MEMORY}[samples]\nepochs = 1\n[cache_plan]\n")
    lines = []
    order = {"selection": "preprocess", "home": tmp_path / "home", "in_process": True, "report": lines.append}
    (plan,) = launch(Launch(pipeline=pipeline, **order)).artifacts["cache_plan"]
    numbers = plan.summary["numbers"]
    assert numbers["segment_size"] == 1 and numbers["disk_bytes"] > 0 and plan.verify() == []
    lines.clear()
    launch(Launch(pipeline=pipeline, threads=2, **order))
    assert all("reused" in line for line in lines if ":" in line)
