"""Training runs on a small graph, for the trainer tests and the laws."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.materialize import materialize
from graphmill.assets.building.stage import Progress, Silent
from graphmill.assets.chunks.config import ChunksTable, chunks_config
from graphmill.assets.chunks.stage import CHUNKS
from graphmill.assets.hotness.config import HotnessTable, hotness_config
from graphmill.assets.hotness.stage import HOTNESS
from graphmill.assets.partitions.config import PartitionsConfig
from graphmill.assets.partitions.stage import PARTITIONS
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.shards.config import ShardsConfig, ShardsExecution
from graphmill.assets.shards.stage import SHARDS
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.trainers.ranks.group import ALONE, Ranks
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.techniques import TECHNIQUES
from graphmill.trainers.run import train_table
from graphmill.trainers.techniques.distributed.settings import DistributedSettings
from graphmill.trainers.techniques.fresh_distributed.settings import FreshDistributedSettings
from graphmill.trainers.techniques.fullgraph.settings import FullGraphSettings
from tests.assets.packed_chunks.packed import Packed
from tests.assets.sampling_tables.tables import with_tables
from tests.graphs import GraphArtifacts
from tests.trainers.graphs import link_graph_artifacts, random_graph_artifacts
from tests.trainers.rows.caches import cache_inputs, resolve

SAMPLING = SamplingConfig(fanouts=(4, 3), batch_size=32)
WEIGHTED = SamplingConfig(
    fanouts=(4, 3), batch_size=32, reuse=2, method="weighted", weights="node:out_degree", empty_rows="none"
)
WALKS = SamplingConfig(fanouts=(5, 5), batch_size=32, reuse=2, method="random_walk")
DRAWN = {"weighted": (WEIGHTED, "sage"), "walks": (WALKS, "pinsage")}
"""How neighbours are drawn, and a model that averages by their shares."""

FRESH: dict[str, Any] = {"t_stale": 3, "p_grad": 0.8, "arena": "60%", "policy": "accuracy+features"}
TABLE: dict[str, Any] = {
    "name": "small",
    "layers": 2,
    "hidden": 8,
    "epochs": 3,
    "lr": 0.02,
    "accumulate": 3,
    "threads": 2,
}


class Predicted(Silent):
    """Refuses a prediction that fails: a training only tells of it and goes on."""

    def tell(self, line: str) -> None:
        assert not line.startswith("no prediction"), line


class Stops(Silent):
    """Ends a training behind so many batches, as if its process were gone."""

    def __init__(self, after: int):
        self.left, self.unit = after, ""

    def start(self, label: str, total: int, unit: str) -> None:
        self.unit = unit

    def advance(self, n: int) -> None:
        self.left -= n if self.unit == "batches" else 0
        if self.left < 0:
            raise ConnectionAbortedError("stopped")


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
        "progress": progress or Predicted(),
        "report": report,
    }
    reads = {} if memory is None else cache_inputs(home, artifacts, **memory)
    inputs = with_tables(home, artifacts.inputs, sampling)
    return train_table(store, inputs, table, sampling, 5, reads=reads, **run)[0]


def train_packed(
    packed: Packed,
    home: Path,
    trainer: str = "disk",
    *,
    sampling: SamplingConfig = SAMPLING,
    seed: int = 5,
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
    run: dict[str, Any] = {"resume": resume, "progress": progress or Predicted(), "report": lambda line: None}
    reads = {name: artifact for name, artifact in stored_rows(packed).items() if name in table.reads}
    inputs = with_tables(home, packed.inputs, sampling)
    return train_table(Store(home), inputs, table, sampling, seed, reads=reads, **run)[0]


def losses(model: Artifact) -> list[float]:
    """The training loss of each epoch."""
    return [json.loads(line)["loss"] for line in model.file("metrics.jsonl").read_text().splitlines()]


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
    overlap: bool = True,
    keep_first: bool = True,
    self_term: bool = True,
    peer_link: str | None = None,
    graph: Mapping[str, int] | None = None,
    links: bool = False,
    memory: dict[str, Any] | None = None,
    ranks: Ranks = ALONE,
    resume: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Artifact:
    """Trains on the whole small graph, in chunks; the model goes to `home`. Ranks behind the first one return another's.

    Args:
        mode, devices, hybrid, overlap, keep_first, peer_link: of `[train.fullgraph]`.
        self_term: of `[chunks]`.
        graph: sizes of another graph.
        links: whether its edges are predicted.
        memory: a `[memory]` table, for tiers of feature rows.
        options: override `TABLE`.
    """
    settings = FullGraphSettings(
        mode=mode,  # pyright: ignore[reportArgumentType]
        devices=devices,
        hybrid=hybrid,
        overlap=overlap,
        keep_first=keep_first,
        peer_link=peer_link,
    )
    made: dict[str, Any] = {"trainer": "fullgraph", "accumulate": 1, "settings": settings}
    table = TrainTable(**(TABLE | made | options))
    run: dict[str, Any] = {"resume": resume, "progress": progress or Predicted(), "report": lambda line: None}
    artifacts = (link_graph_artifacts if links else random_graph_artifacts)(home, **(graph or {}))
    inputs = artifacts.inputs
    if memory is not None:
        run["reads"] = {"budgets": resolve(home, artifacts, **memory)}
    if "chunks" in table.inputs:  # an uncut graph has none
        inputs = inputs | {"chunks": build_chunks(home, inputs["graph"], parts, chunks, self_term)}
    models = train_table(Store(home), inputs, table, None, 5, ranks=ranks, **run)
    return models[0] if models else inputs["graph"]


def train_fresh(
    home: Path,
    *,
    sampling: SamplingConfig = SAMPLING,
    memory: dict[str, Any] | None = None,
    packed: Packed | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    fresh: dict[str, Any] | None = None,
    **options: Any,
) -> Artifact:
    """Trains with embeddings of earlier steps; the model goes to `home`.

    Args:
        memory: a `[memory]` table, for a cache below the arena, where the train table reads one.
        packed: trains on this packed graph, its sampling epochs in rotation, and its rows from packed chunks unless `fresh` says otherwise.
        fresh: of `[train.fresh]`.
        options: override `TABLE`; `trainer` may be "fresh-factored".
    """
    graph = random_graph_artifacts(home) if packed is None else GraphArtifacts(packed.graph, packed.features)
    there = {} if memory is None else {"budgets": resolve(home, graph, **memory)}
    settings = FRESH | (fresh or {})
    if packed is not None:
        there, settings = there | stored_rows(packed), {"rows": "packed"} | settings
        sampling = replace(sampling, reuse=packed.samples.summary["numbers"]["num_epochs"])
        options = {"samples": "stored"} | options
    trainer = options.pop("trainer", "fresh")
    made = TECHNIQUES[trainer].settings_type()
    assert made is not None
    table = TrainTable(**(TABLE | {"trainer": trainer, "settings": made(**settings)} | options))
    inputs = with_tables(home, graph.inputs, sampling)
    inputs |= {"hotness": count_inputs(home, inputs, sampling)}
    reads = {name: there[name] for name in table.reads if name in there}
    run: dict[str, Any] = {"resume": resume, "progress": progress or Predicted(), "report": lambda line: None}
    return train_table(Store(home), inputs, table, sampling, 5, reads=reads, **run)[0]


def count_inputs(home: Path, inputs: Mapping[str, Artifact], sampling: SamplingConfig) -> Artifact:
    """The hotness of a graph, with the inputs under every node counted by layer."""
    config = hotness_config(HotnessTable(policy="presample", layers="inputs"), sampling, 3)
    given = {role: inputs[role] for role in HOTNESS.inputs(config)}
    return materialize(Store(home), HOTNESS, config, Threads(threads=1), given)


def build_chunks(home: Path, graph: Artifact, parts: int, chunks: int, self_term: bool = True) -> Artifact:
    """Cuts a graph into random parts and these into chunks."""
    store = Store(home)
    config = PartitionsConfig(method="random", parts=parts, seed=3)
    parts_of = materialize(store, PARTITIONS, config, Threads(threads=1), {"graph": graph})
    cut = chunks_config(ChunksTable(chunks_per_part=chunks, self_term=self_term), 3)
    return materialize(store, CHUNKS, cut, Threads(threads=1), {"graph": graph, "partitions": parts_of})


def content(model: Artifact) -> dict[str, str]:
    """The digest of every content file of a model."""
    return {name: entry["digest"] for name, entry in model.files.items()}


def train_parts(
    home: Path,
    parts: int,
    ranks: Ranks = ALONE,
    *,
    method: str = "random",
    sampling: SamplingConfig = SAMPLING,
    resume: bool = False,
    retrain: bool = False,
    progress: Progress | None = None,
    memory: dict[str, Any] | None = None,
    featureless: int = 0,
    width: int = 12,
    stored_dtype: str = "float32",
    settings: dict[str, Any] | None = None,
    fresh: dict[str, Any] | None = None,
    packed: Packed | None = None,
    **options: Any,
) -> Artifact | None:
    """Trains on the parts of the small graph as one rank of several; returns the model at the first.

    Args:
        method: of the partitions.
        memory: a `[memory]` table and the `seed` of an order of hotness, for a cache of rows of other ranks.
        featureless, width, stored_dtype: of the graph.
        settings: of `[train.distributed]`.
        fresh: each part keeps embeddings of earlier steps; of `[train.fresh-distributed]`, over `FRESH`.
        packed: trains on these stored batches, and on packed rows if `settings` say so.
        options: override `TABLE`.
    """
    inputs, reads = parts_inputs(home, parts, method, memory, featureless, width, stored_dtype)
    inputs = with_tables(home, inputs, sampling)
    made: dict[str, Any] = {"trainer": "distributed", "settings": DistributedSettings(**(settings or {}))}
    if fresh is not None:
        keys = FRESH | fresh | (settings or {})
        made = {"trainer": "fresh-distributed", "settings": FreshDistributedSettings(**keys)}
        inputs |= {"hotness": count_inputs(home, inputs, sampling)}
        reads.pop("hotness", None)
    if packed is not None:
        options, there = {"samples": "stored"} | options, stored_rows(packed)
    table = TrainTable(**(TABLE | made | options))
    if packed is not None:
        reads |= {name: there[name] for name in table.reads if name in there}
    run: dict[str, Any] = {
        "resume": resume,
        "retrain": retrain,
        "progress": progress or Predicted(),
        "report": lambda line: None,
    }
    models = train_table(Store(home), inputs, table, sampling, 5, reads=reads, ranks=ranks, **run)
    return models[0] if models else None


def parts_inputs(
    home: Path,
    parts: int,
    method: str = "random",
    memory: dict[str, Any] | None = None,
    featureless: int = 0,
    width: int = 12,
    stored_dtype: str = "float32",
) -> tuple[dict[str, Artifact], dict[str, Artifact]]:
    """What `train_parts` reads, by stage: what decides its weights, and the rest. Arguments are those of `train_parts`."""
    artifacts = random_graph_artifacts(home, featureless=featureless, width=width, dtype=stored_dtype)
    inputs, shards = build_shards(home, artifacts.inputs, parts, method)
    return inputs, {"shards": shards} | ({} if memory is None else cache_inputs(home, artifacts, **memory))


def build_shards(
    home: Path, inputs: Mapping[str, Artifact], parts: int, method: str = "random"
) -> tuple[dict[str, Artifact], Artifact]:
    """Cuts a graph into parts and its features into shards; returns graph, features and partitions by name, and the shards."""
    store = Store(home)
    config = PartitionsConfig(method=method, parts=parts, seed=3 if method in ("random", "metis") else 0)  # pyright: ignore
    cut = materialize(store, PARTITIONS, config, Threads(threads=1), {"graph": inputs["graph"]})
    rows = {"features": inputs["features"], "partitions": cut}
    return {**inputs, "partitions": cut}, materialize(store, SHARDS, ShardsConfig(), ShardsExecution(), rows)
