"""Rows of other ranks that batches by part read, by the parts of nodes; without torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphmill.kernels.types import Array
from graphmill.trainers.recipe.course import Case
from graphmill.trainers.recipe.drawn import whole_pages
from graphmill.trainers.recipe.need import tier_rows
from graphmill.trainers.techniques.row_links import feature_place


def remote_links(case: Case, steps: Sequence[int], batches: Sequence[Array]) -> tuple[dict[str, float], float]:
    """Returns (link -> bytes of an epoch's rows besides those between ranks, rows of an epoch that other ranks send).

    Args:
        case: the training, with the parts of its nodes.
        steps: numbers of drawn batches in their sampling epoch.
        batches: ids[n] of each of them, global: the nodes whose rows it reads.
    """
    ranks, row_bytes = case.ranks, case.sizes.row_bytes
    assert case.part_of is not None and case.drawn is not None
    num_parts = int(case.part_of.max(initial=0)) + 1
    share = max(1, num_parts // ranks)
    kept = _kept(case, share)
    rows = own = remote = 0
    for step, node_ids in zip(steps, map(case.with_rows, batches), strict=True):
        rank = step % num_parts // share
        owners = np.asarray(case.part_of)[node_ids] // share
        rows += len(node_ids)
        own += int(np.count_nonzero(owners == rank))
        others = node_ids[owners != rank]
        remote += len(others) if rank not in kept else int(np.count_nonzero(~kept[rank][others]))
    links = {"h2d": rows * row_bytes}
    if feature_place(case) == "mapped":
        links["mapped"] = own * row_bytes
    elif feature_place(case) == "direct":
        links["disk"] = own * whole_pages(row_bytes)
    scale = case.drawn.count / max(1, len(batches))
    return {link: num_bytes * scale for link, num_bytes in links.items()}, remote * scale


def _kept(case: Case, share: int) -> dict[int, Array]:
    """Returns rank -> bool[N], the hottest rows of others, which it keeps; empty without a cache."""
    cached = tier_rows(case.sizes, "host")[0]
    if case.order is None or not cached:
        return {}
    hottest, found = case.with_rows(np.asarray(case.order)), {}
    owners = np.asarray(case.part_of)[hottest] // share
    for rank in range(case.ranks):
        mask = np.zeros(case.sizes.num_nodes, bool)
        mask[hottest[owners != rank][:cached]] = True
        found[rank] = mask
    return found
