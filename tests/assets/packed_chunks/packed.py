"""Packed chunks of a small graph with every stage before them, for the tests of this folder, of trainers and the laws."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from assets.budgets.config import BudgetsConfig, BudgetsExecution, MemoryConfig
from assets.budgets.stage import BudgetsStage
from assets.building.materialize import materialize
from assets.building.stage import Progress
from assets.cache_plan.config import CachePlanExecution, CachePlanTable, cache_plan_config
from assets.cache_plan.stage import CACHE_PLAN
from assets.packed_chunks.config import PackedConfig, PackedExecution
from assets.packed_chunks.stage import PACKED_CHUNKS
from assets.storage.artifact import Artifact
from assets.storage.store import Store
from tests.assets.samples.sampled import build_samples
from tests.trainers.graphs import random_graph_artifact

MEMORY = {"device": "5%", "host": "10%", "disk": "2x"}


class Packed(NamedTuple):
    """Everything from the graph to the chunks."""

    graph: Artifact
    samples: Artifact
    cache_plan: Artifact
    packed_chunks: Artifact


def build_packed(
    home: Path,
    *,
    width: int = 300,
    epochs: int = 1,
    graph: Artifact | None = None,
    groups: int = 2,
    workers: int = 1,
    threads: int = 1,
    memory: dict[str, Any] | None = None,
    plan: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> Packed:
    """Builds the chunks of the small graph in `home`; rows of 300 floats straddle pages."""
    store = Store(home)
    found = [each for each in store.artifacts() if each.stage == "graph" and each.config["width"] == width]
    graph = graph or (found[0] if found else random_graph_artifact(home, width=width))
    samples = build_samples(home, graph=graph, epochs=epochs)
    budgets_config = BudgetsConfig(memory=MemoryConfig(**(MEMORY | (memory or {}))))
    budgets = materialize(store, BudgetsStage(), budgets_config, BudgetsExecution(), {"graph": graph})
    inputs = {"graph": graph, "samples": samples, "budgets": budgets}
    table = cache_plan_config(CachePlanTable(**(plan or {})), seed=5)
    made = materialize(store, CACHE_PLAN, table, CachePlanExecution(threads=1), inputs)
    inputs = {"graph": graph, "samples": samples, "cache_plan": made}
    execution = PackedExecution(threads=threads, workers=workers, memory="4MiB")
    chunks = materialize(store, PACKED_CHUNKS, PackedConfig(groups=groups), execution, inputs, progress)
    return Packed(graph, samples, made, chunks)
