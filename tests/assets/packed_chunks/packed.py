"""Packed chunks of a small graph with every stage before them, for the tests of this folder, of trainers and the laws."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from graphmill.assets.budgets.config import BudgetsConfig, BudgetsExecution, MemoryConfig
from graphmill.assets.budgets.stage import BudgetsStage
from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.building.stage import Progress
from graphmill.assets.cache_plan.config import CachePlanTable, cache_plan_config
from graphmill.assets.cache_plan.stage import CACHE_PLAN
from graphmill.assets.packed_chunks.config import PackedConfig, PackedExecution
from graphmill.assets.packed_chunks.stage import PACKED_CHUNKS
from graphmill.assets.samples.config import SamplesExecution, SamplesTable, samples_config
from graphmill.assets.samples.stage import SAMPLES
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from tests.assets.samples.sampled import build_samples
from tests.assets.sampling_tables.tables import with_tables
from tests.trainers.graphs import GraphArtifacts, random_graph_artifacts

MEMORY = {"device": "5%", "host": "10%", "disk": "2x"}


class Packed(NamedTuple):
    """Everything from the graph to the chunks."""

    graph: Artifact
    features: Artifact
    samples: Artifact
    cache_plan: Artifact
    packed_chunks: Artifact

    @property
    def inputs(self) -> dict[str, Artifact]:
        """What decides the weights of a model that is trained on it."""
        return {"graph": self.graph, "features": self.features}


def build_packed(
    home: Path,
    *,
    width: int = 300,
    epochs: int = 1,
    evaluate: bool = False,
    graph: GraphArtifacts | None = None,
    featureless: int = 0,
    dtype: str = "float32",
    groups: int = 2,
    order: Any = "nodes",
    workers: int = 1,
    threads: int = 1,
    memory: dict[str, Any] | None = None,
    plan: dict[str, Any] | None = None,
    sampling: SamplingConfig | None = None,
    partitions: Artifact | None = None,
    progress: Progress | None = None,
) -> Packed:
    """Builds the chunks of the small graph in `home`; rows of 300 floats straddle pages. Args as of `random_graph_artifacts`.

    Args:
        order: of `[packed]`.
        sampling: how the samples are drawn; None = uniformly, in several parts per epoch.
        partitions: with `sampling`, the parts of which each batch has seeds of one; None = a batch has any seeds.
    """
    store = Store(home)
    graph, features = graph or random_graph_artifacts(home, width=width, featureless=featureless, dtype=dtype)
    samples = (
        build_samples(home, graph=graph, epochs=epochs, evaluate=evaluate)
        if sampling is None
        else _drawn(home, graph, sampling, epochs, evaluate, partitions)
    )
    budgets_config = BudgetsConfig(memory=MemoryConfig(**(MEMORY | (memory or {}))))
    budgets = materialize(store, BudgetsStage(), budgets_config, BudgetsExecution(), {"features": features})
    inputs = {"features": features, "samples": samples, "budgets": budgets}
    table = cache_plan_config(CachePlanTable(**(plan or {})), seed=5)
    made = materialize(store, CACHE_PLAN, table, Threads(threads=1), inputs)
    inputs = {"features": features, "samples": samples, "cache_plan": made}
    execution = PackedExecution(threads=threads, workers=workers, memory="4MiB")
    chunks = materialize(store, PACKED_CHUNKS, PackedConfig(groups=groups, order=order), execution, inputs, progress)
    return Packed(graph, features, samples, made, chunks)


def _drawn(
    home: Path, graph: Artifact, sampling: SamplingConfig, epochs: int, evaluate: bool, partitions: Artifact | None
) -> Artifact:
    """The samples of a table [sampling]."""
    table = SamplesTable(epochs=epochs, evaluate=evaluate, plan="shuffled" if partitions is None else "parts")
    config = samples_config(table, sampling, 5)
    inputs = with_tables(home, {"graph": graph}, sampling) | ({} if partitions is None else {"partitions": partitions})
    return materialize(Store(home), SAMPLES, config, SamplesExecution(threads=1), inputs)
