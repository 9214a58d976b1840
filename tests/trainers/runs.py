"""Training runs on a small graph, for the trainer tests and the laws."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from assets.building.stage import Progress
from assets.sampling.config import SamplingConfig
from assets.storage.artifact import Artifact
from assets.storage.store import Store
from tests.assets.packed_chunks.packed import Packed
from tests.trainers.graphs import random_graph_artifact
from tests.trainers.rows.caches import cache_inputs
from trainers.config import TrainTable
from trainers.open_batches import StoredInputs
from trainers.run import train_table

SAMPLING = SamplingConfig(fanouts=(4, 3), batch_size=32)
TABLE: dict[str, Any] = {"name": "small", "layers": 2, "hidden": 8, "epochs": 3, "lr": 0.02, "accumulate": 3}


def train_small(
    home: Path,
    *,
    sampling: SamplingConfig = SAMPLING,
    memory: dict[str, Any] | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    report: Any = lambda line: None,
    **options: Any,
) -> Artifact:
    """Trains one small model in `home` and returns its artifact.

    Args:
        memory: a `[memory]` table and the `seed` of an order of hotness, for a cache of rows; None trains without one.
        options: override `TABLE`.
    """
    store = Store(home)
    found = [artifact for artifact in store.artifacts() if artifact.stage == "graph"]
    graph = found[0] if found else random_graph_artifact(home)
    table = TrainTable(**(TABLE | options))
    cache = None if memory is None else cache_inputs(home, graph, **memory)
    return train_table(store, graph, table, sampling, 5, cache=cache, resume=resume, progress=progress, report=report)[
        0
    ]


def train_packed(
    packed: Packed,
    home: Path,
    trainer: str = "disk",
    *,
    sampling: SamplingConfig = SAMPLING,
    resume: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Artifact:
    """Trains on a packed graph, its sampling epochs in rotation, from disk or online; the model goes to `home`.

    Args:
        options: override `TABLE`.
    """
    table = TrainTable(**(TABLE | {"trainer": trainer} | options))
    sampling = replace(sampling, reuse=packed.samples.summary["numbers"]["num_epochs"])
    stored = StoredInputs(samples=packed.samples, cache_plan=packed.cache_plan, packed_chunks=packed.packed_chunks)
    run: dict[str, Any] = {"stored": stored if trainer == "disk" else None, "resume": resume, "progress": progress}
    return train_table(Store(home), packed.graph, table, sampling, 5, report=lambda line: None, **run)[0]


def content(model: Artifact) -> dict[str, str]:
    """The digest of every content file of a model."""
    return {name: entry["digest"] for name, entry in model.files.items()}
