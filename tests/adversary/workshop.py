"""A small pipeline with every stage and every trainer there is, and how one of its steps is carried out without a terminal.

Which stages and trainers these are comes from the catalogue and the table of techniques, so a new one is attacked as soon as it is listed.
What it needs besides its defaults stands in `TABLES`; a test says when an entry is missing.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from graphmill.assets.building.materialize import materialize
from graphmill.assets.building.stage import Progress, Stage
from graphmill.assets.pipeline.catalogue import stages
from graphmill.assets.pipeline.file import Pipeline, parse_pipeline
from graphmill.assets.pipeline.steps import Step, Versions, find_inputs, preprocessing_steps, recipe_hash
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.jobs.definitions import execution_of
from graphmill.jobs.runs.training import training_steps
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.techniques import DEFAULT, TECHNIQUES
from graphmill.trainers.run import train_table

TABLES = {
    "graph": 'source = "citation"\nnodes = 400\nedges = 2000\nfeatures = 200\nclasses = 4\np_in = 0.6\np_copy = 0.5',
    "sampling": "fanouts = [3, 3]\nbatch_size = 64\nreuse = 1",
    "partitions": 'method = "ldg"\nparts = 2',
    "chunks": "chunks_per_part = 2",
    "memory": 'device = "5%"\nhost = "10%"\ndisk = "2x"',
}
"""Keys of the tables of stages that want other values than their defaults."""
TRAIN = 'model = "sage"\nhidden = 8\nepochs = 2\nthreads = 1\nlr = 0.02\nnorm = "none"'
MINI_BATCHES = '\naccumulate = 2\nqueue = "4MiB"'
SETTINGS = {
    "fresh": 'arena = "60%"',
    "fresh-distributed": 'ranks = 1\narena = "60%"',
    "distributed": "ranks = 1",
    "factored": "samplers = 1\ntrainers = 1",
    "fresh-factored": 'samplers = 1\ntrainers = 1\narena = "60%"',
}
"""Keys of the tables of trainers."""
WEIGHTED = {"sampling": TABLES["sampling"] + '\nmethod = "weighted"\nweights = "node:in_degree"'}
"""The second pipeline: sampling tables are refused by some trainers, so they have one of their own."""


def text(name: str, tables: dict[str, str], trainers: Iterable[str]) -> str:
    """Returns a pipeline file with these tables, one [[train]] table per trainer."""
    trains = [
        f'[[train]]\nname = "{each}"\ntrial = "{each}"\ntrainer = "{each}"\n'
        + TRAIN
        + ("" if TECHNIQUES[each].whole_graph else MINI_BATCHES)
        + (f"\n\n[train.{each}]\n{SETTINGS.get(each, '')}" if TECHNIQUES[each].settings else "")
        for each in trainers
    ]
    named = [f"[{table}]\n{keys}" for table, keys in tables.items()]
    return "\n\n".join([f'name = "{name}"\nseed = 5', *named, *trains]) + "\n"


@functools.cache
def pipelines() -> tuple[Pipeline, ...]:
    """Returns the pipelines, which share what they can."""
    named = dict.fromkeys(["graph", "sampling", *(stage.table for stage in stages() if stage.table)])
    everything = {table: TABLES.get(table, "") for table in named if table != "features"}
    texts = {
        "everything": text("everything", everything, TECHNIQUES),
        "weighted": text("weighted", {"graph": TABLES["graph"]} | WEIGHTED, [DEFAULT]),
    }
    return tuple(parse_pipeline(Path(f"{name}.toml"), made.encode(), TrainTable) for name, made in texts.items())


@functools.cache
def steps(home: Path) -> list[Step]:
    """Returns all steps, in the order in which they run; what pipelines share occurs once."""
    found: dict[str, Step] = {}
    for pipeline in pipelines():
        data = preprocessing_steps(pipeline, home)
        for step in (*data, *training_steps(pipeline, data)):
            found.setdefault(recipe_hash(step), step)
    return list(found.values())


def label(step: Step) -> str:
    """Returns PIPELINE/STEP."""
    return "/".join(step.key)


def build(home: Path, pipeline: Pipeline) -> None:
    """Carries out all steps of a pipeline."""
    data = preprocessing_steps(pipeline, home)
    for step in (*data, *training_steps(pipeline, data)):
        carry_out(home, step, pipeline=pipeline)


def carry_out(
    home: Path,
    step: Step,
    *,
    resume: bool = False,
    pipeline: Pipeline | None = None,
    progress: Progress | None = None,
) -> Artifact:
    """Builds or trains what a step asks for, unless the store has it, in this process.

    Args:
        home: of the store.
        step: what is to be made.
        resume: a training goes on from its checkpoint.
        pipeline: of the step; None for one of `pipelines`.
        progress: listener of a training.
    """
    store, stage, pipeline = Store(home), step.recipe, pipeline or pipeline_of(step)
    found = find_inputs(store, step, Versions())
    tables = [table for table in pipeline.train if table.name == step.name]
    if tables:
        inputs, reads = ({role: found[role] for role in roles} for roles in (step.inputs, step.reads))
        run: dict[str, Any] = {"reads": reads, "resume": resume, "report": lambda line: None, "progress": progress}
        return train_table(store, inputs, tables[0], pipeline.sampling, pipeline.seed, **run)[0]
    assert isinstance(stage, Stage)
    return materialize(store, stage, step.configs[0], execution_of(stage, 1), found)


def pipeline_of(step: Step) -> Pipeline:
    """Returns the pipeline that a step is of."""
    return next(each for each in pipelines() if each.name == step.pipeline)


def find(home: Path, step: Step) -> Artifact | None:
    """Returns what the store has of a step."""
    return Store(home).find(step.recipe.name, Versions().only(step))


def folders(home: Path, step: Step) -> list[Path]:
    """Returns the folders of a step's artifact and of its parts."""
    made = find(home, step)
    return [] if made is None else [made.path, *(made.open_part(name).path for name in made.parts)]


def content(artifact: Artifact) -> list[str]:
    """Returns the digests of what decides the result in an artifact and its parts; the ledger of a model has times."""
    parts = [artifact.open_part(name) for name in artifact.parts]
    return [_content(each) for each in (artifact, *parts)]


def _content(artifact: Artifact) -> str:
    return artifact.files["weights.safetensors"]["digest"] if artifact.stage == "model" else artifact.content


def is_training(step: Step) -> bool:
    """Tells whether a step trains."""
    return step.recipe.name == "model"


def predicted(home: Path, step: Step) -> bytes:
    """Returns the classes and embeddings that a trained step predicts."""
    import polars

    from graphmill.trainers.inference.predict import predict_table

    out = home / "predicted.parquet"
    predict_table(Store(home), pipeline_of(step), step.name, out, workspace="8MiB", threads=1)
    table = polars.read_parquet(out)
    out.unlink()
    return table.drop("embedding").write_csv().encode()
