"""What a cache plan takes of the machine, and the rows that it stores."""

from __future__ import annotations

from typing import Any, NamedTuple

from graphmill.assets.budgets.need import budget_bytes
from graphmill.assets.building.needs import FIGURE_BYTES, STEP_BYTES, Need, Sizes, Term, libraries
from graphmill.assets.samples.need import batches_read
from graphmill.kernels.ranges import KEYS_AT_ONCE

EXACT_SIZES = 1024
"""Segment sizes whose rows are counted (kernels/disk_cache/segment_size.py)."""

PAIRS_WITH_COPIES = 1 << 25
"""Largest number of (batch, node) pairs in a segment with copies (assets/cache_plan/layout.py)."""

RANK_BYTES = 60
"""Bytes that ranking takes for each node of a range (kernels/hotness/ranking.py)."""

PAGE_BYTES = 4096
AT_ONCE = 8
"""Batches that are read together while sizes are counted (assets/cache_plan/segment_size.py)."""


class PlannedRows(NamedTuple):
    """Rows of a cache plan, or the most that they can be.

    Attributes:
        packed, cached: rows of all chunks, and of all segment caches.
        segments: number of segments.
        exact: whether the plan exists.
    """

    packed: int
    cached: int
    segments: int
    exact: bool


def planned_rows(sizes: Sizes) -> PlannedRows | None:
    """Returns the rows of the plan that a step reads; None if it reads none."""
    if "cache_plan" in sizes.artifacts:
        found = sizes.artifacts["cache_plan"].summary["numbers"]
        return PlannedRows(found["num_packed_rows"], found["num_cached_rows"], found["num_segments"], True)
    batches, disk = batches_read(sizes), budget_bytes(sizes, "disk")
    if batches is None:
        return None
    most = batches.inputs if disk is None else min(batches.inputs, disk // max(1, sizes.row_bytes))
    return PlannedRows(most, 0, batches.count, False)


def cache_plan_need(semantic: Any, execution: Any, sizes: Sizes) -> Need | None:
    """Returns the need of the cache plan stage: of ranking, of counting the rows of segment sizes, or of planning a segment."""
    batches, nodes = batches_read(sizes), sizes.num_nodes
    if batches is None:
        return None
    bound = not batches.exact
    slots = Term(what="slots", num_bytes=4 * nodes)
    gaps = 8 * batches.count * min(batches.count, EXACT_SIZES) * (1 if batches.count <= EXACT_SIZES else 2)
    records = Term(
        what="records of batches",
        num_bytes=min(execution.threads, batches.count) * batches.most_bytes,
        key="[sampling] batch_size",
        at_most=bound,
    )
    once = sizes.id_bytes * min(batches.count, AT_ONCE) * batches.most_inputs
    counting = (
        libraries(),
        slots,
        Term(what="last uses of nodes", num_bytes=4 * nodes),
        Term(what="gaps between uses", num_bytes=gaps, key="[samples] epochs", at_most=bound),
        Term(what="ids of batches", num_bytes=2 * once, key="[sampling] batch_size", at_most=bound),
        records,
    )
    disk, each = budget_bytes(sizes, "disk"), 2 * sizes.id_bytes + 40
    # If every batch can be packed whole, a segment is one batch, and nothing is cached.
    whole = disk is not None and batches.inputs * sizes.row_bytes + 2 * PAGE_BYTES * batches.count <= disk
    pairs = batches.most_inputs if whole else min(PAIRS_WITH_COPIES, batches.inputs)
    planning = (
        libraries(STEP_BYTES + FIGURE_BYTES),
        slots,
        Term(what="last readers and state of nodes", num_bytes=8 * nodes),
        Term(
            what="rows of a segment",
            num_bytes=each * pairs,
            key="[cache_plan] segment_size",
            at_most=bound or not whole,
        ),
        records,
    )
    stored = 4 * nodes + 12 * min(batches.inputs, 2**62)
    return Need(
        name="cache_plan",
        phases=(_ranking(nodes), counting, planning),
        stored=stored,
        scratch=16 * nodes,
        stored_at_most=True,
        work=batches.inputs,
    )


def _ranking(nodes: int) -> tuple[Term, ...]:
    return (
        libraries(),
        Term(what="slots, and a test of the order", num_bytes=5 * nodes),
        Term(what="a range of nodes in order", num_bytes=RANK_BYTES * min(nodes, KEYS_AT_ONCE)),
    )
