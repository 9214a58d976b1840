"""Sampled batches and histories to prune them by."""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from graphmill.kernels.types import Block


def made_blocks(widths: tuple[int, ...], most_edges: int, seed: int, extras: bool = True) -> tuple[Block, ...]:
    """Blocks as a sampler makes them: destinations are the first sources, and every source is in use.

    Args:
        widths: nodes of every layer from the seeds outwards, ascending; one more than there are blocks.
        most_edges: per destination, before every source is used.
        seed: of all draws.
        extras: with weights, types, ids and shares of edges.
    """
    rng = np.random.default_rng(seed)
    ids = rng.permutation(4 * widths[-1])[: widths[-1]].astype(np.int32)
    made = []
    for num_dst, num_src in pairwise(widths):
        rows = [list(rng.integers(0, num_src, rng.integers(0, most_edges + 1))) for _ in range(num_dst)]
        for source in range(num_dst, num_src):
            rows[rng.integers(0, num_dst)].append(source)
        degrees = np.array([len(row) for row in rows], np.int32)
        end = np.cumsum(degrees, dtype=np.int32)
        nnz = int(end[-1])
        block = Block(
            num_dst=num_dst,
            num_src=num_src,
            start=end - degrees,
            end=end,
            indices=np.array([source for row in rows for source in row], np.int32),
            src_ids=ids[:num_src],
        )
        if extras:
            block = replace(
                block,
                weight=rng.random(nnz, np.float32),
                self_weight=rng.random(num_dst, np.float32),
                edge_type=rng.integers(0, 9, nnz).astype(np.uint8),
                edge_id=rng.integers(0, 2**40, nnz),
                share=rng.random(nnz, np.float32),
            )
        made.append(block)
    return tuple(made[::-1])


def made_slots(blocks: tuple[Block, ...], share: float, seed: int) -> list[np.ndarray]:
    """Slots of a share of the sources of every block but the first, distinct."""
    rng = np.random.default_rng(seed)
    slots = []
    for block in blocks[1:]:
        found = rng.permutation(3 * block.num_src)[: block.num_src].astype(np.int32)
        slots.append(np.where(rng.random(block.num_src) < share, found, np.int32(-1)))
    return slots


def empty_blocks(count: int) -> tuple[Block, ...]:
    """The blocks of a batch without seeds."""
    none = np.empty(0, np.int32)
    return tuple(Block(num_dst=0, num_src=0, start=none, end=none, indices=none, src_ids=none) for _ in range(count))
