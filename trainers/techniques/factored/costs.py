"""What a training by `factored` takes: one queue of sampled batches, and for each trainer the rows of two batches and a step.

A device that samples with the graph on it (`topology = "device"`) has less room for cached rows than one that trains. How many batches it
trains on, once all are sampled, follows from the seconds of stages in the run: the simulation of roles (simulator/) says it for the
measured pieces of a batch, and for samplers that are faster and slower than those by `UNSURE` it gives the range. Only the tiers from which
rows come are unsure; the rows are those of the drawn batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from graphmill.assets.costs.needs import Term
from graphmill.assets.graph.read import open_graph
from graphmill.assets.storage.system.machine import usable_cores
from graphmill.kernels.rows.aligned import space_for
from graphmill.kernels.types import Topology
from graphmill.trainers.recipe.costs.course import Case
from graphmill.trainers.recipe.costs.device import batch_terms
from graphmill.trainers.recipe.costs.edge_rows import packs_edges
from graphmill.trainers.recipe.costs.forecast import Costs, Links, Seconds
from graphmill.trainers.recipe.costs.memory import (
    PARAMETER_COPIES,
    PRODUCT_BYTES,
    evaluation_terms,
    model_terms,
    parameter_term,
    process_terms,
    sampler_terms,
    source_terms,
    tier_rows,
)
from graphmill.trainers.techniques.batch_costs import CHUNK_PASSES, Pieces, evaluated, table_links
from graphmill.trainers.techniques.factored.settings import DEPTH
from graphmill.trainers.techniques.factored.simulator.simulate import simulate
from graphmill.trainers.techniques.factored.simulator.workload import Workload
from graphmill.trainers.techniques.stored_costs import reader_bytes, staged_bytes, stored_links


def role_terms(case: Case, staged: int, extra_rows: int = 0) -> list[Term]:
    """Returns the terms of roles: with bytes of packed rows that wait with a batch, and of rows between the layers of each trainer."""
    settings, count, train = case.settings, case.batch.count, case.semantic.train
    samplers, trainers = settings.roles(usable_cores())
    packed = settings.rows == "packed"
    waiting = case.held(case.shared_bytes(1, case.block_bytes + staged), case.block_bytes + staged, count)
    standby = samplers if settings.switching and settings.sharing == "space" else 0
    trainers, taken = min(count, trainers + standby), min(count, DEPTH * trainers + standby)
    rows = taken * (space_for(case.batch.inputs * case.row_bytes) + space_for(case.edge_bytes))
    if packed and packs_edges(case.sizes):  # a trainer stages them just before it gathers them
        rows += trainers * staged_bytes(case, edges=True)
    # Each computes on a thread of its own.
    libraries = (trainers - 1) * PRODUCT_BYTES
    sums = min(count, train.accumulate) * parameter_term(case).most // PARAMETER_COPIES
    return [
        *process_terms(case),
        Term("blocks of sampled batches", waiting * case.block_bytes, "queue", bound=True),
        Term("staged rows of sampled batches", waiting * staged, "queue", bound=True),
        Term("readers of cached rows", reader_bytes(case, samplers) * packed, "io_depth", bound=True),
        Term("rows of the trainers' batches", rows, "trainers", bound=True),
        Term("libraries of further trainers", libraries, "trainers", bound=True),
        Term("gradients that an update waits for", sums, "accumulate", bound=True),
        Term("visits of nodes", 4 * case.sizes.num_nodes if settings.presample else 0, "presample"),
        *evaluation_terms(case, 0),  # roles keep their rows
        *model_terms(case, trainers, extra_rows),
        *sampler_terms(case, samplers),
        *source_terms(case, packed=packed),
    ]


def role_device_terms(case: Case) -> list[Term]:
    """Returns the terms of a GPU that has all roles: the batches of the queue, and a model for each device that trains."""
    samplers, trainers = case.settings.roles(usable_cores())
    standby = samplers * (case.settings.switching and case.settings.sharing == "space")
    return batch_terms(case, min(case.batch.count, trainers + standby), DEPTH * trainers + samplers + standby)


def _memory(case: Case) -> list[Term]:
    return role_terms(case, staged_bytes(case) if case.settings.rows == "packed" else 0)


def _links(case: Case) -> Links:
    if case.settings.rows == "packed":
        return stored_links(case, topology=False)
    found = _standby_links(case)
    return table_links(case) if found is None else found.mixed(found.share.expected), False


class _StandbyLinks(NamedTuple):
    """Bytes of an epoch of two kinds of devices, whose caches hold different rows."""

    # Shares of the batches that go to devices which sample.
    share: StandbyShare
    # Link -> bytes if all batches went to devices that train, and to those that sample.
    whole: Mapping[str, float]
    narrow: Mapping[str, float]

    def mixed(self, share: float) -> dict[str, float]:
        """Returns link -> bytes if a share of the batches goes to devices that sample."""
        return {link: (1 - share) * self.whole[link] + share * self.narrow[link] for link in self.whole}


def _standby_links(case: Case) -> _StandbyLinks | None:
    """Returns the bytes of rows on both kinds of devices; None if their caches hold the same rows."""
    rows = None if case.settings.rows == "packed" else standby_rows(case)
    if rows is None:
        return None
    if "standby" not in case.shared:
        share = standby_share(case, *_stage_seconds(case))
        case.shared["standby"] = _StandbyLinks(share, table_links(case), table_links(case, rows))
    return case.shared["standby"]


def _stage_seconds(case: Case) -> tuple[float, float, float]:
    """Returns the seconds in which a batch is sampled, its rows are extracted, and it is trained on; 0 if nothing was measured."""
    if case.speeds is None:
        return 0.0, 0.0, 0.0
    each = Pieces(case, case.settings.roles(case.cores)[1])
    return each.prepare(1), each.gather(1), each.step(each.threads)


def _ranges(case: Case) -> Mapping[str, tuple[float, float]]:
    """Returns link -> least and most bytes: which batches a standby trainer takes depends on the threads of the run."""
    found = _standby_links(case)
    if found is None:
        return {}
    ends = [found.mixed(share) for share in (found.share.least, found.share.most)]
    return {link: (min(each[link] for each in ends), max(each[link] for each in ends)) for link in found.whole}


def _seconds(case: Case) -> Seconds:
    samplers, trainers = case.settings.roles(case.cores)
    each, packed = Pieces(case, trainers), case.settings.rows == "packed"
    if case.in_turn:
        return each.named(), each.in_turn(each.gather(case.cores) + each.step(each.threads))
    # A sampler that loads packed rows waits for each of its reads.
    links = _links(case)[0]
    ahead = each.prepare(1) + each.rows_read(links) + packed * CHUNK_PASSES * each.gather(1)
    trained, step = min(trainers, case.semantic.train.accumulate), each.handed(each.threads)
    # Each device has a link of its own.
    extracted = max(each.gather(1), each.crossing(links))
    beside = (ahead / samplers, extracted / trained, step / trained)
    if case.settings.sharing == "time":  # a device does everything for a batch before it takes the next one
        beside = ((ahead + extracted + step) / trained,)
    return each.named(), each.side_by_side(*beside, work=ahead + each.gather(1) + each.threads * step)


COSTS = Costs(
    memory=_memory, links=_links, seconds=_seconds, evaluated=evaluated, ranges=_ranges, device=role_device_terms
)


MOST_SIMULATED = 512
"""Batches of an epoch that are simulated at most; the share of a longer one is that of so many."""
UNSURE = 3.0
"""Factor by which sampling may be faster or slower beside training than the pieces of a batch say."""
UNMEASURED = (0.2, 0.6, 1.0)
"""Relative seconds in which a batch is sampled, extracted and trained on, if nothing was measured."""


@dataclass(frozen=True, kw_only=True)
class StandbyShare:
    """Expected, least and most share of an epoch's batches that devices with the smaller cache train on."""

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
    if "graph" in case.artifacts:
        return topology_bytes(open_graph(case.artifacts["graph"]).topology)
    return case.sizes.topology_bytes + 2 * 4 * case.sizes.num_nodes


def topology_bytes(topology: Topology) -> int:
    """Returns the bytes of all arrays of a topology."""
    arrays = [getattr(topology, each.name) for each in fields(topology)]
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))


def standby_share(case: Case, sample: float, extract: float, train: float) -> StandbyShare:
    """Returns the shares of the batches that samplers train on, by the seconds of a batch in each stage, all 0 if nothing was measured."""
    settings, plan, drawn = case.settings, case.plan, case.drawn
    assert plan is not None and drawn is not None
    if settings.sharing == "time":
        return StandbyShare(expected=1.0, least=1.0, most=1.0)
    if not settings.switching or case.in_turn:
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
