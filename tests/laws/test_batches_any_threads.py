"""Law 1: a mini-batch has the same bytes at any thread count and beside any number of other samplers, however neighbours are drawn."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from graphmill.kernels.graph.csc import build_csc
from graphmill.kernels.graph.generate import rmat_edges
from graphmill.kernels.sampling.alias import build_alias
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.sampling.walk import Walks, WalkSampler
from graphmill.kernels.sampling.weighted import WeightedSampler
from graphmill.kernels.types import Topology
from tests.kernels.graphs import assert_same_blocks

FIELDS = ("start", "end", "indices", "src_ids", "share", "edge_type", "t_start", "t_edge", "t_dst")


@pytest.fixture(scope="module")
def graph():
    src, dst = rmat_edges(5000, 60000, seed=4)
    csc = build_csc(src, dst, 5000, undirected=True, duplicates="merge", self_loops="drop")
    return Topology(indptr=csc.indptr, indices=csc.indices, in_degree=csc.in_degree, out_degree=csc.out_degree)


@pytest.fixture(scope="module")
def tables(graph):
    """Weights of many sizes, some of them 0."""
    generator = np.random.default_rng(1)
    weights = generator.pareto(1.2, graph.num_edges) * (generator.random(graph.num_edges) < 0.9)
    return build_alias(graph, weights, empty="none")


def relations(graph):
    """One of four relations for each edge, ascending in each row."""
    drawn = np.random.default_rng(2).integers(0, 4, graph.num_edges)
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    return drawn[np.lexsort((drawn, rows))].astype(np.uint8)


KINDS: dict[str, Callable] = {
    "uniform": lambda graph, tables, fanouts, **more: Sampler(graph, fanouts, **more),
    "uniform, replaced": lambda graph, tables, fanouts, **more: Sampler(graph, fanouts, replace=True, **more),
    "weighted": WeightedSampler,
    "weighted, replaced": lambda graph, tables, fanouts, **more: WeightedSampler(
        graph, tables, fanouts, replace=True, **more
    ),
    "walks": lambda graph, tables, fanouts, **more: WalkSampler(graph, Walks(paths=7), fanouts, **more),
    "by relation": lambda graph, tables, fanouts, **more: Sampler(
        replace(graph, edge_types=relations(graph)), [(fanout, -1, 0, 2) for fanout in fanouts], **more
    ),
}


@pytest.mark.parametrize("fanouts", [(15, 10, 5), (-1, 3), (100,)])
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_have_the_same_bytes_at_any_thread_count(graph, tables, fanouts, kind):
    samplers = [KINDS[kind](graph, tables, fanouts, seed=3, threads=threads) for threads in (1, 2, 8)]
    for batch in EpochPlan(np.arange(1000), 250, seed=3).batches(0):
        first, *others = (sampler.sample(batch.key, batch.seeds, transpose="all") for sampler in samplers)
        for blocks in others:
            assert_same_blocks(first, blocks, FIELDS)


@pytest.mark.parametrize("kind", ["uniform", "weighted", "walks", "by relation"])
def test_samplers_side_by_side_give_the_blocks_of_one(graph, tables, kind):
    batches = list(EpochPlan(np.arange(4000), 200, seed=1).batches(2))
    alone = KINDS[kind](graph, tables, (10, 5), seed=1)
    expected = [alone.sample(batch.key, batch.seeds) for batch in batches]

    def work(mine):
        sampler = KINDS[kind](graph, tables, (10, 5), seed=1, threads=2)
        return [sampler.sample(batches[i].key, batches[i].seeds) for i in mine]

    shares = [range(first, len(batches), 4) for first in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for share, results in zip(shares, pool.map(work, shares), strict=True):
            for i, blocks in zip(share, results, strict=True):
                assert_same_blocks(blocks, expected[i], FIELDS)
