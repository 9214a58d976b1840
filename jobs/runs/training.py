"""Train tables as steps, and as assets that train in a child process.

No `from __future__ import annotations` here: Dagster reads the types of a run's config at run time.
"""

import sys
from collections.abc import Iterator
from typing import Any

import dagster as dg

from assets.definitions import Surroundings, asset_of, materialized
from assets.pipeline.file import Pipeline
from assets.pipeline.notes import origin_of
from assets.pipeline.steps import Step, Versions, find_all, find_inputs
from jobs.runs.children import ChildProcesses
from trainers.config import model_configs
from trainers.recipe import REUSED, ModelRecipe

POOL = "gpu"


class TrainingRun(dg.Config):
    """What one run of a training may set; nothing of it changes a result. The rest stands in the pipeline file."""

    # Goes on from the last checkpoint, where there is one.
    resume: bool = False
    # Trains again what is trained already; the new models take the places of the old ones.
    retrain: bool = False
    # Which epochs get a line in the log: some (about a hundred), all or none.
    epoch_lines: str = "some"


def training_steps(pipeline: Pipeline, preprocessing: list[Step]) -> list[Step]:
    """Returns one step for each train table.

    Raises:
        InputError: a table is named like a stage, or the pipeline does not say how to sample.
    """
    sources, recipe = {step.name: step for step in preprocessing}, ModelRecipe()
    return [
        Step(
            pipeline=pipeline.name,
            name=table.name,
            recipe=recipe,
            configs=configs,
            inputs={
                name: sources[pipeline.step_of(name, table.feature_table)]
                for name in ("graph", "features", *table.technique.inputs)
            },
            # Which rows are cached and where batches come from changes no weight: needed, recorded and no part of the version.
            reads={name: sources[name] for name in table.reads if name in sources},
            checks=recipe.expected_checks(configs[0]),
            command=f"graphmill train {pipeline.reference} {table.name}",
            origin=origin_of(pipeline.path, pipeline.text, pipeline.notes, ("train", index)),
        )
        for index, table in enumerate(pipeline.train)
        for configs in (tuple(model_configs(table, pipeline.sampling, pipeline.seed)),)
    ]


def training_asset(
    step: Step, pipeline: Pipeline, around: Surroundings, children: ChildProcesses
) -> dg.AssetsDefinition:
    """Returns the asset that trains a table's models in a child process, unless the store has them all.

    Args:
        step: the table's step.
        pipeline: the recipe; its text goes to the child, so that an edit meanwhile changes nothing.
        around: the store and the listeners.
        children: runs the child.
    """

    def body(context: dg.AssetExecutionContext, config: TrainingRun) -> Iterator[Any]:
        versions = around.make_versions()
        models, reported = find_all(around.store, step, versions), {}
        models = None if config.retrain else models
        reused = models is not None
        for model in models or ():
            around.report(f"{step.name}: reused {model.label}{REUSED}")
        if models is None:
            found = find_inputs(around.store, step, versions)
            invocation = children.run(
                context=context,
                command=[sys.executable, "-m", "trainers", pipeline.name, step.name],
                extras={
                    "path": str(pipeline.path),
                    "text": pipeline.text,
                    "table": step.name,
                    "home": str(around.store.home),
                    "inputs": {role: artifact.version for role, artifact in found.items()},
                    "resume": config.resume,
                    "retrain": config.retrain,
                    "epoch_lines": config.epoch_lines,
                },
            )
            reported = dict(invocation.get_materialize_result().metadata or {})
            models = _trained(around, step, versions)
        from jobs.figures.cost import cost_metadata
        from jobs.figures.curves import curve_metadata
        from jobs.figures.ledger_numbers import traffic_metadata
        from jobs.figures.timeline import timeline_metadata

        last = models[-1]
        shown = curve_metadata(models) | cost_metadata(last) | timeline_metadata(last) | traffic_metadata(last)
        yield materialized(step, models, versions, reused=reused, extra=reported | shown)

    return asset_of([step], body, pool=POOL, config=TrainingRun)


def _trained(around: Surroundings, step: Step, versions: Versions) -> list:
    """Returns the models that a child has just trained.

    Raises:
        dagster.Failure: the child ended well, but the store has not all of them.
    """
    models = find_all(around.store, step, versions)
    if models is None:
        missing = [version for version in versions.of(step) if around.store.find(step.recipe.name, version) is None]
        raise dg.Failure(
            description=f"the training ended well, but {around.store.root} lacks {missing}", allow_retries=False
        )
    return models
