"""The code location: pipeline files as assets, checks and jobs.

`workspace.yaml` loads this file. Dagster has the tree on its import path only while it loads; graphmill finds its modules by itself
once it is imported. Pipelines that do not parse stay visible, as an asset that lists their mistakes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import dagster as dg

import graphmill.jobs.runs.instance  # noqa: F401
from graphmill.assets.building.page import markdown_code
from graphmill.assets.building.stage import OnePass, Silent
from graphmill.assets.definitions import Slot, Surroundings, group_of, raw_asset, source_assets, stage_asset
from graphmill.assets.pipeline.file import Pipeline, parse_pipeline
from graphmill.assets.pipeline.rules import JOBS
from graphmill.assets.pipeline.schema import MissingDataError
from graphmill.assets.pipeline.shown import TRIAL, allowed_name, key_of, raw_key
from graphmill.assets.pipeline.steps import Step
from graphmill.assets.score import SCORE
from graphmill.assets.storage.store import Store
from graphmill.jobs.operations.difference import PIPELINE_TAG, schedules_of
from graphmill.jobs.operations.failures import failure_sensor
from graphmill.jobs.operations.reload import reload_sensor
from graphmill.jobs.operations.size import takes_memory
from graphmill.jobs.runs.children import CancelableProgress, ChildProcesses
from graphmill.jobs.runs.pinned import pinned_files
from graphmill.jobs.runs.shown import report_address, shown_files, shown_trials
from graphmill.jobs.runs.slot import MEMORY_POOL, POOL, held_slot, in_turn
from graphmill.jobs.runs.training import all_steps, steps_by_job, training_asset
from graphmill.kernels.errors import InputError
from graphmill.trainers.inference.scoring.stage import ScoreExecution
from graphmill.trainers.recipe.config import TrainTable

WHAT = {
    "preprocess": "Builds the data of pipeline {name} and trains nothing. What the store has already is reused. Run it first where a "
    "training is to start at once, or after an edit of the graph, to see sizes and checks.",
    "train": "Trains the models of pipeline {name} from data that are there, one training at a time. A model that the store has is "
    "reused. A training without its data fails with the command that builds them.",
    "all": "Builds the data of pipeline {name}, then trains its models. What the store has already is reused, so running it again costs "
    "seconds. It does what `graphmill run` does.",
}
"""Selection -> description of its job, for its page in the UI."""

MISTAKES, NEEDS_DATA = "mistakes", "needs_data"
CHECK_OP = "graphmill__mistakes"
FILE_IS_READ, FILE_SAYS = "pipeline_file_is_read", "The pipeline file has no mistakes, and its data have a place."


def build_defs(
    pipelines: Iterable[Pipeline] | None = None,
    around: Surroundings | None = None,
    children: ChildProcesses | None = None,
    threads: int | None = None,
) -> dg.Definitions:
    """Returns the definitions of pipelines.

    Args:
        pipelines: recipes, None for the files that the web UI shows; a file with mistakes then becomes an asset that lists them.
        around: the store and the listeners, None for the default home without listeners.
        children: client that runs trainings, None for one with the default grace.
        threads: number of threads that a stage may use, None for its default.

    Raises:
        InputError: a given pipeline cannot be turned into assets.
    """
    around = around or surroundings()
    children = children or ChildProcesses()
    parts: list[dg.Definitions] = []
    files, trials, mistakes = {}, {}, {}
    if pipelines is None:
        files, trials = pinned_files(shown_files), pinned_files(shown_trials, "trials")
        found, mistakes = read_pipelines(files)
    else:
        found = list(pipelines)
    for pipeline in found:
        try:
            parts.append(definitions_of(pipeline, around, children, threads))
        except Exception as error:  # any error: one file must not take the others out of the UI
            if pipelines is not None:
                raise
            text = f"{pipeline.path} cannot be turned into assets:\n  {type(error).__name__}: {error}"
            mistakes[pipeline.name] = InputError(text)
    if pipelines is None:
        kinds = {
            name: NEEDS_DATA if isinstance(error, MissingDataError) else MISTAKES for name, error in mistakes.items()
        }
        wrong = {dg.AssetKey([name, kinds[name]]): error for name, error in mistakes.items()}
        told = [_evaluation(key, wrong[key]) for key in _checked(wrong)]
        noticed = reload_sensor(files | trials, lambda: shown_files() | shown_trials(), told=told)
        parts += [_mistakes(wrong), _trials(trials), dg.Definitions(sensors=[noticed])]
    # The executor is that of all jobs, also of the one in which the UI materialises what is selected there.
    return dg.Definitions.merge(*parts, dg.Definitions(executor=in_turn))


@dg.definitions
def defs() -> dg.Definitions:
    """The definitions of the pipeline files that the web UI shows (jobs/runs/shown.py); called by Dagster and not on import."""
    return build_defs()


def read_pipelines(files: Mapping[Path, bytes]) -> tuple[list[Pipeline], dict[str, InputError]]:
    """Returns the pipelines of files that can be turned into assets, and file name -> mistakes of the others."""
    found: dict[str, Pipeline] = {}
    mistakes: dict[str, InputError] = {}
    taken: dict[str, Path | str] = {CHECK_OP: "graphmill itself"}
    for path, data in files.items():
        try:
            pipeline = parse_pipeline(path, data, TrainTable)
            steps = all_steps(pipeline)
            if (same := found.get(group_of(pipeline.name))) is not None:
                raise InputError(f"{path} is named {pipeline.name}, and so is {same.path}", "rename one of them")
            names = _names_of(pipeline, steps)
            for name in sorted(names):
                if name in taken:
                    problem = f"{path} has a definition {name}, and so has {taken[name]}"
                    raise InputError(problem, "rename one of the pipelines, or one of their tables")
        except InputError as error:
            mistakes[path.stem] = error
        except Exception as error:  # any error: one file must not take the others out of the UI
            mistakes[path.stem] = InputError(f"{path} cannot be read:\n  {type(error).__name__}: {error}")
        else:
            found[group_of(pipeline.name)] = pipeline
            taken |= dict.fromkeys(names, path)
    return list(found.values()), mistakes


def _names_of(pipeline: Pipeline, steps: Iterable[Step]) -> set[str]:
    """Returns the names of a pipeline's ops and jobs. Dagster refuses all pipelines if two definitions share a name."""
    keys = [key for step in steps for key in ([key_of(step), raw_key(step)] if step.external else [key_of(step)])]
    return {key.to_python_identifier() for key in keys} | {*job_names(pipeline.name).values()}


def job_names(pipeline: str) -> dict[str, str]:
    """Returns selection -> job name of a pipeline, as `dagster job launch -j` takes it."""
    return {selection: f"{group_of(pipeline)}__{selection}" for selection in JOBS}


def surroundings(home: Path | None = None) -> Surroundings:
    """Returns the store of a home, None for the default one, with steps that a cancellation ends and without other listeners."""
    return Surroundings(store=Store(home), make_progress=lambda context: CancelableProgress(Silent(), context))


def definitions_of(
    pipeline: Pipeline, around: Surroundings, children: ChildProcesses, threads: int | None
) -> dg.Definitions:
    """Returns the assets, checks, jobs, schedules and sensors of one pipeline, without an executor."""
    # The command that launched a run may name other machines than the file.
    around = replace(around, on=around.on or pipeline.on)
    selections = steps_by_job(pipeline, around.store.home)
    scoring = [step for step in selections["all"] if step.recipe.name == SCORE]
    data, training = (
        [step for step in selections[job] if step.recipe.name != SCORE] for job in ("preprocess", "train")
    )
    source = [step for step in data if isinstance(step.recipe, OnePass)]
    heavy = _slot_of(pipeline, "graph", around)
    built: list[Any] = [source_assets(source, execution_of(source[0].recipe, threads), around, *heavy)]
    built += [
        stage_asset(step, execution_of(step.recipe, threads), around, *_slot_of(pipeline, step.recipe.name, around))
        for step in data
        if step not in source
    ]
    built += [raw_asset(step, around) for step in data if step.external]
    built += [training_asset(step, pipeline, around, children) for step in training]
    # A prediction takes what a training takes.
    built += [
        stage_asset(step, ScoreExecution(), around, lambda context: held_slot(context, POOL, around.report), POOL)
        for step in scoring
    ]
    asset_jobs = {
        selection: _job(name, selections[selection], pipeline, selection)
        for selection, name in job_names(pipeline.name).items()
        if selections[selection]
    }
    schedules, sensors = schedules_of(pipeline, asset_jobs, selections, around)
    telling = failure_sensor(pipeline, list(asset_jobs.values()))
    sensors += [telling] if telling else []
    return dg.Definitions(assets=built, jobs=list(asset_jobs.values()), schedules=schedules, sensors=sensors)


def _slot_of(pipeline: Pipeline, stage: str, around: Surroundings) -> tuple[Slot | None, str]:
    """Returns the slot that a stage's step holds while it builds, and the slot's pool, `memory`; None and "" if it takes little memory."""
    if not takes_memory(pipeline, stage):
        return None, ""
    return lambda context: held_slot(context, MEMORY_POOL, around.report), MEMORY_POOL


def execution_of(stage: Any, threads: int | None) -> Any:
    """Returns the Execution config of a stage: its defaults, with the number of threads if it has that field."""
    threaded = threads is not None and "threads" in {field.name for field in fields(stage.Execution)}
    return stage.Execution(threads=threads) if threaded else stage.Execution()


def _job(name: str, steps: list[Step], pipeline: Pipeline, selection: str) -> Any:
    notes, names = pipeline.notes, ", ".join(f"`{step.name}`" for step in steps)
    path = markdown_code(str(pipeline.path))
    description = f"{WHAT[selection].format(name=f'`{pipeline.name}`')}\n\nSteps: {names}.\n\nPipeline file: {path}"
    if address := report_address(pipeline):
        written = f"{markdown_code(f'graphmill report {pipeline.reference}')} writes it to a file."
        description += f"\n\n[The report of its models]({address}), in the UI that `graphmill ui` starts; {written}"
    return dg.define_asset_job(
        name,
        selection=dg.AssetSelection.assets(*(key_of(step) for step in steps)),
        description="\n\n".join(part for part in (notes.description, description) if part),
        tags={**notes.tags, PIPELINE_TAG: pipeline.name},
    )


def _trials(trials: Iterable[Path]) -> dg.Definitions:
    """Returns definitions of the assets of trials, which no pipeline file asks for, so that each says what it is, in a group of its own."""
    specs = []
    for pipeline, _, name in (path.as_posix().split("/", 2) for path in trials):
        what = f"{markdown_code(name)} of pipeline {markdown_code(pipeline)} with other keys than its file has, set by `--set`."
        more = "`graphmill leaderboard PIPELINE --all` compares the models of trials, `graphmill rm --trials PIPELINE` removes them."
        group = allowed_name(f"{pipeline}_trials")
        key = dg.AssetKey([pipeline, TRIAL, name])
        specs.append(dg.AssetSpec(key, group_name=group, description=f"A trial: {what}\n\n{more}"))
    return dg.Definitions(assets=specs)


def _mistakes(wrong: Mapping[dg.AssetKey, InputError]) -> dg.Definitions:
    """Returns assets that cannot be built. Each says why a pipeline file has no other assets and what to do; its check fails."""
    specs = [
        dg.AssetSpec(
            key,
            group_name=allowed_name(key.path[0]),
            description=f"{str(error).splitlines()[0].rstrip(':')}\n\n```\n{error}\n```",
        )
        for key, error in wrong.items()
    ]
    checks = [dg.AssetCheckSpec(FILE_IS_READ, asset=key, description=FILE_SAYS) for key in _checked(wrong)]
    if not checks:
        return dg.Definitions(assets=specs)

    @dg.multi_asset_check(name=CHECK_OP, specs=checks, can_subset=True)
    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        for key in context.selected_asset_check_keys:
            told = _evaluation(key.asset_key, wrong[key.asset_key])
            yield dg.AssetCheckResult(
                asset_key=key.asset_key, check_name=key.name, passed=False, description=told.description
            )

    return dg.Definitions(assets=specs, asset_checks=[check])


def _checked(wrong: Iterable[dg.AssetKey]) -> list[dg.AssetKey]:
    """Returns the keys of assets that have a check. Dagster refuses names of checks with other letters than ASCII's, and equal ones."""
    named = {key.to_python_identifier(): key for key in wrong}
    return [key for name, key in named.items() if name == allowed_name(name)]


def _evaluation(key: dg.AssetKey, error: InputError) -> dg.AssetCheckEvaluation:
    """Returns the failed check of a pipeline file with mistakes, as it is told to the history without a run."""
    return dg.AssetCheckEvaluation(
        asset_key=key, check_name=FILE_IS_READ, passed=False, metadata={}, description=str(error)
    )
