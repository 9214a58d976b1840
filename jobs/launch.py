"""Runs a pipeline from the command line through the same history as the web UI, so that the UI shows these runs too.

A small pipeline, and one whose artifacts are all there, runs in this process: starting a process for each step would take longer than the
steps. A big one runs each step in a process of its own, so that a stage's memory goes back to the system and a crash ends one step only.
Trainings are child processes in both. An interrupt ends the children, leaves the store sound and is raised as `KeyboardInterrupt`.
"""

import asyncio
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, Literal

import dagster as dg

from graphmill.assets.building.child import note_kills, why_killed
from graphmill.assets.building.interrupts import begin, blocked, watched_interrupts
from graphmill.assets.building.terminal import begin_to_print, copy_of, descriptor_of
from graphmill.assets.cluster.local import kept
from graphmill.assets.definitions import Surroundings
from graphmill.assets.pipeline.file import Pipeline, parse_pipeline
from graphmill.assets.pipeline.shown import key_of
from graphmill.assets.pipeline.steps import Step, Versions, find_all
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.home import IMPORTED_FROM, home_folder, one_home
from graphmill.assets.storage.store import Store
from graphmill.jobs.definitions import build_defs, job_names
from graphmill.jobs.operations.size import has_processes
from graphmill.jobs.operations.sound import require_sound
from graphmill.jobs.runs import watchers as _watchers  # noqa: F401 - for its import
from graphmill.jobs.runs.children import CancelableProgress, ChildProcesses, interrupts_cancel
from graphmill.jobs.runs.dead_runs import tell_dead_runs
from graphmill.jobs.runs.history_files import held_open
from graphmill.jobs.runs.instance import (
    UNUSABLE,
    HistoryError,
    environment,
    open_instance,
    refused_history,
    reporting_history,
)
from graphmill.jobs.runs.pinned import listed_in_ui
from graphmill.jobs.runs.slot import POOL, num_slots, start_method
from graphmill.jobs.runs.training import LAUNCHED_TAG, EpochLines, steps_by_job
from graphmill.kernels.environment import MASTER_ADDR, MASTER_PORT, answers, is_first, launcher
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.recipe import ModelRecipe
from graphmill.trainers.record.checkpoint_head import checkpoint_path, waiting_run
from graphmill.trainers.record.epoch_lines import Lines

Selection = Literal["preprocess", "train", "all"]


CRASHED = "ChildProcessCrashException"
"""Dagster's name for the error of a step whose process ended without a message."""
AFTER_A_KILL = "lower `threads`, batch_size, fanouts or [memory] if the memory ran out, then go on with the same command and --resume"


TAGS = {LAUNCHED_TAG: "command line"}


class StepError(RuntimeError):
    """A step failed by a defect, not by a user's input; the text holds its traceback."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The steps to run, and how."""

    # The recipe, whose text every process of the run uses.
    pipeline: Pipeline
    # preprocess = build the data, train = train on data that is there, all = both.
    selection: Selection = "all"
    # Train tables, all of them when empty.
    names: tuple[str, ...] = ()
    # The home of store and history, None for the default.
    home: Path | None = None
    # Threads that build the data, None for the default.
    threads: int | None = None
    # Trainings go on from their checkpoint, if there is one.
    resume: bool = False
    # Models that exist already are trained again.
    retrain: bool = False
    # The epochs of trainings that get a printed line.
    epoch_lines: Lines = "some"
    # Processes that share each training whose trainer allows it; 0 for the number that the tables name.
    ranks: int = 0
    # Address of the Ray cluster that builds parts and trains (assets/cluster/address.py); "" for what the file says, or this machine.
    on: str = ""
    # False gives each step a process; None decides by what is to be built, and by the sizes of graph, files, samples and packed chunks.
    in_process: bool | None = None
    # Gets a line about each artifact; None prints it.
    report: Callable[[str], None] | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A run that succeeded."""

    # Its id in the UI.
    run_id: str
    # Step name -> its artifact in the store now, for the steps that ran.
    artifacts: Mapping[str, Sequence[Artifact]]

    def __repr__(self) -> str:
        """Returns a line for the run and one for each of its steps, at most ten."""
        steps = [f"  {name}: {', '.join(each.label for each in made)}" for name, made in self.artifacts.items()]
        more = [f"  ... {len(steps) - 7} more steps"] if len(steps) > 8 else []
        shown = steps[: 7 if more else 8]
        return "\n".join(
            [f"run {self.run_id[:8]}", *(f"{line[:116]}..." if len(line) > 119 else line for line in shown), *more]
        )


@contextmanager
def outside_of_cells() -> Iterator[None]:
    """Hides the event loop in which a notebook runs its cells: Dagster begins one of its own, which another one would refuse."""
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)


def launch(order: Launch) -> Outcome:
    """Runs the selected steps and waits.

    Raises:
        InputError: a step's input is missing, or a value of the recipe does not fit.
        StepError: a step failed otherwise.
        KeyboardInterrupt: SIGINT or SIGTERM came, or the run was cancelled in the UI; the children are gone, the store is sound.
    """
    _refuse_launchers(order)
    steps = _selected(order)
    store, versions = Store(order.home), Versions()
    # A writer sweeps as well, but a run that reuses everything has none.
    store.sweep()
    note_kills()
    # Child processes and Dagster's own read these; a command line has one home for all it does.
    os.environ.update(environment(store.home))
    with (
        kept(order.on or order.pipeline.on) as on,
        _naming_checkpoints(steps, store, versions),
        reporting_history(store.home),
        open_instance(store.home) as instance,
        watched_interrupts() as noticed,
    ):
        tell_dead_runs(instance, order.report or print)
        order = replace(order, on=on)
        in_process = _in_process(order, steps, store, versions, instance)
        execute = _execute_here if in_process else _execute_in_processes
        involved = [each for step in steps for each in (step, *step.sources.values())]
        addresses = {(step.recipe.name, version) for step in involved for version in versions.of(step)}
        # Held from the first step to the last: a collection must not take the inputs of a later step.
        with (
            store.lease(*addresses),
            held_open(),
            listed_in_ui(instance, _job_name(order)),
            interrupts_cancel(instance, noticed),
        ):
            success, run_id, events = execute(order, steps, store, versions, instance)
        run = instance.get_run_by_id(run_id)
        if noticed() or (run is not None and run.status == dg.DagsterRunStatus.CANCELED):
            raise KeyboardInterrupt
        if not success:
            _raise_failures(events, store.home)
    found = {step.name: find_all(store, step, versions) for step in steps}
    return Outcome(run_id=run_id, artifacts={name: artifacts or [] for name, artifacts in found.items()})


def _refuse_launchers(order: Launch) -> None:
    """Refuses to train as one of several processes of a launcher: each would be a run of its own, and wait for the slot of another."""
    program, told = launcher()
    if not program or order.selection == "preprocess" or not order.pipeline.train:
        return
    # `ray symmetric-run` starts the command on the first node alone.
    if (order.on or order.pipeline.on) and is_first(told):
        return
    said = ", ".join(f"{name}={value}" for name, value in told.items())
    problem = f"{program} started this process as one of several, or its variables were left in this shell: {said}"
    if MASTER_ADDR in told and not answers(told[MASTER_ADDR], told.get(MASTER_PORT, "")):
        problem += f"; nobody answers at {told[MASTER_ADDR]}:{told.get(MASTER_PORT, '')}"
    asked = f"{order.pipeline.reference} {order.names[0] if order.names else order.pipeline.train[0].name}"
    raise InputError(
        problem,
        f"a launcher such as torchrun starts the ranks of a training by: python -m graphmill.trainers {asked}; without a launcher: "
        f"unset {' '.join(told)}, and `graphmill train` starts as many ranks as --ranks says",
    )


@contextmanager
def _naming_checkpoints(steps: Sequence[Step], store: Store, versions: Versions) -> Iterator[None]:
    """Adds to the error of a history that cannot be used which trainings of a run have a checkpoint to go on from."""
    try:
        yield
    except HistoryError as error:
        folder = store.home / "checkpoints"
        found = [
            f"{step.name}: {waiting}, {path}"
            for step in steps
            if isinstance(step.recipe, ModelRecipe)
            for version in versions.of(step)
            for path in [checkpoint_path(folder, version)]
            if (waiting := waiting_run(path, version))
        ]
        raise InputError("\n  ".join([error.problem, *found]), error.remedy) from error


def _in_process(
    order: Launch, steps: list[Step], store: Store, versions: Versions, instance: dg.DagsterInstance
) -> bool:
    """Tells whether this process carries the steps out: those of a small pipeline, trainings in turn, and what has nothing to do."""
    if order.in_process is not None:
        return order.in_process

    def to_do(step: Step) -> bool:
        return (order.retrain and isinstance(step.recipe, ModelRecipe)) or find_all(store, step, versions) is None

    trainings = [step for step in steps if isinstance(step.recipe, ModelRecipe)]
    builds = any(to_do(step) for step in steps if step not in trainings)
    at_once = num_slots(instance, POOL) != 1 and sum(map(to_do, trainings)) > 1
    return not has_processes(order.pipeline, builds or at_once)


def _selected(order: Launch) -> list[Step]:
    selected = steps_by_job(order.pipeline, home_folder(order.home))
    training = [step for step in selected["train"] if isinstance(step.recipe, ModelRecipe)]
    unknown = [name for name in order.names if name not in {step.name for step in training}]
    if unknown or (order.selection == "train" and not training):
        known = ", ".join(step.name for step in training) or "(none)"
        problem = f"{', '.join(unknown)} not in" if unknown else "nothing to train in"
        raise InputError(f"{problem} {order.pipeline.path}", f"[[train]] names are: {known}")
    trained = {*order.names} or {step.name for step in training}
    if order.ranks > 1 and not any(table.by_parts for table in order.pipeline.train if table.name in trained):
        problem = f"--ranks {order.ranks}, but no [[train]] table that is asked for can be shared by processes"
        raise InputError(problem, 'leave it out, or set trainer = "distributed"')
    if order.selection != "preprocess" and trained:
        require_sound(order.pipeline, trained, order.ranks)
    left_out = {step.name for step in selected["train"]} - {*order.names} if order.names else ()
    return [step for step in selected[order.selection] if step.name not in left_out]


def _execute_here(
    order: Launch, steps: list[Step], store: Store, versions: Versions, instance: dg.DagsterInstance
) -> tuple[bool, str, Sequence[dg.DagsterEvent]]:
    """Runs all steps in this process. While a step runs, Dagster redirects the streams to its log, so terminals get copies."""
    from graphmill.trainers.record.progress import open_progress

    with copy_of(sys.stdout) as out, copy_of(sys.stderr) as err:
        around = Surroundings(
            store=store,
            make_versions=lambda: versions,
            make_progress=lambda context: CancelableProgress(open_progress(err), context),
            report=order.report or (lambda line: print(line, file=out, flush=True)),
            on=order.on,
        )
        children = ChildProcesses(stderr=descriptor_of(err))
        definitions = build_defs([order.pipeline], around, children, order.threads)
        result = definitions.resolve_job_def(_job_name(order)).execute_in_process(
            instance=instance,
            raise_on_error=False,
            asset_selection=[key_of(step) for step in steps],
            run_config=_run_config(order, steps),
            tags=TAGS,
        )
    return result.success, result.run_id, result.all_events


def _execute_in_processes(
    order: Launch, steps: list[Step], store: Store, versions: Versions, instance: dg.DagsterInstance
) -> tuple[bool, str, Sequence[dg.DagsterEvent]]:
    """Runs each step in a process of its own. The pipeline's text travels with the run."""
    arguments = {
        "path": str(order.pipeline.path),
        "text": order.pipeline.text,
        "settings": order.pipeline.settings,
        "home": str(store.home),
        "threads": order.threads,
        "on": order.on,
        "job_name": _job_name(order),
    }
    job = dg.build_reconstructable_job(
        __name__, "reconstruct_job", None, arguments, reconstructor_working_directory=str(IMPORTED_FROM)
    )
    # Steps' processes are started with signals blocked, which another thread of this process answers meanwhile. The tracker of
    # multiprocessing comes first: when it is started, it unblocks them.
    resource_tracker.ensure_running()
    with (
        blocked(),
        dg.execute_job(
            job,
            instance=instance,
            asset_selection=[key_of(step) for step in steps],
            run_config=_run_config(order, steps) | {"execution": {"config": {"multiprocess": start_method(__name__)}}},
            tags=TAGS,
        ) as result,
    ):
        return result.success, result.run_id, result.all_events


def reconstruct_job(
    path: str, text: str, settings: str, home: str, threads: int | None, on: str, job_name: str
) -> dg.JobDefinition:
    """Returns a job again in another process of its run, from plain values and not from files that may have changed."""
    from graphmill.trainers.record.progress import open_progress

    if multiprocessing.parent_process() is not None:
        begin("", handlers=False)  # Dagster has handlers in the process of a step
        begin_to_print()
    with one_home(home):  # it has the tables of `source = "asset"`
        pipeline = replace(parse_pipeline(Path(path), text.encode(), TrainTable), settings=settings)
    around = Surroundings(
        store=Store(home),
        make_progress=lambda context: CancelableProgress(open_progress(), context),
        report=lambda line: print(line, flush=True),
        on=on,
    )
    definitions = build_defs([pipeline], around, None, threads)
    return definitions.resolve_job_def(job_name)


def _job_name(order: Launch) -> str:
    return job_names(order.pipeline.name)[order.selection]


def _run_config(order: Launch, steps: list[Step]) -> dict[str, Any]:
    by_parts = {table.name: table.by_parts for table in order.pipeline.train}
    # Without an answer, a run that repeats this one in the web UI goes on from its checkpoints.
    config = {
        "resume": order.resume or None,
        "retrain": order.retrain,
        "epoch_lines": EpochLines(order.epoch_lines).name,
    }
    return {
        "ops": {
            key_of(step).to_python_identifier(): {
                "config": config | {"ranks": order.ranks if by_parts[step.name] else 0}
            }
            for step in steps
            if step.name in by_parts
        },
        # The history has every event; on the terminal stand the lines of this program.
        "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
    }


def _raise_failures(events: Sequence[dg.DagsterEvent], home: Path) -> None:
    """Raises the errors of the failed steps: all input errors in one, or else a defect with its traceback."""
    failed = [event for event in events if event.is_step_failure]
    if refused := next(filter(None, (_refused_history(event, home) for event in failed)), None):
        raise refused
    said = [_message(event) for event in failed]
    if said and all(said):
        raise InputError("\n  ".join(dict.fromkeys(said)))
    errors = [event.step_failure_data.error for event in failed]
    errors += [event.job_failure_data.error for event in events if event.is_job_failure]
    raise StepError(
        "\n".join(error.to_string() for error in errors if error)
        or "the run failed without saying why; the UI has its events"
    )


def _refused_history(event: dg.DagsterEvent, home: Path) -> InputError | None:
    """Returns the error of a step that could not use the history for a while, None for any other failure."""
    error, found = event.step_failure_data.error, None
    while error is not None:  # the last error of the chain has the driver's own words
        found, error = error if error.cls_name in UNUSABLE else found, error.cause
    return None if found is None else refused_history(found.message, home, server="sqlite3" not in found.message)


def _message(event: dg.DagsterEvent) -> str:
    """Returns the message of a failed step for a user; "" for a defect."""
    failure = event.step_failure_data
    if failure.user_failure_data:
        return failure.user_failure_data.description or ""
    if failure.error and failure.error.cls_name == CRASHED:
        return f"the process of step {event.step_key} was killed ({why_killed()}), or crashed\n  remedy: {AFTER_A_KILL}"
    return ""
