"""Rankings of nodes, and hit ratios of caches filled from them (FGNN, section 6).

A cache of ratio a holds the first a N nodes of a ranking: hottest first, ties by smaller id. Its hit ratio over counted epochs is the share
of input rows, one for each batch and input, that it holds. A ranking by the counts of those epochs themselves is the optimum.

Similarity of two epochs (section 6.2, Table 2): with T_i the top tenth of all nodes by the visits f_i of epoch i,
sum over T_i and T_j of min(f_i, f_j), divided by the sum over T_j of f_j.

Cost: one stable sort, out of core (kernels/hotness/sorted_runs.py): 12 bytes per node that are read and written in order, and temporary
arrays of one range of nodes. Scores and visits are read at random in the order of a ranking.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from graphmill.kernels.errors import InputError
from graphmill.kernels.hotness.sorted_runs import order as ascending
from graphmill.kernels.ranges import Allocate, node_ranges
from graphmill.kernels.rng import absorb_ids, key
from graphmill.kernels.types import Array, Stream, id_dtype

TOP = 0.1  # of all nodes, in the similarity
_SIGN = np.uint64(1 << 63)
RANDOM_WORD = -2  # after the stream: no epoch and no order of reused batches shares it


def rank(score: Array, allocate: Allocate = np.zeros, out: Array | None = None) -> Array:
    """Returns ids[N], in `out` if given: the nodes by descending score ([N] integers below 2^63, or floats), ties by ascending id."""
    if score.ndim != 1 or any(_has_nan(score[low:high]) for low, high in node_ranges(len(score))):
        raise InputError(f"score is {score.dtype}{list(score.shape)} or has NaN", "give one number per node")
    return _ordered(len(score), lambda low, high: _descending(score[low:high]), allocate, out)


def random_ranking(num_nodes: int, seed: int, allocate: Allocate = np.zeros, out: Array | None = None) -> Array:
    """Returns ids[N]: a permutation that only the seed decides; `allocate` and `out` as of `rank`."""
    stream = key(seed, Stream.PRESAMPLE, RANDOM_WORD)
    return _ordered(
        num_nodes, lambda low, high: absorb_ids(stream, np.arange(low, high, dtype=np.int64)), allocate, out
    )


def _ordered(num_nodes: int, keys_of: Callable[[int, int], Array], allocate: Allocate, out: Array | None) -> Array:
    out = allocate(num_nodes, id_dtype(num_nodes)) if out is None else out
    ascending(num_nodes, keys_of, out, allocate)
    return out


def _has_nan(score: Array) -> bool:
    return score.dtype.kind == "f" and bool(np.isnan(score).any())


def _descending(score: Array) -> Array:
    """Returns u64[n] that ascend as the scores descend."""
    if score.dtype.kind != "f":
        return (-score.astype(np.int64)).view(np.uint64) ^ _SIGN
    bits = (0.0 - score.astype(np.float64)).view(np.uint64)  # both zeros become 0
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


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
    held, total = _sums_before(order, visits, sizes, np.uint64)
    return held / max(1, int(total))


def expected_hit_ratios(order: Array, rates: Array, sizes: Array) -> Array:
    """Returns f64[n]: the share of visits that caches will hold if each node is visited at an estimated rate; 0 if all rates are 0.

    Args:
        order: ids[N], hottest first.
        rates: f64[N], not negative: visits per batch.
        sizes: i64[n] nodes in the cache, each in 0..N.
    """
    held, total = _sums_before(order, rates, sizes, np.float64)
    return held / total if total > 0 else np.zeros(len(sizes))


def _sums_before(order: Array, values: Array, sizes: Array, dtype: Any) -> tuple[Array, Any]:
    """Returns (the sums of the values of the first sizes[i] nodes of an order, that of all), added one after the other."""
    held, total = np.zeros(len(sizes), dtype), np.zeros(1, dtype)
    for low, high in node_ranges(len(order)):
        sums = np.cumsum(np.concatenate([total, values[order[low:high]].astype(dtype, copy=False)]), dtype=dtype)
        inside = (sizes > low) & (sizes <= high)
        held[inside], total = sums[sizes[inside] - low], sums[-1:]
    return held, total[0]


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
    counts = np.zeros(int(visits.max(initial=0)) + 1)  # nodes by their visits
    for low, high in node_ranges(len(visits)):
        counts += np.bincount(visits[low:high], minlength=len(counts))
    level = np.arange(len(counts))
    voted = level * counts  # visits of the nodes of each count
    lost = np.append(voted[1:], 0) / num_batches  # nodes that are in a batch and have each count without it
    left = counts - voted / num_batches + lost
    # From the hottest down: nodes, and visits that find a node as hot as these when their own does not count.
    nodes, found = (np.concatenate([[0.0], np.cumsum(values[::-1])]) for values in (left, np.append(voted[1:], 0)))
    return np.interp(sizes, nodes, found) / max(1.0, found[-1])


def similarity(first: Array, second: Array, allocate: Allocate = np.zeros) -> float:
    """Returns the similarity in [0, 1] of two epochs' visits u32[N], FGNN's formula above; 1 if the second is empty."""
    size = int(cache_sizes(TOP, len(first)))
    hottest = [rank(visits, allocate)[:size] for visits in (first, second)]
    both = np.intersect1d(*hottest, assume_unique=True)
    total = int(second[hottest[1]].sum(dtype=np.uint64))
    return int(np.minimum(first[both], second[both]).sum(dtype=np.uint64)) / total if total else 1.0
