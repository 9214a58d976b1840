"""The hotness stage: which nodes mini-batches ask for most, counted or estimated once and used by every cache (FGNN, section 6).

    order         ids[N]      all nodes, hottest first, ties by smaller id: any prefix is the content of a smaller cache
    visits        u32[N]      batches that ask for the node, in the epochs that were counted (policies that count)
    score         f64[N]      what the nodes are ranked by (policies that compute one)
    layer_visits  u32[L, N]   batches in which the node is a destination of blocks[l] (`layers` = "visits" or "inputs")
    layer_inputs  u64[L, N]   distinct inputs under it there, summed over batches (`layers` = "inputs")
    hit_ratio.png             hit ratio against cache ratio, by policy (with `evaluate_epochs`)

Policies: `presample` counts K whole epochs on a random stream of their own, so no batch of theirs is a training batch (PreSC#K). `bayes`
blends these counts, layer by layer, with what a model without noise expects (kernels/bayes.py): the better ranking at the same rounds.
The model knows uniform sampling; for any other method `bayes` ranks by the counts alone.
`degree` takes the out-degree (PaGraph), `pagerank` weighted reverse PageRank, `random` a permutation. `optimal` is the oracle: the counts
of the evaluated training epochs themselves, for comparison only.

`evaluate_epochs` = E samples the first E epochs of training as well, and measures on them what a cache of each ratio would hold, by policy.
`layer_inputs` walks all edges under every destination, which takes about as long as sampling them; everything else costs a few percent.

Peak memory with N nodes, L layers, T threads: 8 N T for the samplers, one batch a thread, and 4 N for visits; 8 N L for layer visits, 8 N L
more for inputs; ranking 28 N, by `bayes` 4 N L and 150 N; with evaluation or several rounds 16 N more.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from assets.execution import Threads
from assets.graph import open_graph
from assets.references import code_digests
from assets.sampling import SamplingConfig
from assets.stage import Check, Progress, Summary
from kernels.errors import InputError
from kernels.types import Array, id_dtype

if TYPE_CHECKING:
    from assets.artifact import Artifact
    from assets.writer import Writer

Policy = Literal["bayes", "presample", "degree", "pagerank", "random", "optimal"]
COUNTING: tuple[Policy, ...] = ("bayes", "presample")
"""Policies that count epochs of their own."""


@dataclass(frozen=True, kw_only=True)
class HotnessTable:
    """The `[hotness]` table; all of it is hashed.

    Raises:
        InputError: names every value outside its range.
    """

    policy: Policy = "bayes"
    # What nodes are ranked by; see the module's docstring.
    rounds: int = 1
    # K: epochs that presampling counts.
    layers: Literal["none", "visits", "inputs"] = "none"
    # Also counts nodes as destinations, by layer; "inputs" adds the distinct inputs under them.
    evaluate_epochs: int = 0
    # Training epochs to measure the hit ratio of all policies on; 0 = none.

    def __post_init__(self) -> None:
        """Checks the ranges."""
        problems = []
        if self.rounds < 1:
            problems.append(f"rounds = {self.rounds} is less than 1")
        if self.evaluate_epochs < 0:
            problems.append(f"evaluate_epochs = {self.evaluate_epochs} is negative")
        if self.policy == "optimal" and self.evaluate_epochs < 1:
            problems.append(
                f'policy = "optimal" ranks by the evaluated epochs, but evaluate_epochs = {self.evaluate_epochs}'
            )
        if problems:
            raise InputError("; ".join(problems), "for example: rounds = 2, evaluate_epochs = 0 (10 with optimal)")

    @property
    def counted_layers(self) -> Literal["none", "visits", "inputs"]:
        """What presampling counts of layers: what is stored, or what the blend of `bayes` needs."""
        needed = self.policy == "bayes" or self.evaluate_epochs > 0
        return "visits" if needed and self.layers == "none" else self.layers

    @property
    def presamples(self) -> bool:
        """Whether rounds are counted: for the ranking, for layers, or to be compared."""
        return self.policy in COUNTING or self.layers != "none" or self.evaluate_epochs > 0


@dataclass(frozen=True, kw_only=True)
class HotnessConfig:
    """The stage's hashed configuration; `hotness_config` makes it."""

    hotness: HotnessTable
    # The table.
    sampling: SamplingConfig | None
    # How batches are sampled; None where nothing is.
    seed: int
    # Keys every random decision.


def hotness_config(table: HotnessTable, sampling: SamplingConfig | None, seed: int) -> HotnessConfig:
    """Returns the stage's configuration without what does not matter to it, so that such an edit builds nothing anew.

    Raises:
        InputError: the policy samples, and there is no `[sampling]`.
    """
    if not table.presamples:
        return HotnessConfig(
            hotness=replace(table, rounds=1), sampling=None, seed=seed if table.policy == "random" else 0
        )
    if sampling is None:
        raise InputError(
            f'policy = "{table.policy}" samples batches', "add a table [sampling] with fanouts and batch_size"
        )
    # Which epochs are used again does not change what an epoch asks for.
    return HotnessConfig(hotness=table, sampling=replace(sampling, reuse=0), seed=seed)


class HotnessExecution(Threads):
    """How nodes are ranked: threads that sample, each with a sampler of its own."""


class HotnessStage:
    """Builds the hotness artifact; `HOTNESS` is the one instance."""

    name = "hotness"
    code_version = 1
    Semantic = HotnessConfig
    Execution = HotnessExecution

    def inputs(self, semantic: HotnessConfig) -> Mapping[str, str]:
        """Hotness is that of a graph."""
        return {"graph": "graph"}

    def raw(self, semantic: HotnessConfig) -> Mapping[str, str]:
        """Returns the digest of the user's own sampling function, where there is one.

        Raises:
            InputError: there is no such module.
        """
        return code_digests({"sampling": semantic.sampling.method}) if semantic.sampling else {}

    def build(
        self,
        inputs: Mapping[str, Artifact],
        semantic: HotnessConfig,
        execution: HotnessExecution,
        writer: Writer,
        progress: Progress,
    ) -> Summary:
        """Counts, ranks, and evaluates where asked.

        Raises:
            InputError: the graph has no training nodes, or a batch cannot be sampled.
        """
        from assets.hotness_epochs import Epochs
        from assets.hotness_rankings import Rankings, evaluate

        graph, table = open_graph(inputs["graph"]), semantic.hotness
        epochs = Epochs(graph, semantic, execution.threads, progress)
        started = time.perf_counter()
        presampled = epochs.presample() if table.presamples else None
        after_rounds = time.perf_counter()
        evaluated = epochs.evaluate() if table.evaluate_epochs else None
        after_epochs = time.perf_counter()
        rankings = Rankings(graph, semantic, presampled, evaluated, execution.threads)
        order, numbers = _write(rankings, writer), {"num_nodes": graph.topology.num_nodes}
        figures = {}
        for name, counted in (("presample", presampled), ("evaluate", evaluated)):
            if counted is not None:
                numbers |= counted.numbers(name)
        if evaluated is not None:
            found, figures = evaluate(rankings, evaluated.visits, writer)
            numbers |= found
        writer.note(
            presample_seconds=round(after_rounds - started, 3),
            evaluate_seconds=round(after_epochs - after_rounds, 3),
            rank_seconds=round(time.perf_counter() - after_epochs, 3),
        )
        checks = [] if presampled is None else presampled.checks(graph)
        return Summary(numbers=numbers, checks=[*checks, _is_permutation(order)], figures=figures)


HOTNESS = HotnessStage()


def needed_bytes(config: HotnessConfig, num_nodes: int, threads: int) -> tuple[int, int]:
    """Returns (peak memory beside the mapped graph, bytes in the store) of building this ranking, by the formulas above.

    Args:
        config: of the stage.
        num_nodes: N.
        threads: that sample.
    """
    table, id_bytes = config.hotness, id_dtype(num_nodes).itemsize
    layers = len(config.sampling.fanouts) if config.sampling else 0
    memory, stored = 28, id_bytes
    if table.presamples:
        memory += (
            8 * threads + 4 + 8 * layers * (table.counted_layers != "none") + 8 * layers * (table.layers == "inputs")
        )
        memory += 16 * (table.evaluate_epochs > 0 or table.rounds > 1)
        stored += 4 + 4 * layers * (table.layers != "none") + 8 * layers * (table.layers == "inputs")
    memory += (4 * layers + 150) * (table.policy == "bayes" or table.evaluate_epochs > 0)
    stored += 8 * (table.policy in ("bayes", "degree", "pagerank"))
    return memory * num_nodes, stored * num_nodes


def _write(rankings: Any, writer: Writer) -> Array:
    """Writes the arrays of the configured policy; returns the order."""
    policy, counter = rankings.config.hotness.policy, rankings.counter
    score = rankings.score(policy)
    order = rankings.order(policy, score)
    writer.save("order", order)
    if score is not None and score.dtype == np.float64:
        writer.save("score", score)
    visits = rankings.visits(policy)
    if visits is not None:
        writer.save("visits", visits)
    stored = rankings.config.hotness.layers
    if counter is not None and stored != "none":
        writer.save("layer_visits", counter.layer_visits)
        if stored == "inputs":
            writer.save("layer_inputs", counter.layer_inputs)
    return order


def _is_permutation(order: Array) -> Check:
    seen = np.zeros(len(order), bool)
    seen[order] = True
    return Check(name="the ranking holds every node once", passed=bool(seen.all()), detail=f"{len(order):,} nodes")


@dataclass(frozen=True, kw_only=True)
class Hotness:
    """A stored ranking, memory-mapped; see the module's docstring for the arrays."""

    order: Array
    visits: Array | None
    score: Array | None
    layer_visits: Array | None
    layer_inputs: Array | None


def open_hotness(artifact: Artifact) -> Hotness:
    """Opens a hotness artifact without copying an array.

    Raises:
        InputError: the artifact is of another stage, or lacks what the stage writes.
    """
    from assets.needs import require

    require(artifact, {"stage": "hotness", "arrays": {"order": {"dtype": ("int32", "int64"), "ndim": 1}}})
    names = ("visits", "score", "layer_visits", "layer_inputs")
    found = {name: artifact.array(name) if f"{name}.npy" in artifact.files else None for name in names}
    return Hotness(order=artifact.array("order"), **found)
