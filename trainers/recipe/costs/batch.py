"""The batches of a training before it, without torch: the sizes of the largest one, and some of them, drawn.

Drawn batches are those of the training's first epoch, at places that a permutation chooses, so that means over them are means of an epoch
with a small error and no part of the graph is preferred. Cost: the time of drawing `MOST_BATCHES` batches, or fewer large ones, and the
bytes of their blocks.

Fan-outs alone allow up to twice what a batch has. If the graph exists, a lesser bound follows from a few drawn batches: batches of one plan
are seeds in random order, so their sizes differ little. It is the largest of them and a margin, which grows as batches have fewer seeds.
Cost: the time of drawing `DRAWN` batches, once per graph and way of sampling, and a sampler's memory; so a graph that does not fit in
memory, whose pages would be read at random, keeps the bound of its fan-outs.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, sqrt
from typing import Any, NamedTuple

import numpy as np

from graphmill.assets.costs.needs import Sizes
from graphmill.assets.graph.read import open_graph
from graphmill.assets.sampling.bounds import batch_bound, seed_nodes, seed_pairs
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling.drawing import open_drawing
from graphmill.assets.sampling.training_edges import training_edges
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.assets.storage.system.control_group import fits_memory
from graphmill.kernels.links.link_sampler import LinkSampler
from graphmill.kernels.rng import key, permutation
from graphmill.kernels.sampling.epoch_plan import EpochPlan, Plan
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.kernels.sampling.sample import Transposes
from graphmill.kernels.types import Block, Stream

MOST_BATCHES, MOST_EDGES = 16, 4_000_000
"""Batches that are drawn at most, and edges after which no further one is drawn; two are drawn unless time runs out."""
MOST_SECONDS = 2.0
"""Seconds after which a training draws no further batch for its prediction: other ranks wait meanwhile."""
EDGE_BYTES = 24
"""Bytes of blocks and transposes per edge, with the share of nodes: an estimate that bounds what drawn batches hold."""


class BatchSizes(NamedTuple):
    """The largest batch of an epoch.

    Attributes:
        count: number of batches of an epoch.
        rows: rows of each layer: rows[0] are the inputs, rows[l + 1] the outputs of layer l, the last ones the seeds.
        edges: number of edges that each layer aggregates over.
        exact: whether the inputs and edges were counted when samples were stored.
        pairs: links with their negatives, whose scores are compared; 0 of nodes.
    """

    count: int
    rows: tuple[int, ...]
    edges: tuple[int, ...]
    exact: bool = False
    pairs: int = 0

    @property
    def inputs(self) -> int:
        """Number of input rows."""
        return self.rows[0]

    def block_bytes(self, id_bytes: int, transposed: int) -> int:
        """Returns the bytes of its blocks' arrays, with node ids of `id_bytes` bytes and transposes of the last `transposed` layers."""
        found = 0
        for layer, edges in enumerate(self.edges):
            sources, targets = self.rows[layer], self.rows[layer + 1]
            found += 4 * edges + 8 * targets + id_bytes * sources
            if layer >= len(self.edges) - transposed:
                found += 8 * edges + 8 * sources
        return found


def batch_sizes(sampling: SamplingConfig, sizes: Sizes) -> BatchSizes:
    """Returns the sizes of the largest batch: of stored samples, or the most that fan-outs can draw.

    Args:
        sizes: sizes of the graph; stored samples of the same batches are among its artifacts, if the training reads them.
    """
    count = max(1, ceil(sizes.num_train / sampling.batch_size))
    seeds = ceil(sizes.num_train / count)
    artifact, pairs = sizes.artifacts.get("samples"), seed_pairs(sampling, seeds, sizes)
    if artifact is None:
        bound = batch_bound(sampling, seeds, sizes, sampling.largest_fanouts)
        return BatchSizes(count=count, rows=bound.rows, edges=bound.edges, pairs=pairs)
    if artifact.config.get("plan") == "parts":  # parts may have unequal numbers of seeds
        count, seeds = artifact.summary["numbers"]["num_batches"], min(sampling.batch_size, sizes.num_train)
    # The largest of each kind, which may be those of different batches; behind those of training stand those of evaluations.
    trained = artifact.config["epochs"] * count
    edges = [int(each) for each in artifact.array("num_edges")[:trained].max(axis=0)]
    return BatchSizes(
        count=count,
        rows=_rows(seed_nodes(sampling, seeds, sizes), edges, int(artifact.array("num_inputs")[:trained].max())),
        edges=tuple(edges),
        exact=True,
        pairs=pairs,
    )


def whole_batch(layers: int, sizes: Sizes) -> BatchSizes:
    """Returns the one batch of a full-graph training: all nodes and edges, in every layer."""
    rows, edges = (sizes.num_nodes,) * (layers + 1), (sizes.num_edges,) * layers
    pairs = seed_pairs(
        SamplingConfig(fanouts=(-1,)), sizes.num_train, sizes
    )  # with the defaults of its keys about negatives
    return BatchSizes(count=1, rows=rows, edges=edges, exact=sizes.exact, pairs=pairs)


def _rows(seeds: int, edges: list[int], inputs: int) -> tuple[int, ...]:
    """Returns the rows of each layer: every edge brings another node, up to the inputs."""
    rows = [seeds]
    for each in reversed(edges):
        rows.insert(0, min(inputs, rows[0] + each))
    rows[0] = inputs
    return tuple(rows)


@dataclass(frozen=True, kw_only=True)
class DrawnBatches:
    """Drawn batches of one epoch.

    Attributes:
        count: number of batches of the whole epoch.
        steps: number of each batch in its sampling epoch; batches without seeds are left out.
        blocks: blocks of each batch; blocks[i][0] consumes features.
        ends: number of first seeds of each batch whose edges it leaves out; 0 for all of them without links.
    """

    count: int
    steps: Sequence[int]
    blocks: Sequence[tuple[Block, ...]]
    ends: Sequence[int] = ()

    def mean(self, of: Callable[[tuple[Block, ...]], float]) -> float:
        """Returns the mean of a number over the batches."""
        return float(np.mean([of(blocks) for blocks in self.blocks])) if self.blocks else 0.0

    @property
    def inputs(self) -> float:
        """Mean number of input rows of a batch."""
        return self.mean(lambda blocks: blocks[0].num_src)

    @property
    def edges(self) -> float:
        """Mean number of edges of a batch, of all layers."""
        return self.mean(lambda blocks: sum(len(block.indices) for block in blocks))

    @property
    def largest(self) -> BatchSizes:
        """The largest number of each kind, which may be those of different batches."""
        rows = [[blocks[0].num_src, *(block.num_dst for block in blocks)] for blocks in self.blocks]
        edges = [[len(block.indices) for block in blocks] for blocks in self.blocks]
        most_rows, most_edges = np.max(rows, axis=0).tolist(), np.max(edges, axis=0).tolist()
        return BatchSizes(count=self.count, rows=tuple(most_rows), edges=tuple(most_edges))


def draw_batches(
    plan: Plan,
    sampler: AnySampler,
    transpose: Transposes = "none",
    most: int = MOST_BATCHES,
    most_bytes: int = MOST_EDGES * EDGE_BYTES,
    most_seconds: float = inf,
    *,
    edge_ids: bool = False,
) -> DrawnBatches:
    """Returns some batches of a training's first epoch.

    Args:
        most_bytes: bytes that they may hold, but for the first two.
        most_seconds: seconds of drawing after which no further batch is drawn.
    """
    places = set(permutation(key(plan.seed, Stream.PROBE), plan.num_batches)[:most].tolist())
    steps, found, ends, edges, started = [], [], [], 0, time.perf_counter()
    links = sampler if isinstance(sampler, LinkSampler) and sampler.exclude_targets else None
    more: dict[str, Any] = {"edge_ids": True} if edge_ids else {}
    for item in plan.batches(0):
        if item.position not in places or not len(item.seeds):
            continue
        blocks = sampler.sample(item.key, item.seeds, transpose=transpose, **more)
        steps.append(item.key.step)
        found.append(blocks)
        ends.append(0 if links is None else links.edges.batch(item.key, item.seeds).num_ends)
        edges += sum(len(block.indices) for block in blocks)
        enough = edges > min(MOST_EDGES, most_bytes // EDGE_BYTES) and len(found) > 1
        if enough or time.perf_counter() - started > most_seconds:
            break
    return DrawnBatches(count=plan.num_batches, steps=steps, blocks=found, ends=ends)


DRAWN, SECONDS = 4, 1.0
"""Batches that are drawn, and seconds after which no further one is."""
SHARE, SPREAD = 0.05, 1.5
"""Margin over the largest drawn batch: this share, and this one over the root of its seeds."""

_FOUND: dict[str, BatchSizes | None] = {}
"""Graph and way of sampling -> the largest drawn batch, of this process."""


def drawn_bound(sampling: SamplingConfig, sizes: Sizes, bound: BatchSizes) -> BatchSizes:
    """Returns the lesser of a bound and that of drawn batches, layer by layer; the bound if none can be drawn.

    Args:
        sizes: sizes of the graph; batches are drawn if it is among its artifacts.
    """
    graph = sizes.artifacts.get("graph")
    if not isinstance(graph, Artifact) or not fits_memory(sizes.topology_bytes):
        return bound
    if not sizes.num_train or is_reference(sampling.method):
        return bound
    tables = sizes.artifacts.get("sampling_tables")
    if "sampling_tables" in sampling.inputs and tables is None:
        return bound
    key = f"{graph.path} {tables and tables.path} {sampling!r}"
    if key not in _FOUND:
        _FOUND[key] = _largest(dict(sizes.artifacts), sampling)
    if (found := _FOUND[key]) is None:
        return bound
    margin = 1 + SHARE + SPREAD / sqrt(found.rows[-1])
    rows, edges = ([int(margin * each) for each in sizes] for sizes in (found.rows, found.edges))
    return bound._replace(
        rows=tuple(map(min, bound.rows, [*rows[:-1], bound.rows[-1]])), edges=tuple(map(min, bound.edges, edges))
    )


def _largest(artifacts: Mapping[str, Artifact], sampling: SamplingConfig) -> BatchSizes | None:
    """Returns the largest of some batches of a training's first epoch; None if no node is a seed."""
    opened = open_graph(artifacts["graph"])
    drawing, seeds = open_drawing(sampling, artifacts), np.array(opened.seeds[0])
    if drawing is None or not len(seeds):
        return None
    plan = EpochPlan(seeds, sampling.batch_size, seed=0)
    sampler = drawing.with_fanouts(sampling.largest_fanouts).sampler(opened.topology, seed=0)
    if opened.links is not None:
        # An edge that is left out of a block takes no node with it.
        edges = training_edges(opened.links, opened.topology, sampling, 0, opened.relations)
        sampler = LinkSampler(sampler, edges, exclude_targets=False)
    drawn = draw_batches(plan, sampler, "none", DRAWN, most_seconds=SECONDS)
    return drawn.largest if drawn.blocks else None
