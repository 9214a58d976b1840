"""Opens what is known of a training before it starts: from its artifacts, or from a graph that stands in for one that is not built."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from typing import Any

import numpy as np

from graphmill.assets.costs.needs import Sizes, sizes_of
from graphmill.assets.features.read import open_features
from graphmill.assets.graph.read import Graph, open_graph
from graphmill.assets.hotness.read import open_hotness
from graphmill.assets.partitions.read import open_partitions
from graphmill.assets.sampling.drawing import Drawing, open_drawing
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.assets.storage.system.control_group import fits_memory
from graphmill.assets.storage.system.machine import usable_cores
from graphmill.kernels.hotness.presample import count_batches
from graphmill.kernels.hotness.ranking import rank
from graphmill.kernels.hotness.visits import VisitCounter
from graphmill.kernels.sampling.epoch_plan import EpochPlan, Plan
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.kernels.sampling.part_plan import PartPlan
from graphmill.kernels.sampling.sample import Transposes
from graphmill.kernels.types import Array, Stream
from graphmill.trainers.recipe.config import ModelConfig, TrainExecution
from graphmill.trainers.recipe.costs.batch import MOST_BATCHES, MOST_SECONDS, draw_batches
from graphmill.trainers.recipe.costs.course import Case, CountedVisits
from graphmill.trainers.recipe.costs.memory import largest_batch
from graphmill.trainers.recipe.costs.step import transposed_layers
from graphmill.trainers.recipe.techniques import find_technique

MOST_COUNTED = 256
"""Batches that stand in for an epoch of hotness at most."""
EXACT_ROLES = frozenset({"samples", "cache_plan", "packed_chunks"})
"""Artifacts from which the bytes of stored batches follow exactly."""
CACHING = frozenset({"hotness", "budgets"})
"""Roles of a training that caches rows of the table."""


@dataclass(frozen=True, kw_only=True)
class GraphAtHand:
    """A graph from which batches can be drawn.

    Attributes:
        graph: the graph.
        drawing: the way in which neighbours are drawn; None if none are.
        row_of: ids[N], row of each node, -1 for none; None if nodes are rows.
    """

    graph: Graph
    drawing: Drawing | None
    row_of: Array | None = None


def graph_at_hand(artifacts: Mapping[str, Artifact], drawing: Drawing | None) -> GraphAtHand:
    """Returns the graph among some artifacts, with the rows of their features."""
    row_of = open_features(artifacts["features"]).row_of if "features" in artifacts else None
    return GraphAtHand(graph=open_graph(artifacts["graph"]), drawing=drawing, row_of=row_of)


def open_case(
    semantic: ModelConfig,
    execution: TrainExecution,
    artifacts: Mapping[str, Artifact],
    ranks: int,
) -> Case | None:
    """Returns the case of a training that some ranks share and whose artifacts exist; None without a graph."""
    sizes = sizes_of(artifacts)
    if sizes is None or "graph" not in artifacts:
        return None
    at_hand = graph_at_hand(artifacts, open_drawing(semantic.sampling, artifacts))
    graph = at_hand.graph
    train, valid, test = map(len, graph.splits)
    sizes = replace(sizes, num_classes=graph.num_classes, num_train=train, num_valid=valid, num_test=test)
    # Of stored batches with packed rows everything follows from the artifacts, and one batch is drawn for the formulas' sake.
    counted = find_technique(semantic.train.trainer).stored and artifacts.keys() >= EXACT_ROLES
    return case_on(
        semantic,
        execution,
        sizes,
        at_hand,
        artifacts,
        ranks=ranks,
        most_batches=1 if counted else MOST_BATCHES,
        most_seconds=MOST_SECONDS,
    )


def case_on(
    semantic: ModelConfig,
    execution: TrainExecution,
    sizes: Sizes,
    at_hand: GraphAtHand,
    artifacts: Mapping[str, Artifact],
    *,
    ranks: int = 0,
    roles: Collection[str] | None = None,
    most_batches: int = MOST_BATCHES,
    most_seconds: float = inf,
) -> Case:
    """Returns the case of a training on a graph.

    Args:
        sizes: sizes of the graph and of the artifacts that exist.
        at_hand: the graph.
        artifacts: role -> artifact that the training reads, as far as they exist.
        ranks: number of processes that share it; 0 for the table's.
        roles: roles of all artifacts that the training reads, so that visits of some batches are counted if hotness does not exist yet;
            None if no others than `artifacts` are read.
        most_batches, most_seconds: bounds of the batches that are drawn, and of the time that it takes.
    """
    technique, sampling = find_technique(semantic.train.trainer), semantic.sampling
    batch = largest_batch(semantic, sizes)
    case = Case(
        semantic=semantic,
        execution=execution,
        sizes=sizes,
        batch=batch,
        ranks=ranks or semantic.train.own_settings.ranks,
        exact_evaluation=semantic.train.eval != "sampled",
        fits=fits_memory(sizes.feature_bytes),
        cores=usable_cores(),
        row_of=at_hand.row_of,
    )
    if technique.whole_graph or sampling is None or at_hand.drawing is None or is_reference(sampling.method):
        return case
    part_of = _parts(artifacts, sizes, at_hand.graph) if technique.by_parts else None
    plan = _plan(at_hand.graph, semantic, part_of)
    sampler = batch_sampler(semantic, at_hand)
    # Within the queue, whose bytes the training takes later on anyway.
    drawn = draw_batches(plan, sampler, transposes(semantic), most_batches, case.queue_bytes, most_seconds)
    if not batch.exact and drawn.blocks:
        batch = drawn.largest._replace(count=batch.count, exact=True)
    order, counted = _hotness(artifacts, at_hand, plan, sampler, roles)
    cached = set(artifacts if roles is None else roles) >= CACHING
    return replace(
        case, batch=batch, plan=plan, drawn=drawn, order=order, counted=counted, part_of=part_of, cached=cached
    )


def _plan(graph: Graph, semantic: ModelConfig, part_of: Array | None) -> Plan:
    sampling, train_ids = semantic.sampling, np.array(graph.train_ids)
    assert sampling is not None
    how: dict[str, Any] = {
        "seed": semantic.sampling_seed, "reuse": sampling.reuse, "accumulate": semantic.train.accumulate,
    }  # fmt: skip
    if part_of is None:
        return EpochPlan(train_ids, sampling.batch_size, **how)
    return PartPlan(
        train_ids, np.asarray(part_of)[train_ids], int(part_of.max(initial=0)) + 1, sampling.batch_size, **how
    )


def batch_sampler(semantic: ModelConfig, at_hand: GraphAtHand, threads: int = 1) -> AnySampler:
    """Returns the sampler of a training's first epoch, on a number of threads."""
    assert semantic.sampling is not None and at_hand.drawing is not None
    drawing = at_hand.drawing.with_fanouts(semantic.sampling.fanouts_at(0))
    return drawing.sampler(at_hand.graph.topology, seed=semantic.sampling_seed, threads=threads)


def transposes(semantic: ModelConfig) -> Transposes:
    """Returns the blocks of its batches that get a transpose."""
    layers = transposed_layers(semantic.train)
    return "all" if layers == semantic.train.layers else "hidden"


def _parts(artifacts: Mapping[str, Artifact], sizes: Sizes, graph: Graph) -> Array:
    """Returns i32[N], the part of each node; if parts are not made yet, equal ranges of nodes."""
    if "partitions" in artifacts:
        return np.asarray(open_partitions(artifacts["partitions"]).part_of)
    config = sizes.configs.get("partitions")
    num_nodes, parts = graph.topology.num_nodes, config.parts if config else 1
    return (np.arange(num_nodes) * parts // max(1, num_nodes)).astype(np.int32)


def _hotness(
    artifacts: Mapping[str, Artifact],
    at_hand: GraphAtHand,
    plan: Plan,
    sampler: AnySampler,
    roles: Collection[str] | None,
) -> tuple[Array | None, CountedVisits | None]:
    """Returns (ids[N] by falling hotness if rows are cached by it, counts by layer); arguments as in `case_on`."""
    known = set(artifacts if roles is None else roles)
    count = roles is not None and bool({"hotness", "cache_plan"} & known)
    order, counted = _counts(artifacts, at_hand, plan, sampler, count=count)
    # A history reads hotness whether or not rows are cached by it.
    return order if known >= CACHING or "cache_plan" in known else None, counted


def _counts(
    artifacts: Mapping[str, Artifact], at_hand: GraphAtHand, plan: Plan, sampler: AnySampler, *, count: bool
) -> tuple[Array | None, CountedVisits | None]:
    """Returns (ids[N] by falling hotness, counts by layer): of the artifact, or of some batches on the stream of presampling."""
    if "hotness" in artifacts:
        found = open_hotness(artifacts["hotness"])
        if found.layer_visits is None or found.layer_inputs is None:
            return found.order, None
        rounds = artifacts["hotness"].config["hotness"]["rounds"]
        visits = np.asarray(found.layer_visits[0] if found.visits is None else found.visits)
        if at_hand.row_of is not None:
            visits = np.where(np.asarray(at_hand.row_of) < 0, 0, visits)
        batches = rounds * -(-len(plan.train_ids) // plan.batch_size)
        return found.order, CountedVisits(
            num_batches=batches,
            order=found.order,
            visits=visits,
            layer_visits=found.layer_visits,
            layer_inputs=found.layer_inputs,
        )
    return _counted(at_hand, plan, sampler) if count else (None, None)


def _counted(at_hand: GraphAtHand, plan: Plan, sampler: AnySampler) -> tuple[Array, CountedVisits]:
    assert at_hand.drawing is not None
    layers, num_nodes = len(at_hand.drawing.neighbours.fanouts), at_hand.graph.topology.num_nodes
    trial = EpochPlan(np.asarray(plan.train_ids), plan.batch_size, seed=plan.seed, stream=Stream.PRESAMPLE)
    counter = VisitCounter(num_nodes, layers, "inputs")
    most = min(MOST_COUNTED, trial.num_batches)
    tally = count_batches([sampler], islice(trial.batches(0), most), counter)
    visits = np.asarray(counter.visits)
    order = np.asarray(rank(visits))
    counted = CountedVisits(
        num_batches=max(1, tally.num_batches),
        order=order,
        visits=visits.copy(),
        layer_visits=counter.layer_visits,
        layer_inputs=counter.layer_inputs,
    )
    return order, counted
