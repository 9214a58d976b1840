"""Train tables as steps, and as assets that train in a child process.

No `from __future__ import annotations` here: Dagster reads the types of a run's config at run time.
"""

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import dagster as dg

from graphmill.assets.costs.needs import COMMAND, Need, require_fit, sizes_of
from graphmill.assets.definitions import Surroundings, asset_of
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.notes import origin_of
from graphmill.assets.pipeline.shown import key_of, materialized
from graphmill.assets.pipeline.steps import (
    Step,
    Versions,
    find_all,
    find_inputs,
    join_steps,
    preprocessing_steps,
    split_steps,
)
from graphmill.assets.score import SCORE
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.system.machine import memory_bytes
from graphmill.jobs.runs.children import ChildProcesses
from graphmill.jobs.runs.shown import report_address
from graphmill.jobs.runs.slot import POOL, held_slot
from graphmill.trainers.inference.scoring.stage import ScoreStage
from graphmill.trainers.recipe.config import find_table, model_configs
from graphmill.trainers.recipe.inputs import model_step
from graphmill.trainers.recipe.order import Order
from graphmill.trainers.recipe.recipe import REUSED, START, ModelRecipe
from graphmill.trainers.recipe.together import EDGE_ATTRIBUTES, unused_attributes
from graphmill.trainers.record.checkpoint_head import Waiting, checkpoint_path, waiting_here, waiting_run

LAUNCHED_TAG = "graphmill/launched_from"
"""Tag of a run: what launched it, if that was no page or daemon of Dagster."""
EpochLines = Enum("EpochLines", {"some": "some", "all": "all", "none": "none"})
"""The choices of `epoch_lines`, named as users write them; the launchpad refuses others before a step starts."""


class TrainingRun(dg.Config):
    """Settings of one run of a training, none of which changes a result. The rest stands in the pipeline file."""

    # Goes on from the last checkpoint, if there is one; false begins anew. None goes on, unless the command line or `retrain` asked for the
    # training and this run does not repeat another one.
    resume: bool | None = None
    # Trains models again that exist already; the new models replace the old ones.
    retrain: bool = False
    # Which epochs get a line in the log: some (about a hundred), all or none.
    epoch_lines: EpochLines = EpochLines["some"]
    # Processes that share the training of a table with trainer = "distributed"; 0 for the number that the table names.
    ranks: int = 0


def all_steps(pipeline: Pipeline, home: Path | None = None) -> list[Step]:
    """Returns the steps of a pipeline, data first; errors are those of `preprocessing_steps` and `training_steps`."""
    return steps_by_job(pipeline, home)["all"]


def steps_by_job(pipeline: Pipeline, home: Path | None = None) -> dict[str, list[Step]]:
    """Returns job -> its steps, in their order: "preprocess", "train" and "all".

    Predictions by a model of another pipeline are data, and those by one of this file belong to its trainings.
    """
    data = preprocessing_steps(pipeline, home)
    training = training_steps(pipeline, data, home)
    scoring = scoring_steps(pipeline, data, training, home)
    of_own = {step.key for step in training}
    late = [step for step in scoring if step.inputs["model"].key in of_own]
    early = [] if late else scoring
    return {"preprocess": [*data, *early], "train": [*training, *late], "all": [*data, *training, *scoring]}


def training_steps(pipeline: Pipeline, preprocessing: list[Step], home: Path | None = None) -> list[Step]:
    """Returns one step for each train table.

    Args:
        home: the home in whose store models are that a table names as its start.

    Raises:
        InputError: a table is named like a stage, or the pipeline lacks `[sampling]`.
    """
    trial = bool(pipeline.settings)
    each = [
        _steps_of(one, split_steps(preprocessing, place), home, trial) for place, one in enumerate(pipeline.by_split)
    ]
    return join_steps(each, pipeline.splits, preprocessing, lambda name: f"graphmill train {pipeline.reference} {name}")


def _steps_of(pipeline: Pipeline, preprocessing: list[Step], home: Path | None, trial: bool) -> list[Step]:
    sources, recipe, made = {step.name: step for step in preprocessing}, ModelRecipe(), dict[str, Step]()
    for index, table in enumerate(pipeline.train):
        of_set = pipeline.of_set(table.sample_set)
        configs = tuple(model_configs(table, of_set.sampling, pipeline.seed))
        roles = [name for name in recipe.inputs(configs[0]) if name != START]
        start = {START: model_step(table.start, pipeline, made, home)} if table.start else {}
        made[table.name] = Step(
            pipeline=pipeline.name,
            name=table.name,
            recipe=recipe,
            configs=configs,
            inputs={name: sources[of_set.step_of(name, table.feature_table)] for name in roles} | start,
            # The cached rows and the origin of batches change no weight: they are needed and recorded, but not part of the version.
            reads={name: sources[step] for name in table.reads if (step := of_set.step_of(name)) in sources},
            checks=recipe.expected_checks(configs[0]),
            command=f"graphmill train {pipeline.reference} {table.name}",
            origin=origin_of(pipeline.path, pipeline.text, pipeline.notes, ("train", index)),
            trial=trial,
        )
    return list(made.values())


def training_asset(
    step: Step, pipeline: Pipeline, around: Surroundings, children: ChildProcesses
) -> dg.AssetsDefinition:
    """Returns the asset that trains a table's models in a child process, unless the store has them all.

    Args:
        pipeline: the recipe; its text goes to the child, so a later edit changes nothing.
    """

    def body(context: dg.AssetExecutionContext, config: TrainingRun) -> Iterator[Any]:
        versions = around.make_versions()

        def ready(wanted: Step) -> list[Artifact] | None:
            found = None if config.retrain else find_all(around.store, wanted, versions)
            for model in found or ():
                around.report(f"{step.name}: reused {model.label}{REUSED}")
            return found

        models, reported = ready(step), {}
        if ignored := _ignored(pipeline, step, around, versions):
            reported["not_used"] = "; ".join(ignored)
        reused = models is not None
        if models is None:
            found = [find_inputs(around.store, each, versions) for each in step.apart]
            for sentence in ignored:
                around.report(f"{step.name}: {sentence}")
            resume = _goes_on(context, config, step, around, versions)
            with _telling_how_to_go_on(context, step, around, versions), held_slot(context, POOL, around.report):
                for each, one, inputs in zip(step.apart, pipeline.by_split, found, strict=True):
                    if ready(each) is None:
                        order = _order(one, step.name, around, inputs, config, resume)
                        command = [sys.executable, "-m", "graphmill.trainers", pipeline.name, step.name]
                        need = _need(one, each, inputs)
                        if need is not None and not around.on:  # the kernel would end the command without a word
                            waited = multiprocessing.parent_process() is not None  # by what started this step's process
                            require_fit(need.beside(COMMAND) if waited else need, memory_bytes())
                        invocation = children.run(context=context, command=command, extras=order.plain(), need=need)
                        reported |= dict(invocation.get_materialize_result().metadata or {})
            models = _trained(around, step, versions)
            reported["trained_models"] = len(models)
        if address := report_address(pipeline):
            reported["report"] = dg.MetadataValue.url(address)
        shown, drawn = _shown(context.instance, step, models)
        yield materialized(step, models, versions, reused=reused, extra=reported | shown, tags=drawn)

    # Trainings run in the order of the file, after data that is ready to be built.
    place = [table.name for table in pipeline.train].index(step.name)
    return asset_of([step], body, around, config=TrainingRun, priority=-1 - place, pool=POOL)


def _goes_on(
    context: dg.AssetExecutionContext, config: TrainingRun, step: Step, around: Surroundings, versions: Versions
) -> bool:
    """Tells whether a training goes on from a checkpoint, and logs which one before anything else of the training.

    A run that repeats another one, by hand or by a retry policy, has the other's config and tags, so these do not say that it begins anew.
    """
    if config.resume is not None:
        return config.resume
    repeats = context.run.parent_run_id
    if not (repeats or context.retry_number) and (config.retrain or LAUNCHED_TAG in context.run.tags):
        return False
    found = _checkpoints(step, around, versions, waiting_run)
    of = f" of run {repeats[:8]}, which this run repeats" if repeats else ""
    for each in found:
        context.log.info(
            f"{step.name}: goes on from the checkpoint of {each.place}{of}; `resume: false` would begin anew"
        )
    return bool(found)


def _checkpoints(
    step: Step, around: Surroundings, versions: Versions, read: Callable[..., Waiting | None]
) -> list[Waiting]:
    """Returns the positions of the checkpoints that a training would go on from; `read` is `waiting_run` or `waiting_here`."""
    folder, found = around.store.home / "checkpoints", []
    for version in versions.of(step):
        trained = around.store.find(step.recipe.name, version) is not None
        found.append(read(checkpoint_path(folder, version), version, ended=not trained))
    return [each for each in found if each is not None]


@contextmanager
def _telling_how_to_go_on(
    context: dg.AssetExecutionContext, step: Step, around: Surroundings, versions: Versions
) -> Iterator[None]:
    """Logs, for the page of a run whose training was cancelled, from where and how the training goes on."""
    try:
        yield
    except (dg.DagsterExecutionInterruptedError, KeyboardInterrupt):
        # An object store could take longer to answer than a step has after its cancellation.
        places = " and ".join(each.place for each in _checkpoints(step, around, versions, waiting_here))
        kept = f"the checkpoint of {places} is kept" if places else "it has no checkpoint yet, so it will begin anew"
        how = f"re-execute this run, materialize {'/'.join(step.key)}, or use the command line: {step.command} --resume"
        context.log.warning(f"{step.name}: cancelled; {kept}. To go on, {how}")
        raise


def _shown(
    instance: dg.DagsterInstance, step: Step, models: Sequence[Artifact]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the figures and numbers of a table's models, and the tag that says what the figures were drawn from."""
    from graphmill.jobs.figures.class_scores import class_metadata, column_metadata
    from graphmill.jobs.figures.cost import traffic_metadata
    from graphmill.jobs.figures.curves import DRAWN_TAG, drawn_from, epoch_metadata, pictures

    splits = [each.split for each in step.apart for _ in each.configs]
    shown = pictures(instance, key_of(step), models, splits) | epoch_metadata(models) | traffic_metadata(models[-1])
    return shown | class_metadata(models) | column_metadata(models), {DRAWN_TAG: drawn_from(models, splits)}


def _ignored(pipeline: Pipeline, step: Step, around: Surroundings, versions: Versions) -> list[str]:
    """Returns a sentence for each attribute of the stored edges that the training of a table does not use."""
    graph = around.store.find("graph", versions.only(step.apart[0].inputs["graph"]))
    stored = [] if graph is None else [name for name in EDGE_ATTRIBUTES if f"{name}.npy" in graph.files]
    table = find_table(pipeline, step.name)
    return unused_attributes(table, pipeline.sampling_of(table), stored)


def _order(
    pipeline: Pipeline,
    name: str,
    around: Surroundings,
    inputs: Mapping[str, Artifact],
    config: TrainingRun,
    resume: bool,
) -> Order:
    """Returns the order for a child: a table to train on one split."""
    return Order(
        pipeline=pipeline,
        table=name,
        home=around.store.home,
        inputs={role: artifact.version for role, artifact in inputs.items()},
        resume=resume,
        retrain=config.retrain,
        epoch_lines=config.epoch_lines.value,
        ranks=config.ranks,
        on=around.on,
    )


def _need(pipeline: Pipeline, step: Step, inputs: Mapping[str, Artifact]) -> Need | None:
    """Returns the memory of the training of a table, None if there is no formula for it."""
    table, sizes = find_table(pipeline, step.name), sizes_of(inputs)
    return None if sizes is None else step.recipe.need(step.configs[0], table.execution, sizes)


def _trained(around: Surroundings, step: Step, versions: Versions) -> list:
    """Returns the models that a child has just trained.

    Raises:
        dagster.Failure: the child ended without error, but the store lacks some of them.
    """
    models = find_all(around.store, step, versions)
    if models is None:
        missing = [version for version in versions.of(step) if around.store.find(step.recipe.name, version) is None]
        raise dg.Failure(
            description=f"the training ended well, but {around.store.root} lacks {missing}", allow_retries=False
        )
    return models


DRAWN_FROM = ("sampling_tables",)
"""Stages from which a model may draw neighbours, where the pipeline has them."""


def scoring_steps(pipeline: Pipeline, data: list[Step], training: list[Step], home: Path | None) -> list[Step]:
    """Returns the step that predicts, in a list; none if the file has no table `[score]`."""
    if pipeline.score is None:
        return []
    each = [
        [_step_of(one, split_steps(data, place), split_steps(training, place), home, trial=bool(pipeline.settings))]
        for place, one in enumerate(pipeline.by_split)
    ]
    return join_steps(each, pipeline.splits, [*data, *training], lambda name: f"graphmill run {pipeline.reference}")


def _step_of(pipeline: Pipeline, data: list[Step], training: list[Step], home: Path | None, *, trial: bool) -> Step:
    table = pipeline.score
    assert table is not None
    steps = {step.name: step for step in data}
    sampled = [name for name in DRAWN_FROM if name in steps]
    recipe = ScoreStage(sampled)
    read = {name: steps[pipeline.step_of(name)] for name in ("graph", "features", *sampled)}
    model = model_step(table.model, pipeline, {step.name: step for step in training}, home)
    return Step(
        pipeline=pipeline.name,
        name=SCORE,
        recipe=recipe,
        configs=(table,),
        inputs={**read, "model": model},
        checks=recipe.expected_checks(table),
        command=f"graphmill run {pipeline.reference}",
        origin=origin_of(pipeline.path, pipeline.text, pipeline.notes, (SCORE,)),
        trial=trial,
    )
