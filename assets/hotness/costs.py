"""What a ranking of all nodes takes of the machine: memory, scratch, and the passes over the edges with their bytes."""

from __future__ import annotations

from typing import Any

from graphmill.assets.costs.needs import DRAWING, LIBRARIES, EdgePasses, Need, Sizes, Term
from graphmill.assets.hotness.config import HotnessConfig, HotnessTable
from graphmill.assets.sampling.bounds import BatchBound, batch_bound, even_seeds
from graphmill.assets.sampling.passes import (
    READER_BYTES,
    likely_passes,
    pass_bytes,
    pass_terms,
    plans_passes,
    spilled_bytes,
    window_bytes,
)
from graphmill.assets.sizes import parse_size
from graphmill.kernels import ranges
from graphmill.kernels.hotness.push import ITERATIONS
from graphmill.kernels.sampling.sample import Sampler

SUM_BYTES, RANGE_BYTES = 16, 100
"""Bytes per node of a range of sums, and of a range whose temporary arrays exist at one time (kernels/ranges.py)."""
RANKING_FACTS = ("ranking_passes", "ranking_read_bytes")
"""Names of the facts about the passes of estimates in the record of a build."""


def pushes(table: HotnessTable) -> bool:
    """Returns whether visits are estimated by passes over all edges."""
    return table.policy in ("bayes", "pagerank") or table.evaluate_epochs > 0


def ranking_passes(config: HotnessConfig, num_nodes: int, sums_at_once: int) -> int:
    """Returns the passes over all edges that estimates take, at most: one for each layer, or step of PageRank, and range of sums."""
    table, compared = config.hotness, config.hotness.evaluate_epochs > 0  # by which all policies are ranked
    layers = len(config.sampling.fanouts) if config.sampling else 0
    found = layers * ((table.policy == "bayes") + compared) + ITERATIONS * ((table.policy == "pagerank") + compared)
    return found * -(-num_nodes // max(1, sums_at_once, ranges.SUMS_AT_ONCE))


def sums_within(num_nodes: int, limit: int, free: int | None) -> int:
    """Returns the nodes whose sums exist at one time: each range of them reads all edges once per layer.

    Args:
        limit: bytes of `memory_limit`, which sums may take beside windows of edges; 0 if edges are mapped.
        free: bytes of free memory, of which sums may take half in any case; None if the system does not say.
    """
    if free is None:
        return num_nodes
    return min(num_nodes, max(free // 2, min(limit, free) - windows_bytes(limit)) // SUM_BYTES)


def windows_bytes(limit: int) -> int:
    """Returns the memory of a pass over the edges in order within a limit: two windows, and the readers."""
    return 2 * window_bytes(limit) + READER_BYTES


def hotness_need(semantic: Any, execution: Any, sizes: Sizes) -> Need:
    """Returns the need of the hotness stage."""
    table, sampling, edges, batches = semantic.hotness, semantic.sampling, sizes.num_edges, 0
    in_order = sampling is not None and table.presamples and plans_passes(sampling, sizes)
    counted, spilled, more, passes = counted_bytes(semantic, sizes.num_nodes), 0, (), None
    if table.presamples and sampling is not None:
        count, seeds = even_seeds(sizes.num_train, sampling.batch_size)
        each = batch_bound(sampling, seeds, sizes)
        batches = min(execution.threads, count) * each.record_bytes
        edges = (table.rounds + table.evaluate_epochs) * count * each.num_edges
        edges += len(sampling.fanouts) * sizes.num_edges * (table.policy == "bayes" or table.evaluate_epochs > 0)
        if in_order:
            more = pass_terms(sampling, execution.threads, each)
            spilled = spilled_bytes(sizes, count * each.num_edges, count * each.inputs)
            passes = _passes(semantic, sizes, count, each)
    counts = Term("counts of nodes", counted, "[hotness] policy")
    # The maps of samplers are gone before nodes are ranked.
    drawing = (
        LIBRARIES,
        counts,
        Term("maps of samplers", _map_bytes(semantic, sizes.num_nodes, execution.threads) * (not in_order)),
        Term("a batch per thread", batches, "[sampling] batch_size", bound=True),
        *more,
    )
    ranking = (LIBRARIES, counts, *_ranking_terms(semantic, sizes, in_order))
    return Need(
        name="hotness",
        phases=(drawing, ranking, (DRAWING, counts)),
        stored=_stored_bytes(semantic, sizes),
        scratch=max(spilled, _scratch_bytes(semantic) * sizes.num_nodes),
        work=edges,
        passes=passes,
    )


def counted_bytes(config: HotnessConfig, num_nodes: int) -> int:
    """Returns the bytes of the counts of all nodes, and of the test that the order is a permutation."""
    table, layers = config.hotness, len(config.sampling.fanouts) if config.sampling else 0
    if not table.presamples:
        return num_nodes
    counts = 4 + 4 * layers * (table.counted_layers != "none") + 8 * layers * (table.layers == "inputs")
    compared = 8 * (max(table.rounds, table.evaluate_epochs) > 1)  # visits of the epoch before, and of all before it
    return (counts + 4 * (table.evaluate_epochs > 0) + compared + 1) * num_nodes


def _map_bytes(config: HotnessConfig, num_nodes: int, threads: int) -> int:
    """Returns the bytes of samplers' maps; of so many nodes that a map is sized by the batch they are left out."""
    return 8 * threads * num_nodes * (config.hotness.presamples and num_nodes <= Sampler.MOST_DIRECT_NODES)


def _ranking_terms(config: HotnessConfig, sizes: Sizes, in_order: bool) -> tuple[Term, ...]:
    """Returns the memory of ranking beside the counts."""
    nodes, key = sizes.num_nodes, "[hotness] policy"
    some = RANGE_BYTES * min(nodes, ranges.NODES_AT_ONCE)
    if not pushes(config.hotness):
        return (Term("ranges of nodes", some, key),)
    enough = some + SUM_BYTES * min(nodes, ranges.SUMS_AT_ONCE)
    windows = windows_bytes(parse_size(config.sampling.memory_limit)) if in_order and config.sampling else 0
    return (Term("sums of nodes", some + SUM_BYTES * nodes, key, enough=enough), Term("windows of edges", windows))


def _passes(config: HotnessConfig, sizes: Sizes, count: int, largest: BatchBound) -> EdgePasses:
    """Returns the passes over the edges of trial batches and of estimates, at most, if `memory_limit` is free.

    Args:
        count, largest: batches of an epoch, and the most that one of them holds.
    """
    sampling, table = config.sampling, config.hotness
    assert sampling is not None
    limit, one = parse_size(sampling.memory_limit), pass_bytes(sizes)
    drawn = likely_passes(sampling, sizes, count, largest).times(table.rounds + table.evaluate_epochs)
    found = ranking_passes(config, sizes.num_nodes, sums_within(sizes.num_nodes, limit, limit)) * pushes(table)
    return EdgePasses(drawn.count + found, drawn.num_bytes + found * one)


def _stored_bytes(config: HotnessConfig, sizes: Sizes) -> int:
    """Returns the bytes of the artifact's arrays."""
    table, layers = config.hotness, len(config.sampling.fanouts) if config.sampling else 0
    stored = sizes.id_bytes + 8 * (table.policy in ("bayes", "degree", "pagerank"))
    if table.presamples:
        stored += 4 + 4 * layers * (table.layers != "none") + 8 * layers * (table.layers == "inputs")
    return stored * sizes.num_nodes


def _scratch_bytes(config: HotnessConfig) -> int:
    """Returns the bytes per node of the scratch files: of sorting, and of the states of `bayes` and PageRank."""
    table, sampling = config.hotness, config.sampling
    if sampling is None or not pushes(table):
        return 12 + 16 * (table.policy == "pagerank")
    if sampling.method == "random_walk":
        return 12 + 40 + 24
    return 12 + 48 + 8 * len(sampling.fanouts) * (sampling.method == "weighted")
