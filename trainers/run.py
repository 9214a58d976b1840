"""Trains the models of a `[[train]]` table: one model artifact per seed, each built once and then reused.

A training with more epochs than one that ended: it goes on from there, if its first epochs are the same to the bit.

The checkpoint of a finished training stays until `graphmill gc`. Random decisions are keyed by epoch, so a recipe with more epochs begins
with the same ones, unless its learning rate or its end depends on their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

from graphmill.assets.building.materialize import materialize, stage_version
from graphmill.assets.building.stage import Progress
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.manifest import MANIFEST
from graphmill.assets.storage.names.version import short
from graphmill.assets.storage.remote.checkpoints import is_stored, remove_checkpoint
from graphmill.assets.storage.store import Store
from graphmill.trainers.loop.checkpoint import checkpoint_bytes, parse_checkpoint, write_checkpoint
from graphmill.trainers.ranks.group import ALONE, Ranks
from graphmill.trainers.recipe.config import ModelConfig, TrainTable, model_configs
from graphmill.trainers.recipe.recipe import REUSED
from graphmill.trainers.record.checkpoint_head import (
    checkpoint_facts,
    checkpoint_path,
    finished_epochs,
    scores_path,
    take_newer,
)
from graphmill.trainers.record.epoch_lines import Lines
from graphmill.trainers.training.stage import ModelStage
from graphmill.trainers.training.training import RunExecution


def train_table(
    store: Store,
    inputs: Mapping[str, Artifact],
    table: TrainTable,
    sampling: SamplingConfig | None,
    seed: int,
    *,
    reads: Mapping[str, Artifact] | None = None,
    resume: bool = False,
    retrain: bool = False,
    asked_by: str = "",
    epoch_lines: Lines = "some",
    progress: Progress | None = None,
    report: Callable[[str], None] = print,
    ranks: Ranks = ALONE,
) -> Sequence[Artifact]:
    """Returns the model artifacts of a train table, and trains those that the store does not have.

    Args:
        store: the store of models; checkpoints are in `checkpoints/` beside it.
        inputs, reads: stage -> artifact: those that decide weights, and those that only change how the training runs.
        resume, retrain, epoch_lines, asked_by: as in `Order` (trainers/recipe/order.py), and PIPELINE/TABLE for the record of the run.
        ranks: this process among those that share the training; the first one writes the models and returns them.

    Raises:
        InputError: a value of the recipe does not fit the graph, a budget is too small, or the disk is full.
    """
    _begin(store, table, report)
    stage, folder, models, reads = ModelStage(ranks), store.home / "checkpoints", [], reads or {}
    run = {"resume": resume, "checkpoints": folder, "epoch_lines": epoch_lines, "asked_by": asked_by}
    execution, configs = RunExecution(**asdict(table.execution), **run), model_configs(table, sampling, seed)
    if not ranks.first:
        _follow(stage, inputs, reads, configs, execution)
        return []
    say = _titled(table.name, report)
    versions = {stage_version(stage, config, inputs): config for config in configs}
    read = [(each.stage, each.version) for each in (*inputs.values(), *reads.values())]
    # Held for the whole table: between two seeds nothing else protects its inputs and the finished models from collection.
    with store.lease(*read, *((stage.name, version) for version in versions)):
        for version, config in versions.items():
            path, old = checkpoint_path(folder, version), _stored_model(store, version)
            how = _checkpointed(_Asked(stage, config, inputs, version), execution, old, retrain, say)
            model = materialize(store, stage, config, how, inputs, progress, reads=reads, anew=retrain)
            _finish(model, path, ranks, keep=may_go_on(config))
            for line in _said(model, old, config.seed, inputs["graph"]):
                say(line)
            models.append(model)
    return models


def _titled(name: str, report: Callable[[str], None]) -> Callable[[str], None]:
    """Returns a function that reports a line about the table of a name."""
    return lambda line: report(f"{name}: {line}")


class _Asked(NamedTuple):
    """A training: its stage and recipe, the artifacts that decide its weights, and its version."""

    stage: ModelStage
    config: ModelConfig
    inputs: Mapping[str, Artifact]
    version: str


def _checkpointed(
    training: _Asked, execution: RunExecution, old: _Earlier | None, retrain: bool, say: Callable[[str], None]
) -> RunExecution:
    """Returns the execution of a training, which resumes where a shorter one ended.

    The checkpoint of a finished model that is trained again is removed; one of an unfinished run that is not gone on from is told.
    """
    path = checkpoint_path(execution.checkpoints, training.version)
    execution = replace(execution, again=old is not None)
    if execution.resume:
        take_newer(path, training.version)
    if retrain and old is not None and path.exists() and path.stat().st_mtime < old.published:
        remove_checkpoint(path)
    waits = path.exists() or (old is None and is_stored(path))
    if waits and not execution.resume and (old is None or retrain):
        where = "" if path.exists() else " of the object store"
        say(f"starts over; --resume would go on from {path}{where}, which stays until this training has come as far")
    if old is not None or waits or training.stage.ranks.world > 1:
        return execution
    epochs = go_on(*training, folder=execution.checkpoints)
    if not epochs:
        return execution
    say(f"goes on from the model with epochs = {epochs}, whose recipe is the same")
    return replace(execution, resume=True)


def _begin(store: Store, table: TrainTable, report: Callable[[str], None]) -> None:
    """Removes the rests of killed writers, and reports the device that "auto" is."""
    # A writer sweeps as well, but if everything is reused, no writer is opened.
    store.sweep()
    if table.device == "auto":
        report(f'{table.name}: device = "auto" is {table.config.device} on this machine')


class _Earlier(NamedTuple):
    """The model that the store had."""

    # Digest of its weights.
    weights: str
    # Number of threads that trained it, None if that was not recorded.
    threads: int | None
    # Time at which it was published, in seconds since 1970.
    published: float


def _stored_model(store: Store, version: str) -> _Earlier | None:
    """Returns facts about the model that the store has for a version, None if it has none."""
    model = store.find(ModelStage.name, version)
    if model is None:
        return None
    return _Earlier(_weights(model), model.run_record().get("threads"), (model.here() / MANIFEST).stat().st_mtime)


def _weights(model: Artifact) -> str:
    return model.files["weights.safetensors"]["digest"]


def _finish(model: Artifact, checkpoint: Path, ranks: Ranks, keep: bool) -> None:
    """Removes the checkpoint of a stored model unless longer trainings may go on from it; tells other ranks if nothing was trained.

    Rows of nodes in files belong to one training, and go.
    """
    if model.reused:  # otherwise the other ranks learnt it when the training began
        ranks.tell({"train": ""})
    # A kill before these lines costs nothing but the files.
    scores_path(checkpoint, ranks.rank, ranks.world).unlink(missing_ok=True)
    if not keep or "rows" in checkpoint_facts(checkpoint):
        remove_checkpoint(checkpoint)


def trained_models(
    store: Store, inputs: Mapping[str, Artifact], table: TrainTable, pipeline: Pipeline
) -> Sequence[Artifact]:
    """Returns the models of a table that other processes have trained into a store; raises InputError if one is missing."""
    stage, configs = ModelStage(), model_configs(table, pipeline.sampling_of(table), pipeline.seed)
    return [store.open(stage.name, stage_version(stage, config, inputs)) for config in configs]


def _follow(
    stage: ModelStage,
    inputs: Mapping[str, Artifact],
    reads: Mapping[str, Artifact],
    configs: Sequence[ModelConfig],
    execution: RunExecution,
) -> None:
    """Takes part in the trainings that the first rank begins, one or none per recipe."""
    for config in configs:
        version = stage.ranks.tell(None)["train"]
        if version:
            stage.follow(version, inputs, reads, config, execution)
            checkpoint = checkpoint_path(execution.checkpoints, version)
            scores_path(checkpoint, stage.ranks.rank, stage.ranks.world).unlink(missing_ok=True)


def _said(model: Artifact, old: _Earlier | None, seed: int, graph: Artifact) -> Iterator[str]:
    """Yields the lines about a model: its origin, with the model before it or None, and each check that failed."""
    took = "" if model.reused else f" in {model.run_record().get('seconds', 0.0):.1f} s"
    how = "reused" if model.reused else "trained"
    split = graph.config.get("split")
    of = "" if split is None else f"split {split}, "
    yield f"{how} {model.label} ({of}seed {seed}, {short(graph.version)}){took}{_compared(model, old)}"
    for check in model.summary["checks"]:
        if not check["passed"]:
            yield f"check failed: {check['name']}: {check['detail']}"


def _compared(model: Artifact, old: _Earlier | None) -> str:
    """Returns the comparison with the model that was there before."""
    if old is None:
        return ""
    if model.reused:
        return REUSED
    if _weights(model) == old.weights:
        return ", with the same weights to the bit"
    threads, why = model.run_record().get("threads"), ""
    if old.threads and old.threads != threads:
        why = f" on {old.threads} thread{'s' if old.threads > 1 else ''}, not {threads}"
    return f", with other weights than the same recipe gave before{why}"


def may_go_on(config: ModelConfig) -> bool:
    """Returns whether a finished training of a recipe is the beginning of the same one with more epochs."""
    train = config.train
    waits = train.patience or train.patience_epochs
    # The last epoch is evaluated in any case: in the longer training it has to be one that is.
    evaluated = bool(train.eval_every) and train.epochs % train.eval_every == 0
    repeats = not train.own_settings.staleness
    return train.lr_schedule == "constant" and not waits and evaluated and repeats


def go_on(stage: ModelStage, config: ModelConfig, inputs: Mapping[str, Artifact], version: str, folder: Path) -> int:
    """Writes the checkpoint of a training that goes on from the longest finished one of the same recipe with fewer epochs.

    Returns:
        The number of epochs that are done by it, 0 if there is none.

    Raises:
        InputError: the checkpoint is damaged.
    """
    known = {epochs for path in folder.glob("*.safetensors") if (epochs := finished_epochs(path)) is not None}
    for epochs in sorted((each for each in known if each < config.train.epochs), reverse=True):
        shorter = replace(config, train=replace(config.train, epochs=epochs))
        if not may_go_on(shorter):
            continue
        earlier = stage_version(stage, shorter, inputs)
        path = checkpoint_path(folder, earlier)
        data = checkpoint_bytes(path)
        if data is not None:
            found = parse_checkpoint(data, path, earlier)
            found.version, found.state.done = version, False
            write_checkpoint(checkpoint_path(folder, version), found)
            return epochs
    return 0
