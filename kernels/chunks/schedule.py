"""Which chunk of a part comes in which step (HongTu 5.3, Algorithm 4). First version: sets as Boolean rows."""

from __future__ import annotations

from typing import Literal

import numpy as np

from kernels.chunks.cut import Chunks
from kernels.types import Array

Schedule = Literal["identity", "hongtu", "best"]


def make_schedule(
    indptr: Array, indices: Array, chunks: Chunks, *, schedule: Schedule = "best", self_term: bool = True
) -> Array:
    """Returns i32[m, n]: chunk of part i in step j."""
    m, n = chunks.num_parts, chunks.chunks_per_part
    identity = np.tile(np.arange(n, dtype=np.int32), (m, 1))
    if schedule == "identity":
        return identity
    sets = np.zeros((m, n, len(indptr) - 1), bool)
    for i in range(m):
        for k in range(n):
            nodes = chunks.nodes(i, k)
            for v in nodes:
                sets[i, k, indices[indptr[v] : indptr[v + 1]]] = True
            if self_term:
                sets[i, k, nodes] = True
    greedy = _algorithm_4(sets)
    if schedule == "hongtu" or _volume(sets, greedy) < _volume(sets, identity):
        return greedy
    return identity


def _algorithm_4(sets: Array) -> Array:
    m, n, _ = sets.shape
    first, union = np.tile(np.arange(n), (m, 1)), sets[0].copy()
    for i in range(1, m):
        left = list(range(n))
        for j in range(n):
            k = max(left, key=lambda a: (np.count_nonzero(sets[i, a] & union[j]), -a))
            first[i, j] = k
            union[j] |= sets[i, k]
            left.remove(k)
    order, left = [0], list(range(1, n))
    while left:
        order.append(max(left, key=lambda a: (np.count_nonzero(union[a] & union[order[-1]]), -a)))
        left.remove(order[-1])
    return first[:, order].astype(np.int32)


def _volume(sets: Array, schedule: Array) -> int:
    union = np.array([sets[np.arange(len(sets)), schedule[:, j]].any(0) for j in range(schedule.shape[1])])
    return int(union[0].sum() + (union[1:] & ~union[:-1]).sum())
