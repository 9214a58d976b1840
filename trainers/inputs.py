"""What a train table reads, found in the store: the graph, what decides its cache, stored batches and their packed rows.

Versions are given (by the step that launched the training, or on the command line) or computed from the recipe, as the steps of a pipeline
compute them. Packed chunks name the samples and the plan that they were made from, so their version is enough for all three.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assets.building.materialize import materialize, stage_version
from assets.pipeline.data_steps import preprocessing_steps
from assets.pipeline.file import Pipeline
from assets.storage.artifact import Artifact
from assets.storage.store import Store
from kernels.errors import InputError
from trainers.config import TrainTable
from trainers.open_batches import StoredInputs
from trainers.open_rows import CacheInputs


@dataclass(frozen=True, kw_only=True)
class TableInputs:
    """Artifacts of one train table.

    Attributes:
        graph: what is trained on.
        cache: what decides which rows are cached, None without a cache.
        stored: stored batches, None where they are sampled online.
    """

    graph: Artifact
    cache: CacheInputs | None
    stored: StoredInputs | None


def find_table_inputs(pipeline: Pipeline, table: TrainTable, store: Store, given: Mapping[str, str]) -> TableInputs:
    """Returns the artifacts that a table reads.

    Args:
        pipeline, table: the recipe.
        store: has them; only missing budgets are resolved here.
        given: stage -> version, or its beginning.

    Raises:
        InputError: an artifact is not there, or the pipeline has no table that asks for it.
    """
    finder = _Finder(pipeline, store, given)
    cache = stored = None
    if table.trainer == "minibatch" and {"hotness", "budgets"} <= finder.steps.keys():
        cache = CacheInputs(hotness=finder.find("hotness"), budgets=finder.find("budgets"))
    if table.trainer == "disk":
        packed = finder.find("packed_chunks")
        made_from = {role: store.open(role, packed.inputs[role]["version"]) for role in ("samples", "cache_plan")}
        stored = StoredInputs(packed_chunks=packed, **made_from)
    elif table.samples == "stored":
        stored = StoredInputs(samples=finder.find("samples"))
    return TableInputs(graph=finder.find("graph"), cache=cache, stored=stored)


class _Finder:
    """Finds the artifacts of a pipeline's steps, each once."""

    def __init__(self, pipeline: Pipeline, store: Store, given: Mapping[str, str]):
        self.pipeline, self.store, self.given = pipeline, store, given
        self.steps = {step.name: step for step in preprocessing_steps(pipeline, store.home)}
        self._found: dict[str, Artifact] = {}

    def find(self, name: str) -> Artifact:
        if name not in self._found:
            self._found[name] = self._find(name)
        return self._found[name]

    def _find(self, name: str) -> Artifact:
        if name in self.given:
            return self.store.resolve(f"{name}/{self.given[name]}")
        if name not in self.steps:
            problem = f"{self.pipeline.path} has no table that asks for {name}, which this training reads"
            raise InputError(problem, "docs/pipelines.md says which tables a trainer needs")
        step = self.steps[name]
        inputs = {role: self.find(source.name) for role, source in step.inputs.items()}
        stage, (config,) = step.recipe, step.configs
        if name == "budgets":  # seconds of arithmetic; another machine has other measured numbers
            return materialize(self.store, stage, config, stage.Execution(), inputs)  # pyright: ignore
        return self.store.open(name, stage_version(stage, config, inputs))  # pyright: ignore
