"""The stages that a pipeline file can ask for, in the order in which they run. A new stage is one folder and one line here."""

import importlib
from pathlib import Path

from graphmill.assets.building.stage import Stage

STAGES = (
    "graphmill.assets.graph.stage:GRAPH",
    "graphmill.assets.features.stage:FEATURES",
    "graphmill.assets.sampling_tables.stage:SAMPLING_TABLES",
    "graphmill.assets.partitions.stage:PARTITIONS",
    "graphmill.assets.chunks.stage:CHUNKS",
    "graphmill.assets.shards.stage:SHARDS",
    "graphmill.assets.hotness.stage:HOTNESS",
    "graphmill.assets.budgets.stage:BUDGETS",
    "graphmill.assets.samples.stage:SAMPLES",
    "graphmill.assets.cache_plan.stage:CACHE_PLAN",
    "graphmill.assets.packed_chunks.stage:PACKED_CHUNKS",
)
"""Module and name of each stage; a stage stands after those that it reads."""


def stages(home: Path | None = None) -> list[Stage]:
    """Returns all stages."""
    named = [entry.partition(":") for entry in STAGES]
    return [getattr(importlib.import_module(module), name).at(home) for module, _, name in named]
