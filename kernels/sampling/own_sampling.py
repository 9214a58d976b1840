"""Blocks from a user's own sampling function (FGNN, section 5.1: a user-provided function on each mini-batch).

The function decides, one layer after the other, which sources each destination gets; everything else is as in
`graphmill.kernels.sampling.sample`: destinations are the first sources, new sources follow in the order of their first edge, and the
transpose is the same counting sort. Uniform and weighted neighbourhoods, random walks and importance sampling are all
functions of this form:

    def draw(topology, node_ids, fanout, random):
        return counts, sources            # or counts, sources, weights

    node_ids  ids[n] global: the destinations of this layer
    fanout    the layer's entry of `fanouts`, -1 for all neighbours
    random    names the random numbers of this layer of this batch: `LayerDraws`
    counts    int[n]: how many sources each destination gets; sources: ids[sum of counts] global, destination after destination
    weights   float[sum of counts], into the blocks' `weight`, or left out

The function is called from several threads, and must depend on its arguments only: then batches are the same bytes at any thread count and
after a resume. Renaming costs a sort of the new sources in NumPy.

Not checked: that the function depends on its arguments only, and that the sources it returns are neighbours of their destinations.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from graphmill.kernels.arrays import as_ids
from graphmill.kernels.blocks.transpose import transpose as with_transpose
from graphmill.kernels.errors import InputError
from graphmill.kernels.rng import absorb_ids, draws, key
from graphmill.kernels.sampling.sample import Sampler, Transposes, as_fanouts
from graphmill.kernels.types import Array, BatchKey, Block, Topology


@dataclass(frozen=True, slots=True)
class LayerDraws:
    """Random numbers that are named by the key of (seed, stream, epoch, step, layer), and by node."""

    key: int

    def bits(self, node_ids: Any, count: int) -> Array:
        """Returns u64[n, count]: `count` random words for each node, the same wherever the node stands."""
        return draws(absorb_ids(self.key, node_ids)[:, None], np.arange(count)[None, :])

    def generator(self) -> np.random.Generator:
        """Returns a NumPy generator seeded by the key, always in its first state."""
        return np.random.Generator(np.random.Philox(key=self.key))


class AnySampler(Protocol):
    """The interface of samplers for trainers and stages: `graphmill.kernels.sampling.sample.Sampler` or an `OwnSampler`."""

    def sample(self, batch: BatchKey, seeds: Any, *, transpose: Transposes = "hidden") -> tuple[Block, ...]:
        """Samples the blocks under the seeds.

        One that draws edges of the graph takes `edge_ids = True`, for their ids; one that draws as of times `times`, f64[b] of the seeds.
        """
        ...


class OwnSampler:
    """Samples blocks by a user's own function.

    Args:
        fanouts: one number per layer, from the seeds outwards.

    Raises:
        InputError: fanouts or the topology are not sound, or the function cannot be called.
    """

    def __init__(
        self, topology: Topology, fanouts: Sequence[int], function: Callable[..., Any], *, seed: int, name: str
    ):
        if not callable(function):
            raise InputError(f"{name} is {type(function).__name__}, not a function", "name a function")
        # Checks the topology, the fanouts and every batch's seeds as the fused kernel does.
        self.checks = Sampler(topology, fanouts, seed=seed)
        self.topology, self.fanouts, self.function = topology, as_fanouts(fanouts), function
        self.seed, self.name = seed, name

    def sample(self, batch: BatchKey, seeds: Any, *, transpose: Transposes = "hidden") -> tuple[Block, ...]:
        """Samples the blocks under the seeds, see `Sampler.sample`; raises InputError if seeds, function or sample are not sound."""
        nodes = self.checks.check_seeds(seeds)
        if len(np.unique(nodes)) < len(nodes):
            raise InputError("a seed is repeated in its batch", "give each seed once")
        blocks: list[Block] = []
        for layer, fanout in zip(reversed(range(len(self.fanouts))), self.fanouts, strict=True):
            random = LayerDraws(key(self.seed, batch.stream, batch.epoch, batch.step, layer))
            counts, sources, weights = self._call(nodes, fanout, random, layer)
            block = _renamed(nodes, counts, sources, weights)
            turned = transpose == "all" or (transpose == "hidden" and layer > 0)
            blocks.insert(0, with_transpose(block) if turned else block)
            nodes = block.src_ids
        return tuple(blocks)

    def _call(self, nodes: Array, fanout: int, random: LayerDraws, layer: int) -> tuple[Array, Array, Array | None]:
        where = f"{self.name} for {len(nodes)} nodes of layer {layer}"
        try:
            result = self.function(self.topology, nodes, fanout, random)
        except Exception as error:
            raise InputError(f"{where} failed: {type(error).__name__}: {error}", "correct the function") from error
        if not isinstance(result, tuple) or len(result) not in (2, 3):
            problem = f"{where} returned {type(result).__name__}"
            raise InputError(problem, "return counts, sources or counts, sources, weights")
        counts, sources = (as_ids(result[i], f"{where}: {what}") for i, what in ((0, "counts"), (1, "sources")))
        if len(counts) != len(nodes) or (counts < 0).any() or counts.sum() != len(sources):
            problem = f"{where} returned {len(counts)} counts that add up to {counts.sum()}, and {len(sources)} sources"
            raise InputError(problem, "return one count >= 0 for each node, and as many sources as they add up to")
        wrong = np.flatnonzero((sources < 0) | (sources >= self.topology.num_nodes))
        if len(wrong):
            problem = f"{where} returned source {sources[wrong[0]]} at position {wrong[0]}"
            raise InputError(problem, f"return global node ids in 0..{self.topology.num_nodes - 1}")
        weights = None if len(result) == 2 else np.asarray(result[2], np.float32)
        if weights is not None and weights.shape != sources.shape:
            raise InputError(f"{where} returned weights {list(weights.shape)}", f"return float[{len(sources)}]")
        return counts, sources.astype(self.topology.indices.dtype, copy=False), weights


def _renamed(nodes: Array, counts: Array, sources: Array, weights: Array | None) -> Block:
    """Builds the block: the destinations, then new sources in the order of their first edge."""
    known, first, inverse = np.unique(np.concatenate([nodes, sources]), return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    local = np.empty(len(known), np.int32)
    local[order] = np.arange(len(known), dtype=np.int32)
    ends = np.cumsum(counts, dtype=np.int64)
    if len(sources) >= 2**31 or len(known) >= 2**31:
        problem = f"a block of {len(sources)} edges needs more than 32-bit local ids"
        raise InputError(problem, "lower batch_size or fanouts")
    return Block(
        num_dst=len(nodes),
        num_src=len(known),
        start=(ends - counts).astype(np.int32),
        end=ends.astype(np.int32),
        indices=local[inverse[len(nodes) :]],
        src_ids=known[order],
        weight=weights,
    )
