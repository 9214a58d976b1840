"""A pipeline on some machines: its stages, its trainings, and what breaks."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from graphmill.assets.building.needs import Sizes
from graphmill.assets.features.stage import FEATURES
from graphmill.assets.pipeline.needs import StepNeed
from graphmill.assets.sources.stage import SourceStage
from graphmill.jobs.scaling.cluster import ClusterWork, Machines
from graphmill.jobs.scaling.limits import Breakage, limits
from graphmill.jobs.scaling.stages import StageCost, needs_of, stage_costs
from graphmill.jobs.scaling.trainers import TrainerCost, trainer_costs

MOST_CHUNKS, LEAST_GAIN = 4096, 0.02
"""Chunks of a part that are tried at most, and the share of the memory that twice as many have to spare to be tried."""


@dataclass(frozen=True, kw_only=True)
class ClusterSimulation:
    """The result of a simulation.

    Attributes:
        stages: costs of the stages, in the order of the pipeline, with samples by part if there are several machines.
        trainers: costs of the trainings.
        limits: what breaks, in the order in which a run would meet it.
        chunks_per_part: chunks of a part for `fullgraph`.
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

    Args:
        distinct: share of the input rows of a batch's bound that differ.

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
