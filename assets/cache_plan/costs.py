"""What a cache plan takes of the machine, the rows that it stores, and what budgets allow before they are resolved."""

from typing import Any, NamedTuple

import numpy as np

from graphmill.assets.budgets.config import AUTO
from graphmill.assets.cache_plan.config import EdgeBudgets
from graphmill.assets.cache_plan.layout import PAIRS_WITH_COPIES
from graphmill.assets.cache_plan.segment_size import AT_ONCE
from graphmill.assets.costs.needs import DRAWING, LIBRARIES, Need, Sizes, Term
from graphmill.assets.samples.config import epoch_size
from graphmill.assets.samples.costs import StoredBatches, batches_read
from graphmill.assets.sizes import format_bytes, parse_size
from graphmill.kernels.disk_cache.segment_size import EXACT_SIZES
from graphmill.kernels.errors import InputError
from graphmill.kernels.ranges import KEYS_AT_ONCE
from graphmill.kernels.rows.pages import PAGE_BYTES

RANK_BYTES = 60
"""Bytes that ranking takes for each node of a range (kernels/hotness/ranking.py)."""
MOST_SEGMENTS = 1 << 20
"""Most segments whose seeds are counted before a plan exists."""


def edge_budgets_read(sizes: Sizes) -> EdgeBudgets | None:
    """Returns the budgets of the plan of rows of edges that a step reads; None if it reads none, or one of rows of nodes."""
    if "cache_plan" in sizes.artifacts:
        found = sizes.artifacts["cache_plan"].config.get("edges")
        return EdgeBudgets(**found) if found else None
    config = sizes.configs.get("cache_plan")
    return None if config is None else config.edges


def budget_bytes(sizes: Sizes, level: str, edges: EdgeBudgets | None = None) -> int | None:
    """Returns the bytes of the level "device", "host" or "disk" of [memory]; None if "auto" is not resolved yet, or nothing is said.

    Args:
        edges: the budgets of rows of edges, if it is about these.
    """
    if edges is not None:
        return edges.num_bytes(level, sizes.feature_bytes)
    if "budgets" in sizes.artifacts:
        return int(sizes.artifacts["budgets"].summary["numbers"][f"{level}_bytes"])
    config = sizes.configs.get("budgets")
    size = AUTO if config is None else getattr(config.memory, level)
    return None if size == AUTO else parse_size(size, sizes.feature_bytes)


def budget_rows(sizes: Sizes, level: str, edges: EdgeBudgets | None = None) -> int:
    """Returns the most rows that a level may hold: those of its budget, all rows if that is not known; `edges` as in `budget_bytes`."""
    budget = budget_bytes(sizes, level, edges)
    return sizes.num_rows if budget is None else min(sizes.num_rows, budget // max(1, sizes.row_bytes))


def wanted_batches(sizes: Sizes, edges: EdgeBudgets | None) -> StoredBatches | None:
    """Returns the batches that a step reads, whose `inputs` are the rows that a plan is about; `edges` as in `budget_bytes`."""
    found = batches_read(sizes)
    return found if found is None or edges is None else found.of_edges(sizes.num_rows)


class PlannedRows(NamedTuple):
    """Rows of a cache plan, or the most that they can be.

    Attributes:
        packed, cached: rows of all chunks, and of all segment caches.
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
    edges = edge_budgets_read(sizes)
    batches, disk = wanted_batches(sizes, edges), budget_bytes(sizes, "disk", edges)
    if batches is None:
        return None
    most = batches.inputs if disk is None else min(batches.inputs, disk // max(1, sizes.row_bytes))
    return PlannedRows(most, 0, batches.count, False)


def disk_mistake(sizes: Sizes) -> InputError | None:
    """Returns the mistake of a disk budget that cannot hold even the seeds of the batches; None if it may do, or nothing is planned."""
    plan, disk = sizes.configs.get("cache_plan"), budget_bytes(sizes, "disk")
    if plan is None or disk is None or "cache_plan" in sizes.artifacts or not sizes.trains_counted:
        return None
    size = plan.table.segment_size
    needed = least_rows(sizes, size) * sizes.row_bytes
    if needed <= disk:
        return None
    what = f"segment_size = {size} needs" if size else "one disk cache for all batches needs"
    problem = f"{what} at least {format_bytes(needed)} of disk for the seeds of the batches, the budget has {format_bytes(disk)}"
    other = (
        "set segment_size = 0 in [cache_plan], or " if size and least_rows(sizes, 0) * sizes.row_bytes <= disk else ""
    )
    return InputError(problem, f"{other}set disk = {needed} or more in [memory]")


def least_rows(sizes: Sizes, size: int) -> int:
    """Returns rows that segments of `size` batches store for certain; of one segment for all batches if `size` is 0.

    A segment stores each row that its batches need, but for those of the static tiers. Seeds are among them, and those of the batches of
    one epoch differ.
    """
    samples = sizes.configs["samples"]
    each, _ = epoch_size(samples, (sizes.num_train, sizes.num_valid, sizes.num_test), 0, 0)
    total = each * samples.epochs
    size = min(size, total) or total
    if samples.plan == "parts" or not total or -(-total // size) > MOST_SEGMENTS:
        return 0
    first = np.arange(0, total, size)
    end, turn = np.minimum(first + size, total), (first // each + 1) * each
    batches = np.maximum(np.minimum(end, turn) - first, np.clip(end - turn, 0, each))
    elsewhere = sum(budget_rows(sizes, level) for level in ("device", "host")) + sizes.num_nodes - sizes.num_rows
    return int(np.maximum(0, batches * (sizes.num_train // each) - elsewhere).sum())


def cache_plan_need(semantic: Any, execution: Any, sizes: Sizes) -> Need | None:
    """Returns the need of the cache plan stage: of ranking, of counting the rows of segment sizes, or of planning a segment."""
    edges: EdgeBudgets | None = semantic.edges
    batches, nodes = wanted_batches(sizes, edges), sizes.num_nodes if edges is None else sizes.num_rows
    if batches is None:
        return None
    bound = not batches.exact
    slots = Term("slots", 4 * nodes)
    gaps = 8 * batches.count * min(batches.count, EXACT_SIZES) * (1 if batches.count <= EXACT_SIZES else 2)
    records = Term(
        "records of batches",
        min(execution.threads, batches.count) * batches.most_bytes,
        "[sampling] batch_size",
        bound=bound,
    )
    once = sizes.id_bytes * min(batches.count, AT_ONCE) * batches.most_inputs
    counting = (
        LIBRARIES,
        slots,
        Term("last uses of nodes", 4 * nodes),
        Term("gaps between uses", gaps, "[samples] epochs", bound=bound),
        Term("ids of batches", 2 * once, "[sampling] batch_size", bound=bound),
        records,
    )
    disk, each = budget_bytes(sizes, "disk", edges), 2 * sizes.id_bytes + 40
    # If every batch can be packed whole, a segment is one batch, and nothing is cached.
    whole = disk is not None and batches.inputs * sizes.row_bytes + 2 * PAGE_BYTES * batches.count <= disk
    pairs = batches.most_inputs if whole else min(PAIRS_WITH_COPIES, batches.inputs)
    planning = (
        DRAWING,
        slots,
        Term("last readers and state of nodes", 8 * nodes),
        Term("rows of a segment", each * pairs, "[cache_plan] segment_size", bound=bound or not whole),
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
        LIBRARIES,
        Term("slots, and a test of the order", 5 * nodes),
        Term("a range of nodes in order", RANK_BYTES * min(nodes, KEYS_AT_ONCE)),
    )
