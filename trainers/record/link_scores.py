"""Scores of links: of ranks, and of the scores of edges and of pairs that are not edges; NumPy alone.

A rank among all candidates, with known edges left out, is exact: its scores have plain names, "mrr" and "hits@10". Ranks among some of the
candidates are smaller, and cannot be compared with it. Their scores name the candidates: "mrr_uniform_100", "mrr_given".
"""

from __future__ import annotations

import numpy as np

from graphmill.kernels.types import Array

HITS = (1, 3, 10)


def rank_scores(ranks: Array, among: str = "") -> dict[str, float]:
    """Returns the mean reciprocal rank, and the share of ranks up to 1, 3 and 10.

    Args:
        ranks: f64[n], at least one, from 1 on.
        among: the candidates if they are not all, such as "given" or "uniform_100".
    """
    ending = f"_{among}" if among else ""
    hits = {f"hits@{k}{ending}": float((ranks <= k).mean()) for k in HITS}
    return {f"mrr{ending}": float((1 / ranks).mean()), **hits}


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
