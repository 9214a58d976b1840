"""A pipeline on some machines: its stages, its trainings, and what breaks when a graph grows.

The memory of a stage, the bytes that stay, and the work are those of the stage's own formula. A stage that fans out is built by as many
machines as it has parts, of which each fetches the inputs once; any other stage is built by one machine, and so are the parts that one pass
makes. With a shared folder a machine reads only the pages that it needs of an input; with an object store it fetches the whole artifact,
which is what is counted here.

Two times are given. At best all threads that a stage starts work as fast as the two cores that its speed was measured on, and disk and
network are used beside them. At most only two cores of a machine work, and nothing overlaps.

Memory and disk break, numbers that do not fit into their type, files that a store does not take, and days.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import Any

from graphmill.assets.building.stage import FanOut, TogetherFanOut
from graphmill.assets.costs.needs import Need, Sizes
from graphmill.assets.features.stage import FEATURES
from graphmill.assets.packed_chunks.config import GROUP_BYTES
from graphmill.assets.partitions.assign import SLACK
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.needs import StepNeed, step_needs
from graphmill.assets.pipeline.steps import Step
from graphmill.assets.sizes import format_bytes
from graphmill.assets.sources.stage import SourceStage
from graphmill.assets.storage.store import Store
from graphmill.jobs.definitions import execution_of
from graphmill.jobs.runs.training import all_steps
from graphmill.jobs.scaling.cluster import MEASURED_CORES, ClusterWork, Machines
from graphmill.jobs.scaling.trainers import TrainerCost, trainer_costs
from graphmill.kernels.rows.slots import MAX_ROWS

MOST_STAGE_THREADS = 8
"""Threads that a stage starts at most by itself."""
IN_BYTES = ("features", "shards", "packed_chunks")
"""Stages whose work is bytes that are read and written."""


@dataclass(frozen=True, kw_only=True)
class StageCost:
    """What one stage takes.

    Attributes:
        memory_bytes: anonymous memory of each at its peak.
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
    store, tables = Store(home), {table.name: table for table in pipeline.train}

    def execution(step: Step) -> Any:
        table = tables.get(step.name)
        return table.execution if table else execution_of(step.recipe, stage_threads(machines))

    return step_needs(all_steps(pipeline, store.home), store, execution)


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
        memory_bytes=need.required_bytes,
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


MOST_CHUNKS, LEAST_GAIN = 4096, 0.02
"""Chunks of a part that are tried at most, and the share of the memory that twice as many have to spare to be tried."""
MOST_NUMBER = 2**31 - 1
LARGEST_OBJECT = 5 << 40
"""Bytes of the largest object that stores of the kind of S3 promise to take."""
SAMPLING = ("hotness", "samples")
"""Stages that read the topology in any order, which their speeds do not count."""
LONG_SECONDS = 24 * 3600.0


@dataclass(frozen=True, kw_only=True)
class Breakage:
    """Something that does not fit.

    Attributes:
        stops: whether the step cannot run; else it runs for long.
        text: a sentence that says it with its numbers.
    """

    name: str
    stops: bool
    text: str


@dataclass(frozen=True, kw_only=True)
class ClusterSimulation:
    """The result of a simulation.

    Attributes:
        stages: costs of the stages, in the order of the pipeline, with samples by part if there are several machines.
        limits: what breaks, in the order in which a run would meet it.
    """

    stages: list[StageCost]
    trainers: list[TrainerCost]
    limits: list[Breakage]
    chunks_per_part: int

    @property
    def hours(self) -> tuple[float, float]:
        """Hours of all stages one after the other, at best and at most."""
        best, most = (sum(getattr(stage, f"{name}_seconds") for stage in self.stages) for name in ("best", "most"))
        return best / 3600, most / 3600

    def values(self) -> Mapping[str, Any]:
        """Returns everything as JSON-ready values."""
        trainers = [asdict(each) | {"epoch_seconds": each.epoch_seconds} for each in self.trainers]
        found = {"stages": [asdict(each) for each in self.stages], "trainers": trainers}
        return found | {"limits": [asdict(each) for each in self.limits], "chunks_per_part": self.chunks_per_part}


def simulate_cluster(workload: ClusterWork, machines: Machines, distinct: float = 1.0) -> ClusterSimulation:
    """Returns the simulation of a graph and its trainings on some machines; builds nothing.

    Raises:
        InputError: the numbers do not make a pipeline.
    """
    with tempfile.TemporaryDirectory(prefix="graphmill-simulated-") as folder:
        home, chunks, before = Path(folder), 1, 0
        alone = needs_of(workload.pipeline(machines, by_parts=False), machines, home)
        sizes = _sizes(alone)
        while True:
            shared = needs_of(workload.pipeline(machines, by_parts=True, chunks_per_part=chunks), machines, home)
            trainers = trainer_costs(shared, machines, sizes, distinct)
            memory = trainers[-1].memory_bytes
            gains = not before or memory < (1 - LEAST_GAIN) * before
            if memory <= machines.memory_bytes or not gains or chunks >= MOST_CHUNKS:
                break
            chunks, before = 2 * chunks, memory
    stages = stage_costs(shared, machines)
    trainers = [*trainer_costs(alone, machines, sizes, distinct), *trainers]
    found = limits(stages, trainers, sizes, chunks, machines)
    return ClusterSimulation(stages=stages, trainers=trainers, limits=found, chunks_per_part=chunks)


def _sizes(steps: Sequence[StepNeed]) -> Sizes:
    """Returns the sizes of the graph and of its stored features."""
    (features,) = [each.step for each in steps if each.name == FEATURES.name]
    assert isinstance(features.recipe, SourceStage)
    return features.recipe.known(features.configs[0])


def limits(
    stages: Sequence[StageCost], trainers: Sequence[TrainerCost], sizes: Sizes, chunks_per_part: int, machines: Machines
) -> list[Breakage]:
    """Returns everything that breaks, in the order in which a run would meet it."""
    found = [limit for stage in stages for limit in _of_stage(stage, sizes, machines)]
    return found + [limit for each in trainers for limit in _of_trainer(each, sizes, chunks_per_part, machines)]


def _of_stage(stage: StageCost, sizes: Sizes, machines: Machines) -> Iterator[Breakage]:
    if stage.memory_bytes > machines.memory_bytes:
        bound = "at most " if stage.memory_at_most else ""
        yield Breakage(name=stage.name, stops=True, text=_memory(bound, stage.memory_bytes, machines))
    disk = stage.input_bytes + (stage.stored_bytes + stage.scratch_bytes) // stage.machines
    if disk > machines.disk_bytes:
        text = f"its inputs, files and scratch are {format_bytes(disk)}, a disk has {format_bytes(machines.disk_bytes)}"
        yield Breakage(name=stage.name, stops=True, text=text)
    largest = {"graph": sizes.num_edges * sizes.id_bytes, "features": sizes.feature_bytes}
    if largest.get(stage.name, 0) > LARGEST_OBJECT:
        text = f"its largest file is {format_bytes(largest[stage.name])}; an object may have {format_bytes(LARGEST_OBJECT)}"
        yield Breakage(name=stage.name, stops=True, text=text)
    left, topology = machines.memory_bytes - stage.memory_bytes, sizes.topology_bytes
    if stage.name in SAMPLING and 0 < left < topology:
        mapped = f"the mapped topology is {format_bytes(topology)}, memory has {format_bytes(left)} left"
        yield Breakage(name=stage.name, stops=False, text=f"{mapped}: it takes longer than these hours")
    if stage.machines == 1 < machines.count and stage.most_seconds > LONG_SECONDS:
        hours = f"{stage.best_seconds / 3600:.1f} to {stage.most_seconds / 3600:.1f} hours"
        yield Breakage(name=stage.name, stops=False, text=f"one machine works for {hours}, the others wait")


def _of_trainer(each: TrainerCost, sizes: Sizes, chunks_per_part: int, machines: Machines) -> Iterator[Breakage]:
    if each.memory_bytes > machines.memory_bytes:
        yield Breakage(name=each.name, stops=True, text=_memory("at most ", each.memory_bytes, machines))
    if each.disk_bytes > machines.disk_bytes:
        text = f"its artifacts are {format_bytes(each.disk_bytes)}, a disk has {format_bytes(machines.disk_bytes)}"
        yield Breakage(name=each.name, stops=True, text=text)
    yield from _of_numbers(each, sizes, chunks_per_part, machines)
    left = machines.memory_bytes - each.memory_bytes
    if 0 < left < each.mapped_bytes:
        mapped = f"the mapped topology is {format_bytes(each.mapped_bytes)}, memory has {format_bytes(left)} left"
        yield Breakage(name=each.name, stops=False, text=f"{mapped}: sampling waits for pages of the disk")


def _of_numbers(each: TrainerCost, sizes: Sizes, chunks_per_part: int, machines: Machines) -> Iterator[Breakage]:
    """Yields the numbers of rows and edges that do not fit into their types."""
    rows = int((1 + SLACK) * sizes.num_rows / machines.count)
    if each.name in ("distributed", "fresh_distributed") and rows > MAX_ROWS:
        yield Breakage(
            name=each.name, stops=True, text=f"a machine has {rows:,} rows of shards, a slot numbers {MAX_ROWS:,}"
        )
    edges = sizes.num_edges // (machines.count * chunks_per_part)
    if each.name == "fullgraph" and edges > MOST_NUMBER:
        yield Breakage(name=each.name, stops=True, text=f"a chunk has {edges:,} edges, a block numbers {MOST_NUMBER:,}")


def _memory(bound: str, num_bytes: int, machines: Machines) -> str:
    needed, there = format_bytes(num_bytes), format_bytes(machines.memory_bytes)
    return f"it needs {bound}{needed} of memory, a machine has {there}"
