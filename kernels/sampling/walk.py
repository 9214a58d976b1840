"""Importance neighbours by random walks: the nodes that short walks from a node visit most (PinSAGE).

From every destination start `paths` paths of `length` steps. A step goes to an in-neighbour, each equally likely; before every step but the
first the path returns to its destination with probability `restart`, and from a node without in-neighbours it returns always. Every step is
a visit. The destination's sources are the `fanout` nodes that were visited most, the destination itself not counted; of equally visited
ones those that were visited first, which favours no id. Their shares of these visits are the edges' shares of the mean
(`Block.share`), the importance pooling of PinSAGE. So a source need not be a neighbour, and a hub is a source in proportion to its visits.

PinSAGE has walks with restart (Ying et al.: Graph convolutional neural networks for web-scale recommender systems, KDD 2018, section 3.1);
FGNN (section 7.1) takes 5 neighbours from 4 paths of length 3, which are the defaults here. DGL's `PinSAGESampler` ends a path where this
returns it, so that its paths are shorter.

    restart    draw 2 t of the destination's key, its high 32 bits below restart * 2^32
    step       draw 2 t + 1: bounded(draw, in-degree)         t = path * length + step

All decisions are made on integers, and a destination's paths depend on its key only, so blocks are the same bytes at any thread count.

Cost: paths * length dependent reads of the topology per destination. 256 paths go side by side, each step in three passes over them: find
the row, draw a place, read it; so their reads overlap. Memory beside that of `Sampler`: a few bytes per path.

Known limits: an edge of a block is not an edge of the graph, so it has no weight, type or id. The visits of few paths are noisy: 12 visits
hardly repeat a node on a graph with large rows, and then the sources are simply those that were visited first.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphmill.kernels.errors import InputError
from graphmill.kernels.rng import absorb, bounded, draws
from graphmill.kernels.sampling.sample import Sampler, blocks_reference
from graphmill.kernels.types import Array, BatchKey, Block, Topology

MOST_VISITS = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Walks:
    """Settings of walks."""

    # number of paths from every destination
    paths: int = 4
    # number of steps per path
    length: int = 3
    # probability that a path returns to its start before a step
    restart: float = 0.5

    def __post_init__(self) -> None:
        problems = walk_problems(self.paths, self.length, self.restart)
        if problems:
            raise InputError("; ".join(problems), "for example: paths = 4, length = 3, restart = 0.5")

    @property
    def threshold(self) -> int:
        """The probability of a restart, of 2^32."""
        return round(self.restart * 2**32)


def walk_problems(paths: int, length: int, restart: float) -> list[str]:
    """Returns the values outside their ranges, a sentence each."""
    given = {"paths": paths, "length": length}
    found = [f"{name} = {value} is less than 1" for name, value in given.items() if value < 1]
    if not 0 < restart <= 1:
        found.append(f"restart = {restart} is not a probability above 0 and up to 1")
    if not found and paths * length > MOST_VISITS:
        found.append(f"paths * length = {paths * length} visits are more than {MOST_VISITS}")
    return found


def visits_reference(topology: Topology, walks: Walks, node: int, node_key: int) -> list[int]:
    """Returns the nodes that the paths from a node visit, path after path (the rule in plain Python); itself if it has no neighbours."""
    visits: list[int] = []
    for path in range(walks.paths):
        at = node
        for step in range(walks.length):
            number = path * walks.length + step
            if step and int(draws(node_key, 2 * number)) >> 32 < walks.threshold:
                at = node
            row = topology.indices[topology.indptr[at] : topology.indptr[at + 1]]
            if len(row) == 0:
                row = topology.indices[topology.indptr[node] : topology.indptr[node + 1]]
            at = int(row[bounded(int(draws(node_key, 2 * number + 1)), len(row))]) if len(row) else node
            visits.append(at)
    return visits


def walk_reference(
    topology: Topology, walks: Walks, fanouts: Sequence[int], batch: BatchKey, seeds: Array, *, seed: int
) -> tuple[Block, ...]:
    """Returns the blocks of a batch as `WalkSampler.sample` does, without transposes (the rule in plain Python)."""

    def pick(layer_key: int, v: int, fanout: int) -> tuple[list[int], list[float]]:
        visits = [u for u in visits_reference(topology, walks, v, absorb(layer_key, v)) if u != v]
        found = Counter(visits).most_common()  # stable: equals stand in the order of their first visit
        found = found if fanout < 0 else found[:fanout]
        total = sum(count for _, count in found)
        return [u for u, _ in found], [float(np.float32(count) / np.float32(total)) for _, count in found]

    return blocks_reference(fanouts, batch, seeds, pick, seed=seed, dtype=topology.indices.dtype)


class WalkSampler(Sampler):
    """Samples the blocks of mini-batches, whose sources are the nodes that random walks visit most; see `Sampler` for the rest.

    Args:
        fanouts: largest number of sources per node, from the seeds outwards; -1 takes all that were visited.
    """

    EDGES, BY_RELATION = False, False

    def __init__(self, topology: Topology, walks: Walks, fanouts: Sequence[int], *, seed: int, threads: int = 1):
        self.walks = walks
        super().__init__(topology, fanouts, seed=seed, threads=threads)

    def _open(self, replace: bool, threads: int, **more: object) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
        walks = (self.walks.paths, self.walks.length, self.walks.threshold)
        return super()._open(replace, threads, walks=walks, **more)
