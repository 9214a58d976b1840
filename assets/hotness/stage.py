"""The hotness stage: counts, ranks and tests the ranking."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from typing import Any

import numpy as np

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.page import Page
from graphmill.assets.building.stage import Building, Check, Stage, Summary
from graphmill.assets.costs.needs import Speed
from graphmill.assets.graph.read import SAMPLING, Graph, open_graph
from graphmill.assets.hotness.config import HotnessConfig, HotnessTable, hotness_config
from graphmill.assets.hotness.costs import RANKING_FACTS, hotness_need, pushes, sums_within
from graphmill.assets.sampling.passes import FACTS, is_sequential
from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.files.arrays import scratch_arrays
from graphmill.assets.storage.files.digests import code_digests
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.writer import Writer
from graphmill.assets.storage.system.control_group import free_bytes
from graphmill.kernels.ranges import Allocate, node_ranges
from graphmill.kernels.types import Array, id_dtype

COUNTING_CHECKS = ("visits add up to the inputs", "every training node is visited in every round")
"""Names of the checks of policies that count batches."""
LAYER_CHECKS = ("every training node is a seed once a round",)
"""Names of the checks if visits are counted by layer."""
PERMUTATION = "the ranking holds every node once"


def _headline(artifacts: Sequence[Artifact]) -> str:
    """Returns the policy of the ranking, and the hit ratio of a cache of a tenth of the nodes if it was measured or computed."""
    numbers, policy = artifacts[0].summary["numbers"], artifacts[0].config["hotness"]["policy"]
    found = numbers.get(f"hit_ratio_{policy}_10_percent")
    expected = numbers.get("expected_hit_ratio_10_percent")
    ranked = f"{numbers['num_nodes']:,} nodes ranked by {policy}"
    if found is not None:
        best = numbers.get("hit_ratio_optimal_10_percent")
        bound = f"; no ranking finds more than {100 * best:.1f} %" if best is not None else ""
        return f"**{100 * found:.1f} % of the rows are found** in a cache of 10 % of the nodes{bound}; {ranked}"
    if expected is not None:
        return f"**{100 * expected:.1f} % of the rows are expected** in a cache of 10 % of the nodes; {ranked}"
    return f"**{ranked}**"


HOTNESS_PAGE = Page(
    about="A ranking of all nodes by how often mini-batches will ask for them, counted in trial batches or estimated from the graph. "
    "Caches on the device and on the host hold the first nodes of this ranking, so a better one moves fewer bytes. "
    "Look at the hit ratios by policy: how far the chosen policy is from `optimal`, and from `random`.",
    docs="docs/stages/hotness.md",
    headline=_headline,
    first=tuple(
        f"hit_ratio_{policy}_10_percent" for policy in ("optimal", "presample", "bayes", "degree", "pagerank", "random")
    ),
    recorded=(*FACTS, *RANKING_FACTS),
    columns={
        "order": "the node at this place of the ranking, hottest first",
        "visits": "counted batches that asked for node i, in row i",
        "score": "what node i is ranked by, in row i",
    },
)


class HotnessStage(Stage):
    """Builds the hotness artifact; `HOTNESS` is the one instance."""

    page = HOTNESS_PAGE
    name = table = "hotness"
    code_version = 1
    Table = HotnessTable
    by_sample_set = True
    Semantic = HotnessConfig
    Execution = Threads
    need = staticmethod(hotness_need)
    speed = Speed(per_second=28e6)
    reads_aspects: Mapping[str, str] = {"graph": SAMPLING}
    checks = ("the ranking holds every node once",)
    says: Mapping[str, str] = {
        "visits add up to the inputs": "Visits counted by node and inputs counted by trial batch have the same sum.",
        "every training node is visited in every round": "A round has each training node as a seed, and a seed is among the "
        "inputs of its batch.",
        "every training node is a seed once a round": "The counts of the seeds' layer are one per training node and "
        "round; of links, each end is a seed in every round.",
        "the ranking holds every node once": "The ranking is a permutation of the nodes, so any prefix of it is the "
        "content of a cache.",
    }

    def wanted(self, pipeline: Any) -> HotnessConfig | None:
        """Returns the config of [hotness], or of its defaults if only [memory] asks for a cache, or a training for the counts."""
        table = pipeline.table("hotness")
        cached = pipeline.table("memory") is not None and pipeline.is_read(self.name)
        if table is None and (cached or pipeline.decides(self.name)):
            table = HotnessTable(**pipeline.asked(self.table))
        return None if table is None else hotness_config(table, pipeline.sampling, pipeline.seed)

    def problems(self, tables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yields the problem of a policy that samples without a table `[sampling]`."""
        table = tables[self.table]
        if table.presamples and "sampling" not in tables:
            needs = "it needs a table [sampling] with fanouts and batch_size"
            yield "", f'policy = "{table.policy}" samples batches: {needs}'

    def expected_checks(self, semantic: HotnessConfig) -> tuple[str, ...]:
        """Returns the names of the checks; visits are tested if they are counted, and seeds if visits are counted by layer."""
        table = semantic.hotness
        counted = COUNTING_CHECKS if table.presamples else ()
        return (*counted, *(LAYER_CHECKS if counted and table.counted_layers != "none" else ()), *self.checks)

    def inputs(self, semantic: HotnessConfig) -> Mapping[str, str]:
        """Reads a graph, and the inputs of the sampling."""
        return {"graph": "graph", **{name: name for name in (semantic.sampling.inputs if semantic.sampling else ())}}

    def raw(self, semantic: HotnessConfig) -> Mapping[str, str]:
        """Returns the digest of the user's own sampling function, if there is one."""
        return code_digests({"sampling": semantic.sampling.method}) if semantic.sampling else {}

    def build(self, building: Building[HotnessConfig, Threads]) -> Summary:
        """Counts, ranks, and evaluates if the configuration asks for it."""
        from graphmill.assets.hotness.in_order import RowPasses
        from graphmill.assets.hotness.rankings import Rankings, evaluate, expect
        from graphmill.assets.sampling.drawing import open_drawing

        inputs, semantic, execution, writer = building.inputs, building.semantic, building.execution, building.writer
        sampling, table = semantic.sampling, semantic.hotness
        passes = sampling is not None and is_sequential(sampling, inputs)
        # What is read by passes is compared then.
        graph, allocate = open_graph(inputs["graph"], compared=not passes), scratch_arrays(writer.scratch())
        drawing = open_drawing(sampling, inputs, compared=not passes)
        presampled, evaluated = _count(building, graph, drawing, allocate, passes)
        counted_at, limit = time.perf_counter(), parse_size(sampling.memory_limit) if passes and sampling else 0
        means: dict[str, Any] = {"threads": execution.threads, "allocate": allocate}
        means["sums_at_once"] = sums_within(graph.topology.num_nodes, limit, free_bytes())
        numbers: dict[str, Any] = {"num_nodes": graph.topology.num_nodes}
        for name, counted in (("presample", presampled), ("evaluate", evaluated)):
            if counted is not None:
                numbers |= counted.numbers(name)
        figures: dict[str, str] = {}
        with RowPasses(inputs, limit, building.progress) if passes and pushes(table) else nullcontext() as rows:
            rankings = Rankings(graph, semantic, drawing, presampled, evaluated, passes=rows, **means)
            order, score = _write(rankings, writer)
            if evaluated is not None:
                found, figures = evaluate(rankings, evaluated.visits, writer)
                numbers |= found
            elif presampled is not None:
                found, figures = expect(rankings, order, score, writer)
                numbers |= found
        facts = rows.facts() if rows is not None else {}
        writer.note(rank_seconds=round(time.perf_counter() - counted_at, 3), **facts)
        checks = [] if presampled is None else presampled.checks(graph)
        return Summary(numbers=numbers, checks=[*checks, _is_permutation(order)], figures=figures)


def _count(
    building: Building[HotnessConfig, Threads], graph: Graph, drawing: Any, allocate: Allocate, passes: bool
) -> tuple[Any, Any]:
    """Returns the counted epochs (assets/hotness/epochs.py), presampled ones and those to evaluate on; None for what nothing asks for.

    Args:
        passes: whether batches are drawn by passes over the edges in order.
    """
    from graphmill.assets.hotness.epochs import Epochs
    from graphmill.assets.sampling.sequential import SequentialDraws

    table, writer, threads = building.semantic.hotness, building.writer, building.execution.threads
    with ExitStack() as opened:
        draws = None
        if passes:
            given: dict[str, Any] = {"folder": writer.scratch(), "threads": threads, "edges": False}
            draws = SequentialDraws(drawing, building.inputs, seed=building.semantic.seed, **given)
            opened.enter_context(draws)
        # The maps of its samplers take 8 bytes per node each, and go with it.
        epochs = Epochs(graph, building.semantic, drawing, threads, building.progress, allocate, draws)
        started = time.perf_counter()
        presampled = epochs.presample() if table.presamples else None
        after_rounds = time.perf_counter()
        evaluated = epochs.evaluate() if table.evaluate_epochs else None
        writer.note(
            presample_seconds=round(after_rounds - started, 3),
            evaluate_seconds=round(time.perf_counter() - after_rounds, 3),
            **(draws.facts() if draws else {}),
        )
    return presampled, evaluated


HOTNESS = HotnessStage()


def _write(rankings: Any, writer: Writer) -> tuple[Array, Array | None]:
    """Writes the arrays of the configured policy; returns the order and the score."""
    policy, counter = rankings.config.hotness.policy, rankings.counter
    score, num_nodes = rankings.score(policy), rankings.graph.topology.num_nodes
    order = rankings.order(policy, score, writer.create("order", num_nodes, id_dtype(num_nodes)))
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
    return order, score


def _is_permutation(order: Array) -> Check:
    seen = np.zeros(len(order), bool)
    for low, high in node_ranges(len(order)):
        seen[order[low:high]] = True
    held = int(np.count_nonzero(seen))
    return Check(
        name=PERMUTATION,
        passed=held == len(order),
        detail=f"the {len(order):,} places of the ranking hold {held:,} different nodes",
        numbers={"different nodes ranked": held, "nodes": len(order)},
    )
