"""Trains what a `[[train]]` table asks for: one model artifact a seed, each built once and then reused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

from assets.building.materialize import materialize, stage_version
from assets.building.stage import Progress
from assets.sampling.config import SamplingConfig
from assets.storage.artifact import Artifact
from assets.storage.store import Store
from assets.storage.version import short
from trainers.config import ModelConfig, TrainTable
from trainers.open_batches import StoredInputs
from trainers.open_rows import CacheInputs
from trainers.stage import ModelStage, RunExecution, checkpoint_path


def model_configs(table: TrainTable, sampling: SamplingConfig, seed: int) -> list[ModelConfig]:
    """Returns the recipe of each model of a table, one a seed; `seed` is the pipeline's, used where the table has none."""
    return [ModelConfig(seed=each, train=table.config, sampling=sampling) for each in table.seeds or (seed,)]


def train_table(
    store: Store,
    graph: Artifact,
    table: TrainTable,
    sampling: SamplingConfig,
    seed: int,
    *,
    cache: CacheInputs | None = None,
    stored: StoredInputs | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    report: Callable[[str], None] = print,
) -> Sequence[Artifact]:
    """Returns the model artifacts of a train table, training those that the store does not have.

    Args:
        store: where models go; checkpoints are in `checkpoints/` beside it.
        graph: the graph artifact.
        table, sampling, seed: the recipe.
        cache: decides which feature rows are cached, None for no cache; no result depends on it.
        stored: stored mini-batches, and their packed rows, where the table asks for them.
        resume: go on from a checkpoint where there is one; otherwise a checkpoint is replaced.
        progress: shows epochs.
        report: gets a line about each model.

    Raises:
        InputError: a value of the recipe does not fit the graph, a budget is too small, or the disk is full.
    """
    # A writer sweeps as well, but where everything is reused there is none.
    store.sweep()
    stage, folder = ModelStage(), store.home / "checkpoints"
    options = {**asdict(table.execution), "resume": resume, "checkpoints": folder}
    execution = RunExecution(**options, cache=cache, stored=stored)
    inputs, models = {"graph": graph}, []
    versions = {stage_version(stage, config, inputs): config for config in model_configs(table, sampling, seed)}
    cached = (cache.hotness, cache.budgets) if cache else ()
    read = [graph, *cached, *(stored.artifacts.values() if stored else ())]
    # Held for the whole table: between two seeds nothing else keeps what it reads and the finished models from collection.
    with store.lease(*((each.stage, each.version) for each in read), *((stage.name, version) for version in versions)):
        for version, config in versions.items():
            path = checkpoint_path(folder, version)
            if path.exists() and not resume and store.find(stage.name, version) is None:
                report(f"{table.name}: starts over; --resume would go on from {path}")
            model = materialize(store, stage, config, execution, inputs, progress)
            # Only now is the model safe; a kill before this line costs nothing but the file.
            path.unlink(missing_ok=True)
            how = "reused" if model.reused else "trained"
            report(f"{table.name}: {how} {model.label} (seed {config.seed}, {short(graph.version)})")
            models.append(model)
    return models
