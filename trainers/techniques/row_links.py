"""Bytes over links that bring the rows of a batch from a table, from caches or from stored batches, by drawn batches; without torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import NamedTuple

import numpy as np

from graphmill.assets.samples.read import open_samples
from graphmill.kernels.types import Array
from graphmill.trainers.batches.stored import batch_uses
from graphmill.trainers.recipe.costs.course import Case
from graphmill.trainers.recipe.costs.memory import tier_rows

BEHIND, DEVICE, HOST = 0, 1, 2
"""Places of a row: the table, the device's cache, the host's cache."""


class StoredCounts(NamedTuple):
    """Counts of a training's stored batches, per epoch.

    Attributes:
        num_bytes: bytes of their records.
    """

    inputs: float
    edges: float
    num_bytes: float


def stored_counts(case: Case) -> StoredCounts | None:
    """Returns the counts of a training's stored batches; None if they are drawn, or not stored yet."""
    artifact, plan = case.artifacts.get("samples"), case.plan
    if artifact is None or plan is None or not case.stored:
        return None
    samples, epochs = open_samples(artifact, parts=()), case.semantic.train.epochs
    times = batch_uses(plan, epochs, samples) / epochs
    edges = np.asarray(samples.num_edges).sum(axis=1)
    totals = (np.asarray(each) * times for each in (samples.num_inputs, edges, samples.num_bytes))
    return StoredCounts(*(float(total.sum()) for total in totals))


def epoch_inputs(case: Case) -> float:
    """Returns the number of input rows of an epoch, before anything is pruned: exact of stored batches, else by the drawn ones."""
    stored = stored_counts(case)
    return stored.inputs if stored else _drawn(case).inputs * _drawn(case).count


def epoch_edges(case: Case) -> float:
    """Returns the number of edges of an epoch, likewise."""
    stored = stored_counts(case)
    return stored.edges if stored else _drawn(case).edges * _drawn(case).count


def table_links(case: Case, device_rows: int | None = None) -> dict[str, float]:
    """Returns link -> bytes of an epoch's input rows, from the table and the caches before it; arguments as in `placed`."""
    drawn = _drawn(case)
    found = rows_links(case, (blocks[0].src_ids for blocks in drawn.blocks), device_rows)
    scale = epoch_inputs(case) / max(1.0, drawn.inputs * len(drawn.blocks))
    return {link: num_bytes * scale for link, num_bytes in found.items()}


def rows_links(case: Case, batches: Iterable[Array], device_rows: int | None = None) -> dict[str, float]:
    """Returns link -> bytes of rows, from the table and the caches before it.

    Args:
        batches: ids[n] of each batch, global: the nodes whose rows are read.
        device_rows: as in `placed`.
    """
    tier, row_bytes, where = placed(case, device_rows), case.sizes.row_bytes, case.feature_place
    found: dict[str, float] = {"disk": 0.0, "mapped": 0.0, "h2d": 0.0, "d2d": 0.0}
    for node_ids in map(case.with_rows, batches):
        behind = node_ids if tier is None else node_ids[tier[node_ids] == BEHIND]
        on_device = 0 if tier is None else int(np.count_nonzero(tier[node_ids] == DEVICE))
        found["h2d"] += (len(node_ids) - on_device) * row_bytes
        found["d2d"] += on_device * row_bytes
        if where == "mapped":
            found["mapped"] += len(behind) * row_bytes
        elif where == "direct":
            rows = behind if case.row_of is None else case.row_of[behind]
            # Rows of a smaller graph share pages that those of the whole one do not.
            found["disk"] += len(rows) * whole_pages(row_bytes) if case.stand_in else pages_of(rows, row_bytes)
    return found


def placed(case: Case, device_rows: int | None = None) -> Array | None:
    """Returns u8[N], the place of each node's row; None if nothing is cached.

    Args:
        device_rows: rows of a device that has fewer of them than the budget says, whose other rows come from the table; None = all.
    """
    if case.order is None:
        return None
    tier = by_hotness(case)
    if case.execution.features == "memory":
        tier[tier == HOST] = BEHIND
    if device_rows is not None:
        fewer = case.with_rows(np.asarray(case.order))[:device_rows]
        tier[tier == DEVICE] = BEHIND
        tier[fewer] = DEVICE
    return tier


def by_hotness(case: Case) -> Array:
    """Returns u8[N], the place of each node's row if the hottest ones fill the device's cache and the next ones the host's."""
    device, host = (tier_rows(case.sizes, level)[0] for level in ("device", "host"))
    hottest = case.with_rows(np.asarray(case.order))
    found = np.full(case.sizes.num_nodes, BEHIND, np.uint8)
    found[hottest[:device]], found[hottest[device : device + host]] = DEVICE, HOST
    return found


def added(*parts: Mapping[str, float]) -> dict[str, float]:
    """Returns the sums of several counts by link."""
    found: dict[str, float] = {}
    for part in parts:
        for link, num_bytes in part.items():
            found[link] = found.get(link, 0.0) + num_bytes
    return found


def _drawn(case: Case):
    assert case.drawn is not None, "the technique samples"
    return case.drawn


def whole_pages(row_bytes: int, page_bytes: int = 4096) -> int:
    """Returns the bytes of the pages that a row takes on its own."""
    return ceil(row_bytes / page_bytes) * page_bytes


def pages_of(rows: Array, row_bytes: int, page_bytes: int = 4096) -> int:
    """Returns the bytes of the distinct pages in which rows of a table lie.

    Args:
        rows: ids[n], rows of the table.
        page_bytes: bytes of a page.
    """
    if not len(rows) or not row_bytes:
        return 0
    first = np.asarray(rows, np.int64) * row_bytes // page_bytes
    last = (np.asarray(rows, np.int64) * row_bytes + row_bytes - 1) // page_bytes
    pages = np.concatenate([first + each for each in range(ceil(row_bytes / page_bytes) + 1)])
    pages = pages[pages <= np.tile(last, ceil(row_bytes / page_bytes) + 1)]
    return len(np.unique(pages)) * page_bytes
