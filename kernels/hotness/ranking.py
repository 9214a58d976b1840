"""Rankings of nodes, and hit ratios of caches filled from them (FGNN, section 6).

A cache of ratio a holds the first a N nodes of a ranking: hottest first, ties by smaller id. Its hit ratio over counted epochs is the share
of input rows, one for each batch and input, that it holds. A ranking by the counts of those epochs themselves is the optimum.

Similarity of two epochs (section 6.2, Table 2): with T_i the top tenth of all nodes by the visits f_i of epoch i,
sum over T_i and T_j of min(f_i, f_j), divided by the sum over T_j of f_j.

Cost: one stable sort; memory 24 bytes per node while it runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.errors import InputError
from kernels.rng import absorb_ids, key
from kernels.types import Array, Stream, id_dtype

TOP = 0.1  # of all nodes, in the similarity
RANDOM_WORD = -2  # after the stream: no epoch and no order of reused batches shares it


def rank(score: Array) -> Array:
    """Returns ids[N]: the nodes by descending score, ties by ascending id.

    Args:
        score: [N] integers below 2^63 or floats.

    Raises:
        InputError: the score is not a vector, or has NaN.
    """
    if score.ndim != 1 or (score.dtype.kind == "f" and np.isnan(score).any()):
        raise InputError(f"score is {score.dtype}{list(score.shape)} or has NaN", "give one number per node")
    signed = score if score.dtype.kind == "f" else score.astype(np.int64)
    return np.argsort(-signed, kind="stable").astype(id_dtype(len(score)))


def random_ranking(num_nodes: int, seed: int) -> Array:
    """Returns ids[N]: a permutation that only the seed decides."""
    keys = absorb_ids(key(seed, Stream.PRESAMPLE, RANDOM_WORD), np.arange(num_nodes, dtype=np.int64))
    return np.argsort(keys, kind="stable").astype(id_dtype(num_nodes))


def cache_sizes(ratios: Any, num_nodes: int) -> Array:
    """Returns i64: the nodes in a cache of each ratio, ratio * N rounded down."""
    return np.floor(np.asarray(ratios, np.float64) * num_nodes).astype(np.int64)


def hit_ratios(order: Array, visits: Array, sizes: Array) -> Array:
    """Returns f64[n]: the share of visits that caches of the first sizes[i] nodes of a ranking hold; 0 without visits.

    Args:
        order: ids[N], hottest first.
        visits: u32 or u64 [N], visits in the epochs in question.
        sizes: i64[n] nodes in the cache, each in 0..N.
    """
    held = np.concatenate([[0], np.cumsum(visits[order], dtype=np.uint64)])
    return held[sizes] / max(1, int(held[-1]))


def expected_hit_ratios(order: Array, rates: Array, sizes: Array) -> Array:
    """Returns f64[n]: the share of visits that caches will hold if each node is visited at an estimated rate; 0 if all rates are 0.

    Args:
        order: ids[N], hottest first.
        rates: f64[N], not negative: visits per batch.
        sizes: i64[n] nodes in the cache, each in 0..N.
    """
    held = np.concatenate([[0.0], np.cumsum(rates[order])])
    return held[sizes] / held[-1] if held[-1] > 0 else np.zeros(len(sizes))


def held_out_hit_ratios(visits: Array, num_batches: int, sizes: Array) -> Array:
    """Returns f64[n]: the share of visits that caches hold which are filled by the counts of all other batches (leave-one-out).

    A ranking by counts does better on the batches that were counted than on any others, since each of them voted for its own nodes. Here
    each batch finds the cache that the others alone would fill: its nodes stand where one visit less puts them. The average over all
    batches needs only the number of nodes of each count: a node with c visits is in a batch with probability c / B. Of nodes with equal
    counts at the edge of a cache each has the same chance.

    Args:
        visits: [N] integers, batches that visit each node.
        num_batches: B, the batches that were counted.
        sizes: i64[n] nodes in the cache, each in 0..N.
    """
    counts = np.bincount(visits).astype(np.float64)  # nodes by their visits
    level = np.arange(len(counts))
    voted = level * counts  # visits of the nodes of each count
    lost = np.append(voted[1:], 0) / num_batches  # nodes that are in a batch and have each count without it
    left = counts - voted / num_batches + lost
    # From the hottest down: nodes, and visits that find a node as hot as these when their own does not count.
    nodes, found = (np.concatenate([[0.0], np.cumsum(values[::-1])]) for values in (left, np.append(voted[1:], 0)))
    return np.interp(sizes, nodes, found) / max(1.0, found[-1])


def similarity(first: Array, second: Array, top: float = TOP) -> float:
    """Returns the similarity of two epochs' footprints, in [0, 1]: FGNN's formula above; 1 if the second is empty.

    Args:
        first, second: u32[N] visits of two epochs.
        top: share of all nodes that counts as the footprint.
    """
    size = int(cache_sizes(top, len(first)))
    hottest = [rank(visits)[:size] for visits in (first, second)]
    both = np.intersect1d(*hottest, assume_unique=True)
    total = int(second[hottest[1]].sum(dtype=np.uint64))
    return int(np.minimum(first[both], second[both]).sum(dtype=np.uint64)) / total if total else 1.0
