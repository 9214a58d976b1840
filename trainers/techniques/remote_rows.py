"""Rows of other ranks that batches by part read, by the parts of nodes; without torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphmill.kernels.types import Array
from graphmill.trainers.recipe.forecast import Outlook
from graphmill.trainers.techniques.row_links import feature_place


def remote_links(
    outlook: Outlook, steps: Sequence[int], batches: Sequence[Array], cached: int
) -> tuple[dict[str, float], float]:
    """Returns (link -> bytes of rows besides those between ranks, rows that other ranks send).

    Args:
        outlook: the training, with the parts of its nodes.
        steps: numbers of drawn batches in their sampling epoch.
        batches: ids[n] of each of them, global: the nodes whose rows it reads.
        cached: rows of others that every rank keeps, the hottest ones.
    """
    ranks, row_bytes = outlook.case.ranks, outlook.sizes.row_bytes
    assert outlook.part_of is not None
    num_parts = int(outlook.part_of.max(initial=0)) + 1
    share = max(1, num_parts // ranks)
    kept = _kept(outlook, share, cached)
    rows = own = remote = 0
    for step, node_ids in zip(steps, map(outlook.with_rows, batches), strict=True):
        rank = step % num_parts // share
        owners = np.asarray(outlook.part_of)[node_ids] // share
        rows += len(node_ids)
        own += int(np.count_nonzero(owners == rank))
        others = node_ids[owners != rank]
        remote += len(others) if rank not in kept else int(np.count_nonzero(~kept[rank][others]))
    links = {"h2d": float(rows * row_bytes)}
    if feature_place(outlook) == "mapped":
        links["mapped"] = float(own * row_bytes)
    elif feature_place(outlook) == "direct":
        links["disk"] = float(own * -(-row_bytes // 4096) * 4096)
    return links, float(remote)


def _kept(outlook: Outlook, share: int, cached: int) -> dict[int, Array]:
    """Returns rank -> bool[N], the rows of others that it keeps; empty without a cache."""
    if outlook.order is None or not cached:
        return {}
    hottest, found = outlook.with_rows(np.asarray(outlook.order)), {}
    owners = np.asarray(outlook.part_of)[hottest] // share
    for rank in range(outlook.case.ranks):
        mask = np.zeros(outlook.sizes.num_nodes, bool)
        mask[hottest[owners != rank][:cached]] = True
        found[rank] = mask
    return found
