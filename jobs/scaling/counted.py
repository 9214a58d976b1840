"""The bytes that the steps of a pipeline moved, or would move, between machines, counted in artifacts and ledgers that exist.

A machine that builds a step fetches the inputs that it lacks, whole, and publishes what it built. A training's ledger has the bytes between
its ranks; if there is a formula for them (trainers/techniques/distributed/costs.py), what it gives from the other counts of the same
ledger stands beside.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.steps import Step, Versions
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.store import Store
from graphmill.jobs.figures.cost import read_ledger
from graphmill.jobs.runs.training import all_steps
from graphmill.trainers.techniques.distributed.costs import ModelSize, counted_by_formula


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
