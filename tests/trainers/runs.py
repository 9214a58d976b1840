"""Training runs on a small graph, for the trainer tests and the laws."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from assets.building.materialize import materialize
from assets.building.stage import Progress
from assets.chunks.config import ChunksExecution, ChunksTable, chunks_config
from assets.chunks.stage import CHUNKS
from assets.partitions.config import PartitionsConfig, PartitionsExecution
from assets.partitions.stage import PARTITIONS
from assets.sampling.config import SamplingConfig
from assets.storage.artifact import Artifact
from assets.storage.store import Store
from tests.assets.packed_chunks.packed import Packed
from tests.trainers.graphs import random_graph_artifacts
from tests.trainers.rows.caches import cache_inputs
from trainers.config import TrainTable
from trainers.run import train_table
from trainers.techniques.fullgraph_settings import FullGraphSettings

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


def train_whole(
    home: Path,
    parts: int = 2,
    chunks: int = 3,
    *,
    mode: str = "p2p+reuse",
    devices: int = 0,
    hybrid: bool = True,
    resume: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Artifact:
    """Trains on the whole small graph, in chunks; the model goes to `home`.

    Args:
        mode, devices, hybrid: of `[train.fullgraph]`.
        options: override `TABLE`.
    """
    settings = FullGraphSettings(mode=mode, devices=devices, hybrid=hybrid)  # pyright: ignore[reportArgumentType]
    made: dict[str, Any] = {"trainer": "fullgraph", "accumulate": 1, "settings": settings}
    table = TrainTable(**(TABLE | made | options))
    run: dict[str, Any] = {"resume": resume, "progress": progress, "report": lambda line: None}
    inputs = random_graph_artifacts(home).inputs
    return train_table(
        Store(home), inputs | {"chunks": build_chunks(home, inputs["graph"], parts, chunks)}, table, None, 5, **run
    )[0]


def build_chunks(home: Path, graph: Artifact, parts: int, chunks: int) -> Artifact:
    """Cuts a graph into random parts and these into chunks."""
    store = Store(home)
    config = PartitionsConfig(method="random", parts=parts, seed=3)
    parts_of = materialize(store, PARTITIONS, config, PartitionsExecution(threads=1), {"graph": graph})
    cut = chunks_config(ChunksTable(chunks_per_part=chunks), 3)
    return materialize(store, CHUNKS, cut, ChunksExecution(threads=1), {"graph": graph, "partitions": parts_of})


def content(model: Artifact) -> dict[str, str]:
    """The digest of every content file of a model."""
    return {name: entry["digest"] for name, entry in model.files.items()}
