"""The two halves of a simulation: the machines, and the graph with its training; and the bytes that a run moved, to compare with.

A machine that builds a step fetches the inputs that it lacks, whole, and publishes what it built. A training's ledger has the bytes between
its ranks; if there is a formula for them (trainers/techniques/distributed/costs.py), what it gives from the other counts of the same
ledger stands beside.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomlkit

from graphmill.assets.pipeline.file import Pipeline, parse_pipeline
from graphmill.assets.pipeline.steps import Step, Versions
from graphmill.assets.sources.features.types import array_type
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.jobs.figures.cost import read_ledger
from graphmill.jobs.runs.training import all_steps
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.slots import MAX_ROWS
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.techniques.distributed.costs import ModelSize, counted_by_formula

TRAIN_OF_LABELLED, VALID_OF_LABELLED = 0.8, 0.1
"""Shares of the nodes with a label that train and validate; the others test."""
CACHED_SHARE = 4
"""The part of a machine's memory that caches rows is one in so many."""
MEASURED_CORES = 2
"""Cores on which speeds of stages were measured (docs/needs.md)."""


@dataclass(frozen=True, kw_only=True)
class Machines:
    """Equal machines, and what each of them does in a second.

    Attributes:
        disk_rate: bytes that its disk reads or writes per second, in order.
        pages_rate: pages of 4 KiB that its disk reads per second, in any order.
        network_rate: bytes that it sends and receives per second, each way.
        latency: seconds of a call between all machines.
        core_flops: floating-point operations that a core makes per second in a training step.
    """

    count: int
    cores: int
    memory_bytes: int
    disk_bytes: int
    disk_rate: float
    pages_rate: float
    network_rate: float
    latency: float = 1e-4
    core_flops: float = 40e9

    def __post_init__(self):
        numbers = {name: getattr(self, name) for name in self.__dataclass_fields__}
        wrong = [name for name, value in numbers.items() if not value > 0]
        if wrong:
            raise InputError(f"{wrong[0]} = {numbers[wrong[0]]} of a machine", "give a number above 0")


@dataclass(frozen=True, kw_only=True)
class ClusterWork:
    """A graph, and how it is trained.

    Attributes:
        features, dtype: columns of the features, and type of the stored values.
        train_share: share of the nodes that train, at most 0.8.
        fanouts, batch_size: neighbours per layer, and seeds of a batch.
        hidden, epochs: width of the layers between, and number of epochs.
        packed_times: disk budget of packed rows, in multiples of the features.
        queue: key `queue` of the train tables.
    """

    nodes: int
    edges: int
    features: int
    dtype: str = "float16"
    classes: int = 172
    train_share: float = 0.01
    fanouts: tuple[int, ...] = (10, 10)
    batch_size: int = 1024
    hidden: int = 256
    epochs: int = 10
    packed_times: float = 3.0
    queue: str = "auto"

    def __post_init__(self):
        if not 0 < self.train_share <= TRAIN_OF_LABELLED:
            raise InputError(f"train_share = {self.train_share}", f"give a share in (0, {TRAIN_OF_LABELLED}]")

    @property
    def row_bytes(self) -> int:
        """Bytes of a stored row."""
        return self.features * array_type(self.dtype).itemsize

    def pipeline(self, machines: Machines, *, by_parts: bool, chunks_per_part: int = 1) -> Pipeline:
        """Returns the pipeline that the machines would run.

        Args:
            by_parts: whether samples, and all that follows from them, are made by part for trainings on all machines; else for `disk`,
                which one machine trains.

        Raises:
            InputError: the numbers do not make a pipeline.
        """
        text = tomlkit.dumps(self._tables(machines, by_parts, chunks_per_part))
        return parse_pipeline(Path("simulated.toml"), text.encode(), TrainTable)

    def _tables(self, machines: Machines, by_parts: bool, chunks_per_part: int) -> dict[str, Any]:
        graph = {
            "source": "rmat", "nodes": self.nodes, "edges": self.edges, "undirected": False, "features": self.features,
            "classes": self.classes, "labelled": self.train_share / TRAIN_OF_LABELLED, "train_ratio": TRAIN_OF_LABELLED,
            "valid_ratio": VALID_OF_LABELLED,
        }  # fmt: skip
        sampling = {"fanouts": list(self.fanouts), "batch_size": self.batch_size, "reuse": 1}
        memory = {"device": 0, "host": cached_bytes(machines, self.row_bytes), "disk": f"{self.packed_times}x"}
        tables = {
            "graph": graph, "features": {"dtype": self.dtype}, "sampling": sampling,
            "samples": {"plan": "parts"} if by_parts else {}, "hotness": {}, "memory": memory, "cache_plan": {}, "packed": {},
        }  # fmt: skip
        if by_parts:
            tables |= {
                "partitions": {"method": "ldg", "parts": machines.count},
                "chunks": {"chunks_per_part": chunks_per_part},
            }
        return tables | {"train": [self._train(machines, *each) for each in TRAININGS[by_parts].items()]}

    def _train(self, machines: Machines, name: str, keys: dict[str, Any]) -> dict[str, Any]:
        trainer = keys["trainer"]
        settings = dict(keys.get("settings", {})) | ({"ranks": machines.count} if keys.get("shared") else {})
        if trainer == "fresh-distributed":
            settings["arena"] = f"{machines.memory_bytes // CACHED_SHARE >> 20}MiB"
        found = {
            "name": name, "trainer": trainer, "layers": len(self.fanouts), "hidden": self.hidden, "epochs": self.epochs,
            **keys.get("table", {}),
        }  # fmt: skip
        if trainer != "fullgraph":
            found |= {"eval": "sampled", "samplers": max(1, machines.cores - 1), "queue": self.queue}
        return found | ({trainer: settings} if settings else {})


def cached_bytes(machines: Machines, row_bytes: int) -> int:
    """Returns the bytes of rows that a machine caches: a share of its memory, and no more rows than slots can number."""
    return min(machines.memory_bytes // CACHED_SHARE, MAX_ROWS * row_bytes)


TRAININGS: dict[bool, dict[str, dict[str, Any]]] = {
    False: {"minibatch": {"trainer": "minibatch"}, "disk": {"trainer": "disk"}},
    True: {
        "distributed": {"trainer": "distributed", "shared": True},
        "distributed_packed": {
            "trainer": "distributed", "shared": True, "table": {"samples": "stored"}, "settings": {"rows": "packed"},
        },
        "fresh_distributed": {"trainer": "fresh-distributed", "shared": True},
        "fullgraph": {"trainer": "fullgraph", "shared": True},
    },
}  # fmt: skip
"""Whether samples are by part -> the trainings of that pipeline, by name."""


@dataclass(frozen=True, kw_only=True)
class CountedStep:
    """The bytes of one step of one split, over all of its artifacts.

    Attributes:
        name: the step, and its split if there are several.
        built: whether the store has all of its artifacts; the rest is 0 and empty if it does not.
        parts: number of parts that machines may share; 0 if it has none.
        fetched_bytes: bytes of all inputs, which a machine without any of them fetches.
        published_bytes: bytes of the artifacts, with their parts.
        ranks: number of processes that trained; 0 for a stage.
        between: kind -> bytes that ranks received from each other in the whole training.
        by_formula: kind -> the same by the formulas; only for the kinds that have one.
    """

    name: str
    built: bool
    parts: int = 0
    fetched_bytes: int = 0
    published_bytes: int = 0
    ranks: int = 0
    between: Mapping[str, int] = field(default_factory=dict)
    by_formula: Mapping[str, int] = field(default_factory=dict)


def counted_steps(pipeline: Pipeline, store: Store) -> list[CountedStep]:
    """Returns the counts of all steps of a pipeline, in order; builds nothing."""
    versions = Versions()
    return [_counted(each, store, versions) for step in all_steps(pipeline, store.home) for each in step.apart]


def _counted(step: Step, store: Store, versions: Versions) -> CountedStep:
    name = f"{step.name}, split {step.split}" if step.split else step.name
    found = [store.find(step.recipe.name, version) for version in versions.of(step)]
    artifacts = [artifact for artifact in found if artifact is not None]
    read = [store.find(source.recipe.name, versions.only(source)) for source in step.sources.values()]
    inputs = [artifact for artifact in read if artifact is not None]
    if len(artifacts) < len(found) or len(inputs) < len(read):
        return CountedStep(name=name, built=False)
    between: dict[str, int] = {}
    by_formula: dict[str, int] = {}
    for artifact in artifacts:
        of_ranks = between_ranks(read_ledger(artifact)) if artifact.stage == "model" else {}
        for total, more in ((between, of_ranks), (by_formula, _by_formula(artifact, inputs))):
            for kind, num_bytes in more.items():
                total[kind] = total.get(kind, 0) + num_bytes
    return CountedStep(
        name=name,
        built=True,
        parts=max(len(artifact.parts) for artifact in artifacts),
        fetched_bytes=sum(artifact.total_bytes for artifact in inputs),
        published_bytes=sum(artifact.total_bytes for artifact in artifacts),
        ranks=max(_ranks(artifact) for artifact in artifacts),
        between=between,
        by_formula=by_formula,
    )


def between_ranks(ledger: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, int]:
    """Returns kind -> bytes that crossed between ranks, of a ledger's rows."""
    found: dict[str, int] = {}
    for row in ledger["moves"]:
        if row["link"] == "rank":
            found[row["kind"]] = found.get(row["kind"], 0) + row["moved_bytes"]
    return found


def _ranks(artifact: Artifact) -> int:
    return max(1, len(artifact.run_record().get("ranks", ()))) if artifact.stage == "model" else 0


def _by_formula(artifact: Artifact, inputs: list[Artifact]) -> Mapping[str, int]:
    """Returns the bytes of a training by `distributed` or `fresh-distributed` as formulas give them; nothing for any other."""
    train = artifact.config.get("train", {})
    if "distributed" not in train.get("trainer", "") or train.get("embedding") == "node":
        return {}
    counts = {row["name"]: row["n"] for row in read_ledger(artifact)["counts"] if row["layer"] == 0}
    ranks, settings = _ranks(artifact), train.get("settings", {})
    table = next(each.table("rows") for each in inputs if each.stage == "features")
    steps = counts["batches"] // (ranks * train["accumulate"])
    ordered = settings.get("gradients", "ordered") == "ordered"
    return counted_by_formula(counts, _model_size(artifact), ranks, table.row_bytes, ordered, steps)


def _model_size(artifact: Artifact) -> ModelSize:
    """Returns the size of a model's parameters, from the head of their file: its length in 8 bytes, and JSON."""
    with artifact.file("weights.safetensors").open("rb") as file:
        head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    places = [entry["data_offsets"] for name, entry in head.items() if name != "__metadata__"]
    return ModelSize(num_bytes=sum(last - first for first, last in places), tensors=len(places))
