"""Some batches of a training, drawn before it, without torch: how large they are, and which nodes they read.

The batches are those of the training's first epoch, at places that a permutation chooses, so that means over them are means of an epoch
with a small error and no part of the graph is preferred. Cost: the time of drawing `MOST_BATCHES` batches, or fewer large ones, and the
bytes of their blocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf

import numpy as np

from graphmill.kernels.rng import key, permutation
from graphmill.kernels.sampling.epoch_plan import Plan
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.kernels.sampling.sample import Transposes
from graphmill.kernels.types import Array, Block, Stream
from graphmill.trainers.recipe.batch_sizes import BatchSizes

MOST_BATCHES, MOST_EDGES = 16, 4_000_000
"""Batches that are drawn at most, and edges after which no further one is drawn; two are drawn unless time runs out."""
MOST_SECONDS = 2.0
"""Seconds after which a training draws no further batch for its prediction: other ranks wait meanwhile."""
EDGE_BYTES = 24
"""Bytes of blocks and transposes per edge, with the share of nodes: an estimate that bounds what drawn batches hold."""


@dataclass(frozen=True, kw_only=True)
class DrawnBatches:
    """Drawn batches of one epoch.

    Attributes:
        count: number of batches of the whole epoch.
        steps: number of each batch in its sampling epoch; batches without seeds are left out.
        blocks: blocks of each batch; blocks[i][0] consumes features.
    """

    count: int
    steps: Sequence[int]
    blocks: Sequence[tuple[Block, ...]]

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
) -> DrawnBatches:
    """Returns some batches of a training's first epoch.

    Args:
        plan: the order of its batches.
        sampler: draws them, on one thread.
        transpose: blocks that get a transpose.
        most: number of batches.
        most_bytes: bytes that they may hold, but for the first two.
        most_seconds: seconds of drawing after which no further batch is drawn.
    """
    places = set(permutation(key(plan.seed, Stream.PROBE), plan.num_batches)[:most].tolist())
    steps, found, edges, started = [], [], 0, time.perf_counter()
    for item in plan.batches(0):
        if item.position not in places or not len(item.seeds):
            continue
        blocks = sampler.sample(item.key, item.seeds, transpose=transpose)
        steps.append(item.key.step)
        found.append(blocks)
        edges += sum(len(block.indices) for block in blocks)
        enough = edges > min(MOST_EDGES, most_bytes // EDGE_BYTES) and len(found) > 1
        if enough or time.perf_counter() - started > most_seconds:
            break
    return DrawnBatches(count=plan.num_batches, steps=steps, blocks=found)


def read_nodes(blocks: tuple[Block, ...]) -> Array:
    """Returns ids[n], global: the nodes whose rows a batch reads."""
    return blocks[0].src_ids


def whole_pages(row_bytes: int, page_bytes: int = 4096) -> int:
    """Returns the bytes of the pages that a row takes on its own."""
    return ceil(row_bytes / page_bytes) * page_bytes


def pages_of(rows: Array, row_bytes: int, page_bytes: int = 4096) -> int:
    """Returns the bytes of the distinct pages in which rows of a table lie.

    Args:
        rows: ids[n], rows of the table.
        page_bytes: bytes of a page.
    """
    if not len(rows) or not row_bytes:
        return 0
    first = np.asarray(rows, np.int64) * row_bytes // page_bytes
    last = (np.asarray(rows, np.int64) * row_bytes + row_bytes - 1) // page_bytes
    pages = np.concatenate([first + each for each in range(ceil(row_bytes / page_bytes) + 1)])
    pages = pages[pages <= np.tile(last, ceil(row_bytes / page_bytes) + 1)]
    return len(np.unique(pages)) * page_bytes
