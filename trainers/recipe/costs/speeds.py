"""Measured seconds of the pieces of batches, kept in the home, so that a later training of the recipe finds them.

    $GRAPHMILL_HOME/measured/pieces/KEY.json     the fields of `Speeds`

KEY is a digest of the way of timing and of the facts that decide the time of a batch apart from its size: the architecture, the sampling,
the settings and chunks of a technique that measures pieces of its own, the columns and bytes of a row, the number of classes, whether the
graph is built, the number of nodes to a power of two, and the processor with its cores. Sizes are scaled when the seconds are used, so a
graph that has grown a little needs no new measurement.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from graphmill.assets.chunks.costs import cut_of
from graphmill.assets.costs.needs import Sizes
from graphmill.assets.storage.files.documents import read_if_sound
from graphmill.assets.storage.files.kept_numbers import keep_numbers
from graphmill.assets.storage.files.schema import Fields, mapped, matches, number
from graphmill.assets.storage.names.version import canonical, canonical_json
from graphmill.assets.storage.system.filesystem import make_folder
from graphmill.assets.storage.system.machine import processor_name, usable_cores
from graphmill.trainers.recipe.architecture import Architecture
from graphmill.trainers.recipe.config import ModelConfig
from graphmill.trainers.recipe.costs.course import Speeds
from graphmill.trainers.recipe.techniques import find_technique

FOLDER = Path("measured") / "pieces"
METHOD = 3
"""Number of the way in which pieces are timed; another one measures all homes anew."""
BY_NUMBER = ("step", "handed", "draw", "gather", "layers", "whole", "visit")
_by_number = mapped(number(least=0), key=matches(re.compile("[0-9]{1,9}"), "a number"))
pieces_schema = Fields(
    {each.name: _by_number if each.name in BY_NUMBER else number(least=0) for each in fields(Speeds)}
)
"""The file of a recipe's speeds."""


def speeds_path(home: Path, semantic: ModelConfig, sizes: Sizes, *, built: bool) -> Path:
    """Returns the file of a recipe's speeds in a home.

    Args:
        sizes: sizes of the graph, with its number of classes.
        built: whether batches of the graph itself are measured; else those of one that stands in for it.
    """
    train = semantic.train
    architecture = {field.name: getattr(train, field.name) for field in fields(Architecture)}
    key = {
        "method": METHOD,
        "architecture": repr(sorted(architecture.items())),
        "dtype": train.dtype,
        "optimizer": train.optimizer,
        "sampling": _drawn(semantic),
        "own": _own_settings(semantic, sizes),
        "row": [sizes.width, sizes.row_bytes],
        "graph": {"built": built, "nodes": sizes.num_nodes.bit_length(), "classes": sizes.num_classes},
        "machine": [processor_name(), usable_cores()],
    }
    return home / FOLDER / f"{hashlib.sha256(canonical_json(key)).hexdigest()[:32]}.json"


def _drawn(semantic: ModelConfig) -> dict[str, Any]:
    """Returns the keys of [sampling] that decide how a batch is drawn."""
    found: dict[str, Any] = {} if semantic.sampling is None else dict(canonical(semantic.sampling))
    return {name: value for name, value in found.items() if name not in ("reuse", "schedule", "sampling_seed")}


def _own_settings(semantic: ModelConfig, sizes: Sizes) -> dict[str, Any]:
    """Returns what decides the pieces of a technique that measures its own: its settings, but for those of processes, and the chunks."""
    if not find_technique(semantic.train.trainer).pieces:
        return {}
    settings = semantic.train.own_settings
    names = [each.name for each in fields(settings) if each.name not in ("ranks", "timeout")]
    return {name: getattr(settings, name) for name in names} | {"cut": cut_of(sizes)}


def keep_speeds(path: Path, speeds: Speeds) -> None:
    """Writes measured seconds into the home.

    Raises:
        InputError: the disk is full.
    """
    make_folder(path.parent)
    values = asdict(speeds)
    by_number = {name: {str(number): each for number, each in values[name].items()} for name in BY_NUMBER}
    keep_numbers(path, values | by_number)


def kept_speeds(path: Path) -> Speeds | None:
    """Returns measured seconds of the home; None if there are none, or if the file is damaged, since no result follows from them."""
    found, names = read_if_sound(path, pieces_schema), [field.name for field in fields(Speeds)]
    if not found:
        return None
    read: dict[str, Any] = {name: _numbered(found[name]) if name in BY_NUMBER else float(found[name]) for name in names}
    return Speeds(**read)


def _numbered(values: Mapping[str, float]) -> dict[int, float]:
    return {int(number): float(seconds) for number, seconds in values.items()}
