"""Opens what is known of a training before it starts: from its artifacts, or from a graph that stands in for one that is not built.

Measured seconds of the pieces of batches are kept in the home, so that a later training of the recipe finds them.

    $GRAPHMILL_HOME/measured/pieces/KEY.json     the fields of `Speeds`

KEY is a digest of the way of timing and of the facts that decide the time of a batch apart from its size: the architecture, the sampling,
the settings and chunks of a technique that measures pieces of its own, the columns and bytes of a row, the number of classes, whether the
graph is built, the number of nodes to a power of two, and the processor with its cores. Sizes are scaled when the seconds are used, so a
graph that has grown a little needs no new measurement.
"""

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.assets.chunks.read import cut_of
from graphmill.assets.costs.needs import Sizes, sizes_of
from graphmill.assets.features.read import open_features
from graphmill.assets.graph.read import Graph, open_graph
from graphmill.assets.hotness.read import open_hotness
from graphmill.assets.partitions.read import open_partitions
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling.drawing import Drawing, open_drawing
from graphmill.assets.sampling.training_edges import training_edges
from graphmill.assets.storage.files.documents import keep_numbers, read_if_sound
from graphmill.assets.storage.files.schema import Fields, mapped, matches, number
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.assets.storage.names.version import canonical, canonical_json
from graphmill.assets.storage.system.filesystem import make_folder
from graphmill.assets.storage.system.machine import processor_name, usable_cores
from graphmill.kernels.hotness.presample import count_batches
from graphmill.kernels.hotness.ranking import rank
from graphmill.kernels.hotness.visits import VisitCounter
from graphmill.kernels.links.edge_seeds import EdgeSeeds
from graphmill.kernels.links.link_sampler import LinkSampler
from graphmill.kernels.sampling.epoch_plan import EpochPlan, Plan
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.kernels.sampling.part_plan import PartPlan
from graphmill.kernels.sampling.sample import Transposes
from graphmill.kernels.types import Array, Stream
from graphmill.trainers.recipe.architecture import Architecture
from graphmill.trainers.recipe.config import ModelConfig
from graphmill.trainers.recipe.costs.batch import MOST_BATCHES, MOST_SECONDS, draw_batches
from graphmill.trainers.recipe.costs.course import Case, CountedVisits, Speeds
from graphmill.trainers.recipe.costs.memory import tables_fit, training_case
from graphmill.trainers.recipe.costs.step import transposed_layers
from graphmill.trainers.recipe.execution import TrainExecution
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
        drawing: the way in which neighbours are drawn; None if none are.
        row_of: ids[N], row of each node, -1 for none; None if nodes are rows.
        found: repr of a table [sampling] with the seed -> the links that are seeds, with the rule of their negatives.
    """

    graph: Graph
    drawing: Drawing | None
    row_of: Array | None = None
    found: dict[str, EdgeSeeds] = field(default_factory=dict)

    def edges(self, semantic: ModelConfig) -> EdgeSeeds | None:
        """Returns the links that are the seeds of a recipe's batches; None if nodes are."""
        links, seed = self.graph.links, semantic.sampling_seed
        if links is None:
            return None
        sampling = semantic.sampling or SamplingConfig(fanouts=(-1,))  # with the defaults of its keys about negatives
        key = f"{sampling!r} {seed}"
        if key not in self.found:
            self.found[key] = training_edges(links, self.graph.topology, sampling, seed, self.graph.relations)
        return self.found[key]


def graph_at_hand(artifacts: Mapping[str, Artifact], drawing: Drawing | None) -> GraphAtHand:
    """Returns the graph among some artifacts, with the rows of their features."""
    row_of = open_features(artifacts["features"]).row_of if "features" in artifacts else None
    return GraphAtHand(graph=open_graph(artifacts["graph"]), drawing=drawing, row_of=row_of)


def open_case(
    semantic: ModelConfig, execution: TrainExecution, artifacts: Mapping[str, Artifact], ranks: int
) -> Case | None:
    """Returns the case of a training that some ranks share and whose artifacts exist; None without a graph."""
    sizes = sizes_of(artifacts)
    if sizes is None or "graph" not in artifacts:
        return None
    at_hand = graph_at_hand(artifacts, open_drawing(semantic.sampling, artifacts))
    graph = at_hand.graph
    sizes = replace(sizes, num_classes=graph.num_classes)
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
        artifacts: role -> artifact that the training reads, as far as they exist.
        ranks: number of processes that share it; 0 for the table's.
        roles: roles of all artifacts that the training reads, so that visits of some batches are counted if hotness does not exist yet;
            None if no others than `artifacts` are read.
        most_batches, most_seconds: bounds of the batches that are drawn, and of the time that it takes.
    """
    technique, sampling = find_technique(semantic.train.trainer), semantic.sampling
    case = training_case(semantic, execution, sizes, ranks)
    fits, edges_fit = tables_fit(case)
    exact = semantic.train.eval != "sampled"
    case = replace(case, exact_evaluation=exact, fits=fits, edges_fit=edges_fit, row_of=at_hand.row_of)
    batch = case.batch
    if technique.whole_graph or sampling is None or at_hand.drawing is None or is_reference(sampling.method):
        return case
    part_of = _parts(artifacts, sizes, at_hand.graph) if technique.by_parts else None
    plan = _plan(at_hand, semantic, part_of)
    sampler = batch_sampler(semantic, at_hand)
    # Within the queue, whose bytes the training takes later on anyway.
    named = semantic.train.edge_features and at_hand.graph.topology.edge_ids is not None
    drawn = draw_batches(
        plan, sampler, transposes(semantic), most_batches, case.queue_bytes, most_seconds, edge_ids=named
    )
    if not batch.exact and drawn.blocks:
        batch = drawn.largest._replace(count=batch.count, exact=True, pairs=batch.pairs)
    order, counted = _hotness(artifacts, at_hand, plan, sampler, roles)
    cached = set(artifacts if roles is None else roles) >= CACHING
    return replace(
        case, batch=batch, plan=plan, drawn=drawn, order=order, counted=counted, part_of=part_of, cached=cached
    )


def _plan(at_hand: GraphAtHand, semantic: ModelConfig, part_of: Array | None) -> Plan:
    sampling, train_ids, edges = semantic.sampling, np.array(at_hand.graph.seeds[0]), at_hand.edges(semantic)
    assert sampling is not None
    how: dict[str, Any] = {
        "seed": semantic.sampling_seed, "reuse": sampling.reuse, "accumulate": semantic.train.accumulate,
    }  # fmt: skip
    if part_of is None:
        return EpochPlan(train_ids, sampling.batch_size, **how)
    of_seeds = np.asarray(part_of)[train_ids if edges is None else edges.target]
    return PartPlan(train_ids, of_seeds, int(part_of.max(initial=0)) + 1, sampling.batch_size, **how)


def batch_sampler(semantic: ModelConfig, at_hand: GraphAtHand, threads: int = 1) -> AnySampler:
    """Returns the sampler of a training's first epoch, on a number of threads."""
    assert semantic.sampling is not None and at_hand.drawing is not None
    drawing, edges = at_hand.drawing.with_fanouts(semantic.sampling.fanouts_at(0)), at_hand.edges(semantic)
    sampler = drawing.sampler(at_hand.graph.topology, seed=semantic.sampling_seed, threads=threads)
    if edges is None or at_hand.graph.links is None:
        return sampler
    return LinkSampler(sampler, edges, at_hand.graph.links.reverse_of, semantic.train.exclude_targets)


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


FOLDER = Path("measured") / "pieces"
METHOD = 3
"""Number of the way in which pieces are timed; another one measures all homes anew."""
BY_NUMBER = ("step", "handed", "draw", "gather", "layers", "whole", "visit")
_by_number = mapped(number(least=0), key=matches(re.compile("[0-9]{1,9}"), "a number"))
pieces_schema = Fields(
    {each.name: _by_number if each.name in BY_NUMBER else number(least=0) for each in fields(Speeds)}
)
"""The file of a recipe's speeds."""


def speeds_path(home: Path, semantic: ModelConfig, sizes: Sizes, *, built: bool) -> Path:
    """Returns the file of a recipe's speeds in a home.

    Args:
        sizes: sizes of the graph, with its number of classes.
        built: whether batches of the graph itself are measured; else those of one that stands in for it.
    """
    train = semantic.train
    architecture = {field.name: getattr(train, field.name) for field in fields(Architecture)}
    key = {
        "method": METHOD,
        "architecture": repr(sorted(architecture.items())),
        "dtype": train.dtype,
        "optimizer": train.optimizer,
        "sampling": _drawn(semantic),
        "own": _own_settings(semantic, sizes),
        "links": _of_links(semantic),
        "row": [sizes.width, sizes.row_bytes],
        "graph": {"built": built, "nodes": sizes.num_nodes.bit_length(), "classes": sizes.num_classes},
        "machine": [processor_name(), usable_cores()],
    }
    return home / FOLDER / f"{hashlib.sha256(canonical_json(key)).hexdigest()[:32]}.json"


def _drawn(semantic: ModelConfig) -> dict[str, Any]:
    """Returns the keys of [sampling] that decide how a batch is drawn."""
    found: dict[str, Any] = {} if semantic.sampling is None else dict(canonical(semantic.sampling))
    return {name: value for name, value in found.items() if name not in ("reuse", "schedule", "sampling_seed")}


def _of_links(semantic: ModelConfig) -> list[Any]:
    """Returns the keys that decide the loss of a step on links."""
    train = semantic.train
    return (
        [train.link_head, train.link_loss, train.exclude_targets, train.row_penalty > 0] if train.predicts_links else []
    )


def _own_settings(semantic: ModelConfig, sizes: Sizes) -> dict[str, Any]:
    """Returns what decides the pieces of a technique that measures its own: its settings, but for those of processes, and the chunks."""
    if not find_technique(semantic.train.trainer).pieces:
        return {}
    settings = semantic.train.own_settings
    names = [each.name for each in fields(settings) if each.name not in ("ranks", "timeout")]
    return {name: getattr(settings, name) for name in names} | {"cut": cut_of(sizes)}


def keep_speeds(path: Path, speeds: Speeds) -> None:
    """Writes measured seconds into the home; raises InputError if the disk is full."""
    make_folder(path.parent)
    values = asdict(speeds)
    by_number = {name: {str(number): each for number, each in values[name].items()} for name in BY_NUMBER}
    keep_numbers(path, values | by_number)


def kept_speeds(path: Path) -> Speeds | None:
    """Returns measured seconds of the home; None if there are none, or if the file is damaged, since no result follows from them."""
    found, names = read_if_sound(path, pieces_schema), [field.name for field in fields(Speeds)]
    if not found:
        return None
    read: dict[str, Any] = {name: _numbered(found[name]) if name in BY_NUMBER else float(found[name]) for name in names}
    return Speeds(**read)


def _numbered(values: Mapping[str, float]) -> dict[int, float]:
    return {int(number): float(seconds) for number, seconds in values.items()}
