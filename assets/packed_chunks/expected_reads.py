"""The order of a chunk's rows by expected reads: those that embeddings of earlier steps make needless stand at its end.

A batch that is pruned by a history (trainers/techniques/fresh/) reads some rows of its chunk, by pages. In the order of node ids they lie
among all others, so a page is read if one of its rows is needed, and a row that straddles pages brings both. Here the rows that are needed
most often come first: what a batch reads is dense at the beginning of its chunk, and what it leaves out is whole pages at the end.

The stored batches are a trial epoch. A node that is in layer l of c of B batches is found there with the chance

    q = x / (1 + x),   x = P_GRAD (c - 1) T / B       T = batches that an embedding stays: `t_stale` of an epoch

since c - 1 other batches may have left its embedding, each within reach for T of B batches. From the outputs, which are always computed,
down to the inputs: a row is wanted if one of its consumers is computed, and it is computed if it is wanted and not found. Consumers are
taken as independent. Rows of equal chance stand by visits, since an arena of feature rows holds the hottest ones, then by id.

Only additions, products and divisions decide, in a fixed order, so the bytes are the same on every machine.

Known limits: `p_grad` and `t_stale` are the defaults of `[train.fresh]`, and how many feature rows an arena holds is not considered: other
values read more pages, and the same rows. Batches of the same group of segments are counted alone.

Cost: two passes over the records of a group's batches. Memory: 4 bytes per node and layer, 8 more of a layer at
a time, and 4 for each packed row of the group.
"""

from __future__ import annotations

import numpy as np

from graphmill.assets.samples.read import Samples
from graphmill.kernels.disk_cache.segments import SegmentPlan
from graphmill.kernels.types import Array, Block

P_GRAD, AGES_OF_EPOCH, MOST_AGE = 0.9, 6, 200
"""Share of embeddings that are stable; and their longest age: a part of an epoch, and a number of batches."""


def read_orders(samples: Samples, plan: SegmentPlan) -> list[Array]:
    """Returns for each batch of a plan i32[p], places in its list of packed rows: those that are read most often come first.

    Args:
        samples: the stored batches, those of the plan among them.
    """
    batches = range(plan.first_batch, plan.first_batch + len(plan.segment_of))
    held, visits = _held(samples, batches), samples.access_counts()
    orders = []
    for number, batch in enumerate(batches):
        blocks = samples.record(*samples.place_of(batch)).blocks
        ids, packed = blocks[0].src_ids, plan.packed(number)
        by_id = np.argsort(ids)
        chance = np.take(wanted_rows(blocks, held)[by_id], np.searchsorted(ids[by_id], packed), mode="clip")
        orders.append(np.lexsort((visits[packed], -chance)).astype(np.int32))
    return orders


def wanted_rows(blocks: tuple[Block, ...], held: list[Array]) -> Array:
    """Returns f64[inputs], the chance that a batch needs the row of each of its inputs.

    Args:
        blocks: blocks as sampled, that of the inputs first.
        held: f32[N] of each layer but the last, the chance that an embedding of each node is found; none if no batch leaves any.
    """
    computed = np.ones(blocks[-1].num_dst)
    for layer in range(len(blocks) - 1, -1, -1):
        block, unwanted = blocks[layer], np.ones(blocks[layer].num_src)
        # One after the other, in the order of edges; a reduction would multiply in an order that depends on the processor.
        np.multiply.at(unwanted, block.indices, np.repeat(1 - computed, block.end - block.start))
        unwanted[: block.num_dst] *= 1 - computed
        if layer == 0:
            return 1 - unwanted
        computed = 1 - unwanted
        if held:
            computed *= 1 - held[layer - 1][block.src_ids]
    raise AssertionError("a batch has blocks")


def _held(samples: Samples, batches: range) -> list[Array]:
    """Returns f32[N] of each layer but the last, the chance that a batch finds an embedding of each node; see `wanted_rows`."""
    num_nodes, counts, trained = len(samples.access_counts()), list[Array](), 0
    for batch in batches:
        epoch, step = samples.place_of(batch)
        if epoch >= samples.num_epochs:  # of an evaluation, which leaves no embeddings
            continue
        blocks, trained = samples.record(epoch, step).blocks, trained + 1
        counts = counts or [np.zeros(num_nodes, np.int32) for _ in blocks[1:]]
        for count, block in zip(counts, blocks[1:], strict=True):
            count[block.src_ids] += 1  # distinct
    age = min(MOST_AGE, samples.order.rounds // AGES_OF_EPOCH)
    found = []
    while counts:
        others = np.maximum(counts.pop(0) - 1, 0).astype(np.float32)
        others *= np.float32(P_GRAD * age / trained)
        found.append(others / (1 + others))
    return found
