"""Scores of links: of ranks, of lists of the best ends, and of the scores of edges and of pairs that are not edges; NumPy alone.

A rank among all candidates, with known edges left out, is exact: its scores have plain names, "mrr" and "hits@10". Ranks among some of the
candidates are smaller, and cannot be compared with it. Their scores name the candidates: "mrr_uniform_100", "mrr_given".

A list is that of a node's candidates, the best first, without the ends that are known from other links than those that are scored, as a
user is shown what is new. A link's place in it follows from its exact rank, from which the node's other scored links are left out as well:
the j-th best of them, from 0, stands at its rank + j. Links of equal scores are at the mean of their ranks, so a model of one score for all
has the scores of the middle of the list. A node without links to score has no list, and is in no mean.

    recall@k   share of a node's links among the first k of its list
    ndcg@k     sum of 1 / log2(1 + place) of its links among the first k, over the sum if they stood first (Jarvelin and Kekalainen, 2002)
    hit@k      whether one of its links is among the first k

Each is the mean over nodes. Recall and gain are those of RecBole and, without ties, scikit-learn.

The formulas of ranks are those of OGB's evaluator (`ogb/linkproppred/evaluate.py`): a rank is at the mean of its ties, and a link is a hit
among pairs that all links are compared with if its score is above that of the k-th best pair.
"""

from __future__ import annotations

import numpy as np

from graphmill.kernels.types import Array

HITS, SHARED_HITS = (1, 3, 10), (10, 20, 50, 100)
"""The ranks whose shares are told: of all ranks, and of those among pairs that all links are compared with."""

LISTS = (10, 20)
"""Lengths of the lists that are scored."""


def rank_scores(ranks: Array, among: str = "") -> dict[str, float]:
    """Returns the mean reciprocal rank, and the share of ranks up to 1, 3 and 10.

    Args:
        ranks: f64[n], at least one, from 1 on.
        among: the candidates if they are not all, such as "given" or "uniform_100".
    """
    ending = f"_{among}" if among else ""
    hits = {f"hits@{k}{ending}": float((ranks <= k).mean()) for k in HITS}
    return {f"mrr{ending}": float((1 / ranks).mean()), **hits}


def list_scores(ranks: Array, lists: Array) -> dict[str, float]:
    """Returns the scores of lists, by name: "recall@10", "ndcg@10" and "hit@10", and those of 20.

    Args:
        ranks: f64[n], at least one: the rank of each link, from 1 on, without the other links of its list.
        lists: int[n], the list of each link.
    """
    order = np.lexsort((ranks, lists))
    _, first, number, count = np.unique(lists[order], return_index=True, return_inverse=True, return_counts=True)
    place = ranks[order] + np.arange(len(ranks)) - first[number]
    found = {}
    for k in LISTS:
        among = np.where(place <= k, 1.0, 0.0)
        hits, gains = (np.bincount(number, each) for each in (among, among / np.log2(1 + place)))
        means = hits / count, gains / _best_gains(count, k), hits > 0
        found |= {
            f"{name}@{k}": float(each.mean()) for name, each in zip(("recall", "ndcg", "hit"), means, strict=True)
        }
    return found


def list_chance(metric: str, lists: Array, size: float) -> float:
    """Returns the expected score of lists in an order that is drawn at random; int[n] as of `list_scores`, `size` candidates each."""
    name, k = metric.split("@")
    count, length = np.unique(lists, return_counts=True)[1], min(int(k), size)
    if name == "recall":
        return length / size
    if name == "hit":  # of one after the other none is among the first k
        missed = np.cumprod(np.maximum(0, 1 - length / np.maximum(1, size - np.arange(count.max()))))
        return float(1 - missed[count - 1].mean())
    every = _best_gains(np.array([int(length)]), int(k))
    return float(np.minimum(1, count / size * every / _best_gains(count, int(k))).mean())


def _best_gains(count: Array, k: int) -> Array:
    """Returns f64[n], the sums of gains of int[n] links that stand first in lists of which the first k count."""
    return np.cumsum(1 / np.log2(2 + np.arange(k)))[np.minimum(count, k) - 1]


def shared_ranks(own: Array, others: Array) -> Array:
    """Returns f64[n], the rank of each score float[n] among scores float[k] that all are compared with, the last one of its ties."""
    return 1.0 + len(others) - np.searchsorted(np.sort(others), own, "left")


def shared_scores(ranks: Array) -> dict[str, float]:
    """Returns the share of ranks f64[n] up to 10, 20, 50 and 100 among pairs that all links are compared with."""
    return {f"hits@{k}_given": float((ranks <= k).mean()) for k in SHARED_HITS}


def pair_scores(positive: Array, negative: Array) -> dict[str, float]:
    """Returns the area under the ROC curve and the average precision of scores, ties counted half and as one threshold.

    Args:
        positive: float[p], scores of edges; negative: float[q], scores of other pairs; at least one each.
    """
    others = np.sort(negative)
    lower, not_higher = (np.searchsorted(others, positive, side).astype(np.float64) for side in ("left", "right"))
    area = (lower + not_higher).mean() / (2 * len(others))
    scores = np.concatenate([positive, negative])
    order = np.argsort(-scores, kind="stable")
    last = np.flatnonzero(np.diff(scores[order], append=np.nan) != 0)  # of each threshold
    right = np.cumsum(order < len(positive))[last]
    precision = right / (last + 1)
    return {"auc": float(area), "ap": float((np.diff(right, prepend=0) * precision).sum() / len(positive))}
