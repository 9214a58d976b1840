"""`graphmill simulate cluster` and `graphmill network` as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from graphmill.assets.sizes import format_bytes

if TYPE_CHECKING:
    from graphmill.jobs.scaling.cluster import Machines
    from graphmill.jobs.scaling.counted import CountedStep
    from graphmill.jobs.scaling.simulation import ClusterSimulation
    from graphmill.jobs.scaling.trainers import TrainerCost

Write = Callable[[str], object]


def print_cluster(found: ClusterSimulation, machines: Machines, write: Write) -> None:
    """Prints the tables of stages and trainings, and what breaks; at most 80 columns wide."""
    for line in _stage_lines(found):
        write(line)
    write("")
    for line in _trainer_lines(found.trainers):
        write(line)
    write(f"fullgraph with {found.chunks_per_part} chunks per part; packed rows, samples and shards by part")
    write("")
    stops = [limit for limit in found.limits if limit.stops]
    if not stops:
        write(f"all of it fits {machines.count} such machines")
    for limit in found.limits:
        said = "breaks first" if stops and limit is stops[0] else "breaks" if limit.stops else "slow"
        write(f"{said}: {limit.name}: {limit.text}")


def _stage_lines(found: ClusterSimulation) -> Iterator[str]:
    yield f"{'stage':14} {'on':>4} {'memory':>13} {'stored':>10} {'scratch':>10} {'network':>10} {'hours':>12}"
    for each in found.stages:
        memory = ("<= " if each.memory_at_most else "") + format_bytes(each.memory_bytes)
        scratch = format_bytes(each.scratch_bytes) if each.scratch_bytes else ""
        network = format_bytes(each.fetched_bytes + each.published_bytes)
        hours = _range(each.best_seconds / 3600, each.most_seconds / 3600)
        yield (
            f"{each.name:14} {each.machines:4} {memory:>13} {format_bytes(each.stored_bytes):>10} {scratch:>10} {network:>10} {hours:>12}"
        )
    yield f"{'in turn':66} {_range(*found.hours):>12}"


def _range(low: float, high: float) -> str:
    return f"{low:.1f} to {high:.1f}" if high >= 0.1 else f"{high:.3f}"


def _trainer_lines(trainers: Sequence[TrainerCost]) -> Iterator[str]:
    yield f"{'an epoch of':19} {'on':>4} {'memory':>10} {'disk':>10} {'network':>10} {'seconds':>9}  of which"
    for each in trainers:
        network = format_bytes(sum(each.network_bytes.values())) if each.network_bytes else ""
        longest = max(each.seconds, key=lambda name: each.seconds[name])
        yield (
            f"{each.name:19} {each.machines:4} {format_bytes(each.memory_bytes):>10} {format_bytes(each.disk_bytes):>10} {network:>10} "
            f"{each.epoch_seconds:9.1f}  {longest}"
        )


def print_counted(found: Sequence[CountedStep], write: Write) -> None:
    """Prints the bytes that each step moves, and those between the ranks of trainings; at most 80 columns wide."""
    width = max(len(each.name) for each in found)
    write(f"{'step':{width}}  {'parts':>5}  {'a machine fetches':>17}  {'publishes':>10}")
    for each in found:
        if not each.built:
            write(f"{each.name:{width}}  is not built")
            continue
        parts = str(each.parts) if each.parts else ""
        write(
            f"{each.name:{width}}  {parts:>5}  {format_bytes(each.fetched_bytes):>17}  {format_bytes(each.published_bytes):>10}"
        )
        for kind, num_bytes in each.between.items():
            mark = "" if kind not in each.by_formula else " =" if each.by_formula[kind] == num_bytes else " /="
            write(f"  between {each.ranks} ranks {num_bytes:>20,} B of {kind}{mark}")
    if any(each.by_formula for each in found):
        write("= the formula of docs/scaling.md gives the same number, from other counts")
