"""What a history of embeddings is expected to spare, by the rates at which batches visit nodes; without torch.

A node that batches visit at a rate r per batch is kept for the share q of the time that ranking.py derives from r, p_grad and t_stale. So
at a visit its embedding is found with probability q. Drawn batches are pruned by draws of that probability, with the kernel that prunes
those of the training: what is left of them is what the training will read and compute.

Known limits: gradients are taken as independent of nodes and epochs, and rates as those without a history.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assets.sizes import parse_size
from kernels.history.csr2 import prune
from kernels.types import Array
from trainers.recipe.forecast import Outlook
from trainers.recipe.step_bytes import item_bytes
from trainers.techniques.fresh.ranking import SCORED_AT_ONCE, BatchVisits, share_arena, share_of_time
from trainers.techniques.row_links import rows_links

DRAW_SEED = 0


@dataclass(frozen=True, kw_only=True)
class ExpectedHistory:
    """Drawn batches without what a history spares.

    Attributes:
        below: ids[n] of each drawn batch: the nodes whose rows come from below the arena.
        arena_links: link -> bytes of an epoch of embeddings, and of rows that the arena has.
        edges_share, rows_share: shares of edges and of input rows that are left.
    """

    below: list[Array]
    arena_links: dict[str, float]
    edges_share: float
    rows_share: float

    def table_links(self, outlook: Outlook) -> dict[str, float]:
        """Returns link -> bytes of an epoch of the rows from below the arena."""
        assert outlook.drawn is not None
        scale = outlook.drawn.count / max(1, len(self.below))
        return {link: scale * num_bytes for link, num_bytes in rows_links(outlook, self.below).items()}


def expected_history(outlook: Outlook, parts: int = 1) -> ExpectedHistory:
    """Returns the drawn batches of a training without those parts that its history is expected to spare.

    Args:
        outlook: the training, with counts of visits by layer.
        parts: number of parts, each of which has an arena and a batch in every step.
    """
    key = ("history", parts)
    if key not in outlook.shared:
        outlook.shared[key] = _expected(outlook, parts)
    return outlook.shared[key]


def _expected(outlook: Outlook, parts: int) -> ExpectedHistory:
    drawn, train = outlook.drawn, outlook.case.semantic.train
    assert drawn is not None
    chance, in_arena, accepted = _chances(outlook, parts)
    random = np.random.default_rng(DRAW_SEED)
    below, hits, embeddings, admitted, edges, inputs = [], 0, 0, 0.0, 0, 0
    for blocks in drawn.blocks:
        slots = []
        for layer in range(1, len(blocks)):
            ids = blocks[layer].src_ids
            slots.append(np.where(random.random(len(ids)) < chance[layer - 1][ids], 0, -1).astype(np.int32))
        left = prune(blocks, slots)
        ids = outlook.with_rows(left.blocks[0].src_ids)
        found = in_arena[ids]
        below.append(ids[~found])
        hits, inputs = hits + int(found.sum()), inputs + len(ids)
        edges += sum(len(block.indices) for block in left.blocks)
        for layer, block in enumerate(left.blocks):
            embeddings += 0 if block.splice is None else len(block.splice.hist_pos)
            if layer:
                computed = block.src_ids if block.splice is None else block.src_ids[block.splice.computed]
                admitted += outlook.settings.p_grad * float(np.count_nonzero(accepted[layer - 1][computed]))
    scale, value = drawn.count / max(1, len(drawn.blocks)), item_bytes(train)
    row_bytes, width = train.hidden * value, outlook.sizes.width * value
    moved = {"d2d": scale * ((embeddings + admitted) * row_bytes + hits * width)}
    whole = max(1.0, len(drawn.blocks) * drawn.edges), max(1.0, len(drawn.blocks) * drawn.inputs)
    return ExpectedHistory(below=below, arena_links=moved, edges_share=edges / whole[0], rows_share=inputs / whole[1])


def _held(visits: Array, num_batches: int, p_grad: float, longest: int | None) -> Array:
    """Returns f32[N], the share of the time that each node's embedding is held; some nodes at a time, since a rate takes 64 bytes."""
    found = np.empty(len(visits), np.float32)
    for low in range(0, len(found), SCORED_AT_ONCE):
        part = slice(low, low + SCORED_AT_ONCE)
        found[part] = share_of_time(np.asarray(visits[part]) / max(1, num_batches), p_grad, longest)
    return found


def _chances(outlook: Outlook, parts: int) -> tuple[list[Array], Array, list[Array]]:
    """Returns (f32[N] of each cached layer, the chance that a visit finds the node's embedding; bool[N], rows that the arena has;

    bool[N] of each cached layer, nodes whose embeddings may enter).
    """
    train, settings, sizes = outlook.case.semantic.train, outlook.settings, outlook.sizes
    layers, num_nodes = train.layers - 1, sizes.num_nodes
    counted, plan = outlook.counted, outlook.plan
    none = np.zeros(num_nodes, np.float32), np.zeros(num_nodes, bool), np.zeros(num_nodes, bool)
    if counted is None or plan is None or not layers:
        return [none[0]] * layers, none[1], [none[2]] * layers
    per_epoch, value = plan.steps_per_epoch, item_bytes(train)
    stale, first = settings.stale_steps(per_epoch), settings.first_step(per_epoch)
    # Ages are counted in steps; a history sees its own part's batches.
    per_step = max(1, plan.batches_per_step // parts)
    longest = None if stale is None else stale * per_step
    size = parse_size(settings.arena, sizes.feature_bytes // parts)
    slot_bytes, row_bytes = train.hidden * value, sizes.width * value
    least, held_bytes = 0.0, size if not settings.features else 0
    scores = None
    if settings.ranked:
        visits = BatchVisits(
            num_batches=counted.num_batches,
            visits=counted.visits,
            layer_visits=counted.layer_visits[:layers],
            layer_inputs=counted.layer_inputs[:layers],
        )
        share = share_arena(visits, settings.p_grad, longest, slot_bytes, row_bytes, size)
        least, held_bytes, scores = share.least, share.max_slots * slot_bytes, share.score
    kept = max(0.0, 1 - first / max(1, per_epoch * train.epochs))
    chances, accepted = [], []
    for layer in range(layers):
        enters = np.ones(num_nodes, bool) if scores is None else (scores[layer] >= least) & (scores[layer] > 0)
        held = _held(counted.layer_visits[layer], counted.num_batches, settings.p_grad, longest)
        held *= enters
        held *= np.float32(kept)
        chances.append(held)
        accepted.append(enters)
    room = sum(float(each.sum(dtype=np.float64)) for each in chances) * slot_bytes
    if scores is None and room > size:
        chances = [each * np.float32(size / room) for each in chances]
    in_arena = np.zeros(num_nodes, bool)
    if settings.features and outlook.order is not None:
        used = held_bytes if scores is not None else min(room, size)
        in_arena[outlook.with_rows(np.asarray(outlook.order))[: int((size - used) // max(1, row_bytes))]] = True
    return chances, in_arena, accepted
