"""What breaks when a graph grows: memory, disk, numbers that do not fit into their type, files that a store does not take, and days."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graphmill.assets.building.needs import Sizes
from graphmill.assets.partitions.assign import SLACK
from graphmill.assets.sizes import format_bytes
from graphmill.jobs.scaling.cluster import Machines
from graphmill.jobs.scaling.stages import StageCost
from graphmill.jobs.scaling.trainers import TrainerCost
from graphmill.kernels.rows.slots import MAX_ROWS
from graphmill.kernels.types import id_dtype

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
        name: the step.
        stops: whether the step cannot run; else it runs for long.
        text: a sentence that says it with its numbers.
    """

    name: str
    stops: bool
    text: str


def limits(
    stages: Sequence[StageCost], trainers: Sequence[TrainerCost], sizes: Sizes, chunks_per_part: int, machines: Machines
) -> list[Breakage]:
    """Returns everything that breaks, in the order in which a run would meet it.

    Args:
        chunks_per_part: chunks of a part of `fullgraph`.
    """
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
    largest = {"graph": sizes.num_edges * id_dtype(sizes.num_nodes).itemsize, "features": sizes.feature_bytes}
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
