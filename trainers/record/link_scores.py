"""Scores of links: of ranks, and of the scores of edges and of pairs that are not edges; NumPy alone.

A rank among all candidates, with known edges left out, is exact: its scores have plain names, "mrr" and "hits@10". Ranks among some of the
candidates are smaller, and cannot be compared with it. Their scores name the candidates: "mrr_uniform_100", "mrr_given".

Both formulas are those of OGB's evaluator (`ogb/linkproppred/evaluate.py`): a rank is at the mean of its ties, and a link is a hit among
pairs that all links are compared with if its score is above that of the k-th best pair.
"""

from __future__ import annotations

import numpy as np

from graphmill.kernels.types import Array

HITS, SHARED_HITS = (1, 3, 10), (10, 20, 50, 100)
"""The ranks whose shares are told: of all ranks, and of those among pairs that all links are compared with."""


def rank_scores(ranks: Array, among: str = "") -> dict[str, float]:
    """Returns the mean reciprocal rank, and the share of ranks up to 1, 3 and 10.

    Args:
        ranks: f64[n], at least one, from 1 on.
        among: the candidates if they are not all, such as "given" or "uniform_100".
    """
    ending = f"_{among}" if among else ""
    hits = {f"hits@{k}{ending}": float((ranks <= k).mean()) for k in HITS}
    return {f"mrr{ending}": float((1 / ranks).mean()), **hits}


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
