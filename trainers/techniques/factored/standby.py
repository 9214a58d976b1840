"""The batches that standby trainers are expected to take, and the rows that their smaller caches have; without torch.

A device that samples with the graph on it (`topology = "device"`) has less room for cached rows than one that trains. How many batches it
trains on, once all are sampled, follows from the seconds of stages in the run: the simulation of roles (simulator/) says it for the
measured pieces of a batch, and for samplers that are faster and slower than those by `UNSURE` it gives the range. Only the tiers from which
rows come are unsure; the rows are those of the drawn batches.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from graphmill.assets.graph.read import open_graph
from graphmill.kernels.types import Topology
from graphmill.trainers.recipe.costs.course import Case
from graphmill.trainers.recipe.costs.memory import tier_rows
from graphmill.trainers.techniques.factored.simulator.simulate import simulate
from graphmill.trainers.techniques.factored.simulator.workload import Workload

MOST_SIMULATED = 512
"""Batches of an epoch that are simulated at most; the share of a longer one is that of so many."""
UNSURE = 3.0
"""Factor by which sampling may be faster or slower beside training than the pieces of a batch say."""
UNMEASURED = (0.2, 0.6, 1.0)
"""Relative seconds in which a batch is sampled, extracted and trained on, if nothing was measured."""


@dataclass(frozen=True, kw_only=True)
class StandbyShare:
    """Shares of an epoch's batches that devices with the smaller cache train on.

    Attributes:
        expected, least, most: the best estimate, and both ends of its range.
    """

    expected: float
    least: float
    most: float


def standby_rows(case: Case) -> int | None:
    """Returns the rows in the cache of a device that samples; None if it has as many as one that trains."""
    if case.execution.topology != "device" or case.order is None:
        return None
    sizes = case.sizes
    rows = tier_rows(sizes, "device")[0]
    left = max(0, rows * sizes.row_bytes - _topology_bytes(case))
    left_rows = min(rows, left // max(1, sizes.row_bytes))
    return left_rows if left_rows < rows else None


def _topology_bytes(case: Case) -> int:
    """Returns the bytes of all arrays of the topology; of one that is not built, without weights."""
    sizes = case.sizes
    if "graph" in case.artifacts:
        topology = open_graph(case.artifacts["graph"]).topology
        arrays = [getattr(topology, each.name) for each in fields(Topology)]
        return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
    return sizes.topology_bytes + 2 * 4 * sizes.num_nodes


def standby_share(case: Case, sample: float, extract: float, train: float) -> StandbyShare:
    """Returns the shares of the batches that samplers train on.

    Args:
        sample, extract, train: seconds of a batch in each stage; all 0 if nothing was measured.
    """
    settings, plan, drawn = case.settings, case.plan, case.drawn
    assert plan is not None and drawn is not None
    if settings.sharing == "time":
        return StandbyShare(expected=1.0, least=1.0, most=1.0)
    if not settings.switching:
        return StandbyShare(expected=0.0, least=0.0, most=0.0)
    if not (sample or extract or train):
        sample, extract, train = UNMEASURED
    samplers, trainers = settings.roles(case.cores)
    batches = max(1, min(MOST_SIMULATED, drawn.count))

    def share(times: float) -> float:
        work = Workload(
            batches=batches,
            sample=sample * times,
            extract=extract,
            train=train,
            group=plan.batches_per_step,
            staleness=settings.staleness,
        )
        return simulate(work, samplers, trainers).switched / batches

    found = share(1.0), share(UNSURE), share(1 / UNSURE)
    return StandbyShare(expected=found[0], least=min(found), most=max(found))
