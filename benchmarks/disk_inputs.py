"""Artifacts for the benchmarks of disk training, built by the stages themselves: graph, samples, cache plans.

GRAPHMILL_BENCH_DIR names a folder whose artifacts are kept and found again by the next run; without it a temporary folder is used.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.sampled_batches import Batches
from graphmill.assets.budgets.config import BudgetsConfig, BudgetsExecution, MemoryConfig
from graphmill.assets.budgets.stage import BudgetsStage
from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.cache_plan.config import CachePlanTable, cache_plan_config
from graphmill.assets.cache_plan.stage import CACHE_PLAN
from graphmill.assets.packed_chunks.config import PackedConfig, PackedExecution
from graphmill.assets.packed_chunks.read import PackedChunks
from graphmill.assets.packed_chunks.stage import PACKED_CHUNKS
from graphmill.assets.samples.config import SamplesConfig, SamplesExecution
from graphmill.assets.samples.read import open_samples
from graphmill.assets.samples.stage import SAMPLES
from graphmill.assets.sources.registry import config_class
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from tests.graphs import GraphArtifacts, OpenedGraph, build_graph

THREADS, SEED = 2, 0
SKEW = {"a": 0.57, "b": 0.19, "c": 0.19}  # Graph500's corners
QUICK = {"nodes": 200_000, "edges": 1_500_000, "features": 128, "classes": 16, "valid_ratio": 0.01} | SKEW
FULL = {"nodes": 4_000_000, "edges": 30_000_000, "features": 128, "classes": 16, "valid_ratio": 0.01} | SKEW


@dataclass(frozen=True, kw_only=True)
class Case:
    """One graph with its stored batches."""

    store: Store
    graph: Artifact
    features: Artifact
    samples: Artifact

    @property
    def opened(self) -> OpenedGraph:
        return GraphArtifacts(self.graph, self.features).open()

    @property
    def num_batches(self) -> int:
        return int(self.samples.summary["numbers"]["num_batches"])

    def plan(self, *, segment_size: int = 0, order: str = "auto", **memory: str) -> Artifact:
        """Builds the cache plan under budgets, as `[memory]` gives them."""
        config = BudgetsConfig(memory=MemoryConfig(**memory))
        budgets = materialize(self.store, BudgetsStage(), config, BudgetsExecution(), {"features": self.features})
        table: Any = CachePlanTable(segment_size=segment_size, order=order)  # pyright: ignore[reportArgumentType]
        inputs = {"features": self.features, "samples": self.samples, "budgets": budgets}
        return materialize(self.store, CACHE_PLAN, cache_plan_config(table, SEED), Threads(threads=THREADS), inputs)

    def pack(self, packs: Store, plan: Artifact) -> PackedChunks:
        """Packs what a plan wants packed, into a store of its own; the pages stay in memory until `drop_pages`."""
        inputs = {"features": self.features, "samples": self.samples, "cache_plan": plan}
        packed = materialize(packs, PACKED_CHUNKS, PackedConfig(), PackedExecution(threads=THREADS), inputs)
        return PackedChunks(packed, plan, self.samples)

    def batches(self) -> Batches:
        """Reads the input ids of all batches."""
        samples = open_samples(self.samples, verify=False)
        ids = [record.blocks[0].src_ids.copy() for record in samples.records()]
        topology = self.opened.topology
        ptr = np.cumsum([0, *map(len, ids)])
        return Batches(ptr, np.concatenate(ids), topology.num_nodes, topology.num_edges)


def build_case(store: Store, size: dict[str, Any], train_ratio: float, fanouts: tuple[int, ...], batch: int) -> Case:
    """Builds a graph and the batches of one epoch."""
    semantic = config_class("rmat")(seed=1, train_ratio=train_ratio, **size)
    return draw_batches(store, build_graph(store, semantic, THREADS), fanouts, batch)


def draw_batches(store: Store, graph: GraphArtifacts, fanouts: tuple[int, ...], batch: int) -> Case:
    """Builds the batches of one epoch."""
    config = SamplesConfig(seed=SEED, method="uniform", fanouts=fanouts, batch_size=batch, epochs=1)
    samples = materialize(store, SAMPLES, config, SamplesExecution(threads=THREADS), {"graph": graph.graph})
    return Case(store=store, graph=graph.graph, features=graph.features, samples=samples)


@contextmanager
def home() -> Iterator[Store]:
    """The store of a run."""
    kept = os.environ.get("GRAPHMILL_BENCH_DIR")
    if kept:
        yield Store(Path(kept))
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Store(Path(folder))


def drop_pages(artifact: Artifact) -> None:
    """Writes an artifact and its parts to the disk, and asks the kernel to forget their pages."""
    for each in (artifact, *(artifact.open_part(name) for name in artifact.parts)):
        for path in each.path.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
