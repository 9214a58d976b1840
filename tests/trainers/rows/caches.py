"""Hotness and budgets for the trainer tests: any order and any bytes, as artifacts of a store."""

from pathlib import Path
from typing import Any

import numpy as np

from graphmill.assets.budgets.config import BudgetsConfig, BudgetsExecution, MemoryConfig
from graphmill.assets.budgets.stage import BudgetsStage
from graphmill.assets.building.materialize import materialize
from graphmill.assets.building.stage import Summary
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.version import version_of
from graphmill.assets.storage.store import Store
from tests.trainers.graphs import GraphArtifacts


def random_order(home: Path, num_nodes: int, seed: int) -> Artifact:
    """A hotness artifact that says nothing but an order."""
    config = {"nodes": num_nodes, "seed": seed}
    with Store(home).writer("hotness", version_of("hotness", 0, config, {}, {})) as writer:
        writer.save("order", np.random.default_rng(seed).permutation(num_nodes).astype(np.int32))
        return writer.publish(config, {}, Summary(numbers={"num_nodes": num_nodes}), {}, code_version=0)


def resolve(home: Path, artifacts: GraphArtifacts, work: dict[str, int] | None = None, **memory: Any) -> Artifact:
    """The budgets of a `[memory]` table, measured into the same home; `work` are declared working sets."""
    config = BudgetsConfig(memory=MemoryConfig(**memory), **(work or {}))
    return materialize(Store(home), BudgetsStage(home), config, BudgetsExecution(), {"features": artifacts.features})


def cache_inputs(home: Path, artifacts: GraphArtifacts, seed: int = 0, **memory: Any) -> dict[str, Artifact]:
    """Both, for a random order."""
    hotness = random_order(home, artifacts.graph.files["labels.npy"]["shape"][0], seed)
    return {"hotness": hotness, "budgets": resolve(home, artifacts, **memory)}
