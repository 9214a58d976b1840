"""Rows that many batches of a sampled evaluation share, held in memory while it lasts.

An evaluation of many batches reads its hot rows again and again, each time at random past the page cache. Its batches are keyed draws and
so known before: some of them are drawn ahead, and the rows that many of them are expected to read come to memory in one pass
over the file, in order (`CachedSource`). The other rows are read batch by batch as before. No bit of a batch depends on it.

Memory: the rows, within `memory_bytes`, 8 bytes per node, and 16 for each row that is chosen from.
"""

from math import ceil

import numpy as np

from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.kernels.rows.placement import Placement
from graphmill.kernels.rows.slots import ELSEWHERE, HOST, NO_FEATURES, make_slots
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.kernels.types import id_dtype
from graphmill.trainers.rows.cache import CachedSource, Features
from graphmill.trainers.rows.direct import DirectSource

COUNTED = 64
"""Batches that are drawn to count visits."""
PASSES = 2
"""Rows are kept if that spares the bytes of so many passes over the file."""


def shared_rows(
    features: Features, sampler: AnySampler, plan: EpochPlan, memory_bytes: int, sharing: int
) -> tuple[CachedSource, int] | None:
    """Returns (a source that holds the rows which an evaluation's batches share, their number); None if that would not spare reads.

    Args:
        features: rows of a run; only a table that is read past the page cache without a cache gains.
        memory_bytes: bytes of rows that may be held.
        sharing: number of batches that read a row from which on it is held.
    """
    table, stored = features.source, features.stored
    items = [item for item in plan.batches(0) if len(item.seeds)]
    if not isinstance(table, DirectSource) or len(items) < sharing or not stored.row_bytes:
        return None
    picked = items[:: ceil(len(items) / COUNTED)]
    visits = np.zeros(stored.num_nodes, np.int32)
    for item in picked:
        visits[sampler.sample(item.key, item.seeds, transpose="none")[0].src_ids] += 1
    if stored.row_of is not None:
        visits[np.asarray(stored.row_of) < 0] = 0
    least = max(1, ceil(sharing * len(picked) / len(items)))
    chosen, count = np.flatnonzero(visits >= least), memory_bytes // stored.row_bytes
    if len(chosen) > count:  # the hottest, ties by id, in the order of the file
        chosen = np.sort(chosen[np.argsort(-visits[chosen], kind="stable")[:count]])
    spared = int(visits[chosen].sum()) * len(items) // len(picked) * max(PAGE_BYTES, stored.row_bytes)
    if not len(chosen) or spared < PASSES * stored.num_bytes:
        return None
    slot = np.full(stored.num_nodes, ELSEWHERE, np.int32)
    if stored.row_of is not None:
        slot[np.asarray(stored.row_of) < 0] = NO_FEATURES
    slot[chosen] = make_slots(HOST, np.arange(len(chosen)))
    ids = chosen.astype(id_dtype(stored.num_nodes))
    placement = Placement(slot=slot, device_ids=ids[:0], host_ids=ids)
    return CachedSource(stored, table, placement, features.device), len(chosen)
