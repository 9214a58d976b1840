"""Shares the arena between embeddings and feature rows, before training: both are ranked together, by rows saved per byte.

The paper's performance policy (FreshGNN, 4.2) prefers embeddings that save much access, and lets them displace any features that they
reach. It does not define the saving of an embedding, and ranks features apart. Here both compete for the same bytes by the rows that each
saves per batch while it is held:

    feature row of v        its visits per batch, all the time
    embedding of (l, v)     r m w, where r = batches in which layer l has v, m = distinct inputs under it then

w makes inputs comparable: those under several nodes of a layer are loaded once per batch, and a part of them would be found among the
cached features anyway. So w = (inputs per batch / sum of inputs under all nodes of the layer) x (share of visits that features alone would
miss).

An embedding is not held all the time. It enters when its node is computed and stable (share p), and leaves when it is too old (after T
batches), or unstable at a hit (share 1 - p). With t = (1 - exp(-r (1 - p) T)) / (r (1 - p)), the time that it stays, it is held for the
share q = t / (t + 1 / (r p)) of the time, and costs q slots. The cut of this knapsack by falling density gives the score that an embedding
needs to enter (`least`) and the slots that all such embeddings take at a time; the other bytes stay with the hottest features.

Known limits: visits are taken as independent of each other, gradients as independent of nodes, and the saving of a hit in one layer for the
layer below is ignored. On R-MAT graphs w between 0.3 and 0.5 gave the same saving (docs/log.md).

Memory: 4 bytes per node and cached layer for the scores, and while they are made 16 per node; 56 bytes for each node that batches visit,
and for each of a layer that has inputs under it.
"""

from dataclasses import dataclass

import numpy as np

from graphmill.kernels.types import Array

SLACK = 1.1
"""Factor of the slots over those taken on average."""
SCORED_AT_ONCE = 1 << 20
"""Nodes of a layer that are scored at a time."""


@dataclass(frozen=True, kw_only=True)
class BatchVisits:
    """Counted requests of batches.

    Attributes:
        visits: numbers[N], batches that request the row of each node; 0 for nodes without features.
        layer_visits, layer_inputs: numbers[L-1, N], batches in which layer l has node v, and distinct inputs under it, summed over them.
    """

    num_batches: int
    visits: Array
    layer_visits: Array
    layer_inputs: Array


@dataclass(frozen=True, kw_only=True)
class Share:
    """The shares of an arena."""

    # Inputs that an embedding saves per batch while it is held, f32[L-1, N].
    score: Array
    # The score that is needed to enter.
    least: float
    # Slots for embeddings; they fit the arena's bytes.
    max_slots: int


def share_arena(
    counted: BatchVisits, p_grad: float, longest: int | None, embedding_bytes: int, row_bytes: int, size: int
) -> Share:
    """Shares the bytes of an arena.

    Args:
        p_grad, longest: bounds of an embedding's stay: share of entries that are stable, and t_stale in batches, None for no bound.
        embedding_bytes, row_bytes: bytes of a slot, and of a feature row in the arena.
    """
    score = _scores(counted, row_bytes, size)
    # What no batch visits saves nothing, so it does not compete.
    visited, scored = np.flatnonzero(counted.visits), np.flatnonzero(score > 0)
    rates = counted.layer_visits.reshape(-1)[scored] / counted.num_batches
    held, scores = share_of_time(rates, p_grad, longest), score.reshape(-1)[scored]
    found = counted.visits[visited] / counted.num_batches
    density = np.concatenate([found / max(1, row_bytes), scores.astype(np.float64) / embedding_bytes])
    cost = np.concatenate([np.full(len(found), float(row_bytes)), held * embedding_bytes])
    order = np.argsort(-density, kind="stable")
    taken = order[: int(np.searchsorted(np.cumsum(cost[order]), size, side="right"))]
    embeddings = taken[taken >= len(found)] - len(found)
    if not len(embeddings):
        return Share(score=score, least=float("inf"), max_slots=0)
    slots = min(int(np.ceil(SLACK * held[embeddings].sum())), size // embedding_bytes)
    return Share(score=score, least=float(scores[embeddings].min()), max_slots=slots)


def _scores(counted: BatchVisits, row_bytes: int, size: int) -> Array:
    """Returns f32[L-1, N], r m w."""
    weights = _weights(counted, counted.visits / counted.num_batches, row_bytes, size)
    score = np.empty(counted.layer_inputs.shape, np.float32)
    for layer, weight in enumerate(weights.tolist()):
        for low in range(0, len(score[layer]), SCORED_AT_ONCE):
            part = slice(low, low + SCORED_AT_ONCE)
            score[layer, part] = weight * counted.layer_inputs[layer, part] / counted.num_batches
    return score


def share_of_time(rates: Array, p_grad: float, longest: int | None) -> Array:
    """Returns f64[...], q: the share of the time that an embedding is held, from the rates of visits per batch of its node."""
    if p_grad == 0 or longest == 0:
        return np.zeros_like(rates, dtype=np.float64)
    safe = np.where(rates > 0, rates, 1.0)
    leaving = safe * (1 - p_grad)
    if longest is None:
        stays = np.divide(1.0, leaving, out=np.full_like(safe, np.inf), where=leaving > 0)
    else:
        stays = np.full_like(safe, float(longest))
        np.divide(-np.expm1(-leaving * longest), leaving, out=stays, where=leaving > 0)
    away = 1 / (safe * p_grad)
    held = np.where(np.isinf(stays), 1.0, stays / (np.where(np.isinf(stays), 1.0, stays) + away))
    return np.where(rates > 0, held, 0.0)


def _weights(counted: BatchVisits, found: Array, row_bytes: int, size: int) -> Array:
    """Returns f64[L-1], w of each layer; `found` f64[N], the visits per batch, is sorted in place."""
    found.sort()
    hottest = found[::-1]
    total = hottest.sum()
    features_alone = hottest[: size // max(1, row_bytes)].sum()
    missed = 1 - features_alone / total if total else 0.0
    under = counted.layer_inputs.sum(axis=1) / counted.num_batches
    return missed * np.divide(total, under, out=np.zeros(len(under)), where=under > 0)
