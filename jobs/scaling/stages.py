"""What each stage takes of the machines that share it.

The memory, the bytes that stay, and the work are those of the stage's own formula. A stage that fans out is built by as many machines as it
has parts, of which each fetches the inputs once; any other stage is built by one machine, and so are the parts that one pass makes. With a
shared folder a machine reads only the pages that it needs of an input; with an object store it fetches the whole artifact, which is what is
counted here.

Two times are given. At best all threads that a stage starts work as fast as the two cores that its speed was measured on, and disk and
network are used beside them. At most only two cores of a machine work, and nothing overlaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import ceil
from pathlib import Path
from typing import Any

from graphmill.assets.building.stage import FanOut, TogetherFanOut
from graphmill.assets.costs.needs import Need
from graphmill.assets.packed_chunks.config import GROUP_BYTES
from graphmill.assets.pipeline.data_steps import preprocessing_steps
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.needs import StepNeed, step_needs
from graphmill.assets.pipeline.steps import Step
from graphmill.assets.storage.store import Store
from graphmill.jobs.runs.training import training_steps
from graphmill.jobs.scaling.cluster import Machines

MEASURED_CORES, MOST_STAGE_THREADS = 2, 8
"""Cores on which speeds of stages were measured (docs/needs.md), and threads that a stage starts at most by itself."""
IN_BYTES = ("features", "shards", "packed_chunks")
"""Stages whose work is bytes that are read and written."""


@dataclass(frozen=True, kw_only=True)
class StageCost:
    """What one stage takes.

    Attributes:
        machines: number of machines that build it.
        memory_bytes: anonymous memory of each at its peak.
        memory_at_most: whether that is a bound.
        input_bytes: bytes of its inputs.
        stored_bytes, scratch_bytes: bytes that stay, and those that are free again, of all machines.
        fetched_bytes, published_bytes: bytes that all machines fetch from the store and put into it.
        best_seconds, most_seconds: between these it takes.
    """

    name: str
    machines: int
    memory_bytes: int
    memory_at_most: bool
    input_bytes: int
    stored_bytes: int
    scratch_bytes: int
    fetched_bytes: int
    published_bytes: int
    best_seconds: float
    most_seconds: float


def needs_of(pipeline: Pipeline, machines: Machines, home: Path) -> list[StepNeed]:
    """Returns the needs of all steps, as the machines would run them; nothing of them exists."""
    store = Store(home)
    data = preprocessing_steps(pipeline, store.home)
    tables = {table.name: table for table in pipeline.train}

    def execution(step: Step) -> Any:
        if step.name in tables:
            return tables[step.name].execution
        threaded = "threads" in {field.name for field in fields(step.recipe.Execution)}
        return step.recipe.Execution(**({"threads": stage_threads(machines)} if threaded else {}))

    return step_needs([*data, *training_steps(pipeline, data)], store, execution)


def stage_threads(machines: Machines) -> int:
    """Returns the threads of a stage on one of the machines."""
    return min(MOST_STAGE_THREADS, machines.cores)


def stage_costs(found: Sequence[StepNeed], machines: Machines) -> list[StageCost]:
    """Returns the costs of the stages among some steps, in order."""
    stored = {each.name: each.need.stored for each in found if each.need}
    return [_cost(each, each.need, stored, machines) for each in found if each.need and each.step.recipe.speed]


def _cost(each: StepNeed, need: Need, stored: dict[str, int], machines: Machines) -> StageCost:
    stage, used = each.step.recipe, _machines_of(each, need, machines)
    inputs = sum(stored.get(source.name, 0) for source in each.step.sources.values())
    fetched = used * inputs if used > 1 else 0
    own = need.work / used if stage.name in IN_BYTES else 0
    disk = max(inputs + (need.stored + 2 * need.scratch) / used, own) / machines.disk_rate
    network = (inputs * (used > 1) + need.stored / used) / machines.network_rate
    assert stage.speed is not None
    work = need.work / (stage.speed.per_second * used)
    threads = max(1.0, stage_threads(machines) / MEASURED_CORES)
    return StageCost(
        name=each.name,
        machines=used,
        memory_bytes=need.memory_bytes,
        memory_at_most=need.is_bound,
        input_bytes=inputs,
        stored_bytes=need.stored,
        scratch_bytes=need.scratch,
        fetched_bytes=fetched,
        published_bytes=need.stored,
        best_seconds=max(work / threads, disk, network),
        most_seconds=work + disk + network,
    )


def _machines_of(each: StepNeed, need: Need, machines: Machines) -> int:
    """Returns the machines that share a stage: one per part, of a stage that fans out over processes."""
    stage, config = each.step.recipe, each.step.configs[0]
    if not isinstance(stage, FanOut) or isinstance(stage, TogetherFanOut):
        return 1
    part_bytes = getattr(config, "part_bytes", GROUP_BYTES)
    return min(machines.count, max(1, ceil(need.stored / part_bytes)))
