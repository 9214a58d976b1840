"""A training with more epochs than one that ended: it goes on from there, if its first epochs are the same to the bit.

The checkpoint of a finished training stays until `graphmill gc`. Random decisions are keyed by epoch, so a recipe with more epochs begins
with the same ones, unless its learning rate or its end depends on their number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from graphmill.assets.building.materialize import stage_version
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.trainers.loop.checkpoint import checkpoint_bytes, parse_checkpoint, write_checkpoint
from graphmill.trainers.recipe.config import ModelConfig
from graphmill.trainers.record.checkpoint_head import checkpoint_path, finished_epochs
from graphmill.trainers.training.stage import ModelStage


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
