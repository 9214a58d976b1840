"""What a pipeline will take of the machine, as `graphmill inspect` and `validate` print it, and the refusal of what cannot fit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any

from graphmill.assets.building.stage import FanOut, TogetherFanOut
from graphmill.assets.costs.needs import Need, require_fit
from graphmill.assets.partitions.empty import empty_notes
from graphmill.assets.pipeline.file import Pipeline
from graphmill.assets.pipeline.needs import KnownSizes, StepNeed, step_needs, total_stored
from graphmill.assets.pipeline.steps import Step, preprocessing_steps
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.store import Store
from graphmill.assets.storage.system.machine import memory_bytes
from graphmill.jobs.definitions import execution_of
from graphmill.jobs.operations.size import waited_for
from graphmill.jobs.runs.training import training_steps
from graphmill.kernels.errors import InputError
from graphmill.trainers.recipe.config import TrainTable
from graphmill.trainers.recipe.costs.device import device_need


@dataclass(frozen=True, kw_only=True)
class PipelineNeeds:
    """The needs of all steps of a pipeline, and the machine.

    Attributes:
        steps: the steps, in the order in which they run.
        memory_bytes: main memory that processes here may use: the machine's, or the limit of their control group.
        disk_bytes: free bytes of the disk of the home.
        on: address of the cluster on whose nodes some steps take their memory, "" without one.
        elsewhere: names of these steps.
        notes: sentences about parts without work.
        gpus: name of a training that is missing, and trains on a GPU -> its need of the GPU's memory.
    """

    steps: Sequence[StepNeed]
    memory_bytes: int
    disk_bytes: int
    home: Path
    on: str = ""
    elsewhere: frozenset[str] = frozenset()
    notes: Sequence[str] = ()
    gpus: Mapping[str, Need] = field(default_factory=dict)

    @property
    def disk_needed(self) -> int:
        """Bytes of disk while everything is built: what stays, and the largest scratch."""
        scratch = max((each.need.scratch for each in self.steps if each.need), default=0)
        return total_stored(self.steps) + scratch

    def require_fit(self) -> None:
        """Refuses a pipeline that cannot be built here, whatever its bounds come to.

        Raises:
            InputError: a step needs more memory than there is, with its terms; or more disk is needed than is free.
        """
        for each in self.steps:
            if each.need is not None and each.name not in self.elsewhere:
                require_fit(each.need, self.memory_bytes)
        least = total_stored(self.steps, least=True)
        if least > self.disk_bytes:
            largest = max((each for each in self.steps if each.need), key=lambda each: each.stored)
            raise InputError(
                f"building takes at least {format_bytes(least)} of disk, and {format_bytes(self.disk_bytes)} are free in {self.home}",
                f"free space, or point GRAPHMILL_HOME elsewhere; most of it is {largest.name}, {format_bytes(largest.stored)}",
            )

    def lines(self) -> Iterator[str]:
        """Yields the table, at most 80 columns wide, and what it means."""
        width = max(len(each.name) for each in self.steps)
        yield f"{'needs':{width}}  {'memory':>19}  {'disk':>13}  {'scratch':>10}  {'time':>7}"
        for each in self.steps:
            yield f"{each.name:{width}}  {_row(each)}"
        yield f"memory {format_bytes(self.memory_bytes)}, the most of a step counts; a..b is a range, <= a bound"
        needed, free = format_bytes(self.disk_needed), format_bytes(self.disk_bytes)
        yield f"disk   {needed} in all, {free} free in {self.home}"
        if any(each.seconds and not each.measured for each in self.steps):
            yield "time   ~ by the machine of docs/needs.md: this home has not built such a step"
        built = [each for each in self.steps if each.need]
        if built:
            most = max(built, key=lambda each: each.need.memory_bytes if each.need else 0)
            yield f"{most.name} takes the most memory:"
            yield from (f"  {line}" for line in (most.need.lines() if most.need else ()))
        for each in self.steps:
            if each.need is not None and (passes := each.need.passes) is not None:
                reads = f"{passes.count:,} passes over the edges read {format_bytes(passes.num_bytes)}"
                yield f"{each.name}: at most {reads}, {_duration(passes.seconds)}"
        if self.gpus:
            name, most = max(self.gpus.items(), key=lambda each: each[1].memory_bytes)
            each = ", ".join(f"{table} {format_bytes(need.memory_bytes)}" for table, need in self.gpus.items())
            yield f"memory of the GPU, about: {each}"
            yield f"{name} takes the most of it:"
            yield from (f"  {line}" for line in most.lines())
        if self.elsewhere:
            yield f"on the nodes of the cluster {self.on}, whose memory counts: {', '.join(sorted(self.elsewhere))}"
        yield from self._doubts()

    def _doubts(self) -> Iterator[str]:
        for each in self.steps:
            if each.need and each.name not in self.elsewhere and each.need.required_bytes > self.memory_bytes:
                yield f"note: {each.name} may not fit the memory"
        if self.disk_needed > self.disk_bytes:
            yield "note: the disk may not hold all of it"
        yield from (f"note: {note}" for note in self.notes)

    def values(self) -> dict[str, Any]:
        """Returns everything as JSON-ready values."""
        return {
            "memory_bytes": self.memory_bytes,
            "disk_bytes": self.disk_bytes,
            "disk_needed_bytes": self.disk_needed,
            "steps": [
                _values(each)
                | ({"gpu_memory_bytes": self.gpus[each.name].memory_bytes} if each.name in self.gpus else {})
                for each in self.steps
            ],
        }


def pipeline_needs(pipeline: Pipeline, home: Path | None, known: KnownSizes | None = None) -> PipelineNeeds:
    """Returns the needs of a pipeline; builds nothing; raises InputError if the source is missing, or it cannot be read."""
    store = Store(home)
    data = preprocessing_steps(pipeline, store.home)
    tables = {table.name: table for table in pipeline.train}

    def execution(step: Step) -> Any:
        return tables[step.name].execution if step.name in tables else execution_of(step.recipe, None)

    steps = [*data, *training_steps(pipeline, data, store.home)]
    known = KnownSizes(store) if known is None else known
    found = step_needs(steps, store, execution, known)
    builds = any(each.missing for each in found if each.name not in tables)
    found = [replace(each, need=waited_for(pipeline, each.need, builds)) for each in found]
    folder = next(parent for parent in (store.home, *store.home.parents) if parent.exists())
    free = shutil.disk_usage(folder).free
    given = {"memory_bytes": memory_bytes(), "disk_bytes": free, "home": store.home, "on": pipeline.on}
    asked = {name: table for name in ("partitions", "chunks") if (table := pipeline.table(name)) is not None}
    parted = next((step.apart[0] for step in data if step.recipe.name == "partitions"), None)
    notes = [] if parted is None else [*empty_notes(asked, known.sizes(parted).num_nodes)]
    gpus = {
        each.name: need for each in found if each.missing and (need := _of_gpu(each.step, tables, known)) is not None
    }
    return PipelineNeeds(steps=found, elsewhere=_on_nodes(pipeline, steps), notes=notes, gpus=gpus, **given)


def _of_gpu(step: Step, tables: Mapping[str, TrainTable], known: KnownSizes) -> Need | None:
    """Returns the need of a GPU's memory; None for a step that is not a training, or that trains on a CPU."""
    if step.name not in tables:
        return None
    return device_need(step.configs[0], tables[step.name].execution, known.sizes(step))


def _on_nodes(pipeline: Pipeline, steps: Sequence[Step]) -> frozenset[str]:
    """Returns the names of the steps that run on the nodes of the pipeline's cluster: trainings, and stages built as parts."""
    if not pipeline.on:
        return frozenset()
    apart = [step for step in steps if isinstance(step.recipe, FanOut) and not isinstance(step.recipe, TogetherFanOut)]
    return frozenset({step.name for step in apart} | {table.name for table in pipeline.train})


def _row(each: StepNeed) -> str:
    if not each.missing:
        return f"{'is there':>19}"
    if each.need is None:
        return f"{'not known':>19}"
    memory = _range(each.need.least_bytes, each.need.memory_bytes)
    disk = ("<= " if each.need.stored_at_most else "") + format_bytes(each.stored) if each.stored else ""
    scratch = format_bytes(each.need.scratch) if each.need.scratch else ""
    time = "" if each.seconds is None else ("" if each.measured else "~") + _duration(each.seconds)
    return f"{memory:>19}  {disk:>13}  {scratch:>10}  {time:>7}".rstrip()


def _range(least: int, most: int) -> str:
    """Returns a count of bytes that may vary; both ends of one unit name it once: "1.5..2.0 GiB"."""
    low, high = format_bytes(least), format_bytes(most)
    if low == high:
        return high
    return f"{low.removesuffix(' ' + high.split()[1])}..{high}"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{ceil(seconds)} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _values(each: StepNeed) -> dict[str, Any]:
    found: dict[str, Any] = {"step": each.name, "missing": each.missing, "memory_bytes": None}
    if each.need is None:
        return found
    terms = [
        {"what": term.name, "bytes": term.most, "key": term.key, "at_most": term.bound}
        for term in each.need.memory
        if term.most
    ]
    if (passes := each.need.passes) is not None:
        found |= {"passes": passes.count, "pass_bytes": passes.num_bytes, "pass_seconds": passes.seconds}
    return found | {
        "memory_bytes": each.need.memory_bytes,
        "memory_at_most": each.need.is_bound,
        "memory": terms,
        "stored_bytes": each.stored,
        "stored_at_most": each.need.stored_at_most,
        "scratch_bytes": each.need.scratch,
        "seconds": each.seconds,
        "speed_measured": each.measured,
    }
