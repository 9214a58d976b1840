"""Training runs on a small graph, for the trainer tests and the laws."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from assets.building.stage import Progress
from assets.sampling.config import SamplingConfig
from assets.storage.artifact import Artifact
from assets.storage.store import Store
from tests.assets.packed_chunks.packed import Packed
from tests.trainers.graphs import random_graph_artifacts
from tests.trainers.rows.caches import cache_inputs
from trainers.config import TrainTable
from trainers.run import train_table

SAMPLING = SamplingConfig(fanouts=(4, 3), batch_size=32)
TABLE: dict[str, Any] = {"name": "small", "layers": 2, "hidden": 8, "epochs": 3, "lr": 0.02, "accumulate": 3}


def train_small(
    home: Path,
    *,
    sampling: SamplingConfig = SAMPLING,
    memory: dict[str, Any] | None = None,
    resume: bool = False,
    retrain: bool = False,
    asked_by: str = "",
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
    artifacts = random_graph_artifacts(home)
    table = TrainTable(**(TABLE | options))
    run: dict[str, Any] = {
        "resume": resume,
        "retrain": retrain,
        "asked_by": asked_by,
        "progress": progress,
        "report": report,
    }
    reads = {} if memory is None else cache_inputs(home, artifacts, **memory)
    return train_table(store, artifacts.inputs, table, sampling, 5, reads=reads, **run)[0]


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
    run: dict[str, Any] = {"resume": resume, "progress": progress, "report": lambda line: None}
    reads = stored_rows(packed) if trainer == "disk" else {}
    return train_table(Store(home), packed.inputs, table, sampling, 5, reads=reads, **run)[0]


def stored_rows(packed: Packed) -> dict[str, Artifact]:
    """The artifacts that training from disk reads."""
    return {"samples": packed.samples, "cache_plan": packed.cache_plan, "packed_chunks": packed.packed_chunks}


def content(model: Artifact) -> dict[str, str]:
    """The digest of every content file of a model."""
    return {name: entry["digest"] for name, entry in model.files.items()}
