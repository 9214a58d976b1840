"""Trains what a `[[train]]` table asks for: one model artifact per seed, each built once and then reused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from assets.building.materialize import materialize, stage_version
from assets.building.stage import Progress
from assets.sampling.config import SamplingConfig
from assets.storage.artifact import Artifact
from assets.storage.store import Store
from assets.storage.version import short
from trainers.config import TrainTable, model_configs
from trainers.record.epoch_lines import Lines
from trainers.stage import ModelStage, RunExecution, checkpoint_path


def train_table(
    store: Store,
    inputs: Mapping[str, Artifact],
    table: TrainTable,
    sampling: SamplingConfig | None,
    seed: int,
    *,
    reads: Mapping[str, Artifact] | None = None,
    resume: bool = False,
    epoch_lines: Lines = "some",
    progress: Progress | None = None,
    report: Callable[[str], None] = print,
) -> Sequence[Artifact]:
    """Returns the model artifacts of a train table, training those that the store does not have.

    Args:
        store: where models go; checkpoints are in `checkpoints/` beside it.
        inputs: stage -> artifact, of those that decide weights; `graph` and `features` are among them.
        table, sampling, seed: the recipe.
        reads: stage -> artifact, of those that only change how the training runs.
        epoch_lines: which epochs a line is printed about, by a `progress` that tells lines.
        resume: go on from a checkpoint where there is one; otherwise a checkpoint is replaced.
        progress: shows epochs.
        report: gets a line about each model.

    Raises:
        InputError: a value of the recipe does not fit the graph, a budget is too small, or the disk is full.
    """
    # A writer sweeps as well, but where everything is reused there is none.
    store.sweep()
    stage, folder, models = ModelStage(), store.home / "checkpoints", []
    execution = RunExecution(**asdict(table.execution), resume=resume, checkpoints=folder, epoch_lines=epoch_lines)
    versions = {stage_version(stage, config, inputs): config for config in model_configs(table, sampling, seed)}
    read = [*inputs.values(), *(reads or {}).values()]
    # Held for the whole table: between two seeds nothing else keeps what it reads and the finished models from collection.
    with store.lease(*((each.stage, each.version) for each in read), *((stage.name, version) for version in versions)):
        for version, config in versions.items():
            path = checkpoint_path(folder, version)
            if path.exists() and not resume and store.find(stage.name, version) is None:
                report(f"{table.name}: starts over; --resume would go on from {path}")
            model = materialize(store, stage, config, execution, inputs, progress, reads=reads)
            # Only now is the model safe; a kill before this line costs nothing but the file.
            path.unlink(missing_ok=True)
            how = "reused" if model.reused else "trained"
            report(f"{table.name}: {how} {model.label} (seed {config.seed}, {short(inputs['graph'].version)})")
            for check in model.summary["checks"]:
                if not check["passed"]:
                    report(f"{table.name}: check failed: {check['name']}: {check['detail']}")
            models.append(model)
    return models
