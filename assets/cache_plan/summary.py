"""The summary of a cache plan: its numbers, and the checks that compare them with counts made another way."""

from types import MappingProxyType
from typing import Any

import numpy as np

from graphmill.assets.budgets.read import Budgets
from graphmill.assets.building.stage import Check
from graphmill.assets.cache_plan.build import PlanTotals
from graphmill.assets.cache_plan.segment_size import SegmentChoice
from graphmill.assets.sizes import format_bytes
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.kernels.rows.placement import Placement
from graphmill.kernels.rows.slots import ELSEWHERE, NO_FEATURES
from graphmill.kernels.types import Array

CACHE_PLAN_CHECKS = MappingProxyType(
    {
        "every row is in exactly one tier": "Each row of each batch comes from one tier: as many rows as inputs, counted by the "
        "sampler and by the plan.",
        "no batch reads a row twice": "No batch finds a row both in the disk cache that it reads and in its own chunk.",
        "device and host fit their budgets": "The rows of the static tiers take no more bytes than [memory] gives "
        "them.",
        "disk fits its budget": "Disk caches and packed rows take no more bytes than [memory] gives them; addresses "
        "are not counted.",
    }
)
"""Name of each of the stage's checks -> sentence about its test."""


def plan_numbers(totals: PlanTotals, placement: Placement, choice: SegmentChoice) -> dict[str, Any]:
    """Returns the numbers of the summary; all are exact."""
    rows, row_bytes = totals.tier_rows.sum(axis=0), choice.row_bytes
    asked, pages = int(rows[2] + rows[3]) * row_bytes, int(totals.pages.sum())
    moved = int(totals.packed_bytes.sum()) + pages * PAGE_BYTES
    by_id = int(totals.packed_bytes.sum()) + int(totals.pages_by_id.sum()) * PAGE_BYTES
    names = ("device", "host", "cached", "packed")
    return {
        "row_bytes": row_bytes,
        "num_batches": len(totals.tier_rows),
        "order": totals.order,
        "num_segments": totals.num_segments,
        "segment_size": choice.size,
        "segment_size_as_printed": choice.as_printed or 0,
        "rows_as_printed_ratio": choice.rows_as_printed / max(1, choice.full_rows),
        "num_device_rows": len(placement.device_ids),
        "num_host_rows": len(placement.host_ids),
        "num_cached_rows": totals.num_cached,
        "num_packed_rows": int(rows[3]),
        "num_inputs_without_features": int(totals.without_features.sum()),
        "read_bytes_by_tier": {name: int(count) * row_bytes for name, count in zip(names, rows, strict=True)},
        "asked_bytes": asked,
        "moved_bytes": moved,
        "amplification": moved / asked if asked else 1.0,
        "amplification_by_id": by_id / asked if asked else 1.0,
        "num_pages": pages,
        "num_page_runs": int(totals.runs.sum()),
        "num_pages_by_id": int(totals.pages_by_id.sum()),
        "disk_bytes": totals.disk_bytes,
        "disk_budget_bytes": choice.disk_budget,
        "full_packing_bytes": choice.full_rows * row_bytes,
    }


def plan_checks(
    totals: PlanTotals, placement: Placement, choice: SegmentChoice, budgets: Budgets, num_inputs: Array, num_rows: int
) -> list[Check]:
    """Tests the plan against numbers counted another way: inputs (i64[B], of each batch) by the sampler, rows by the gaps between uses."""
    held = [len(ids) * choice.row_bytes for ids in (placement.device_ids, placement.host_ids)]
    given, used, budget = [budgets.device_bytes, budgets.host_bytes], totals.disk_bytes, budgets.disk_bytes
    details: tuple[tuple[bool, str, dict[str, int]], ...] = (
        _covered(totals, placement, choice, num_inputs, num_rows),
        (
            totals.overlaps == 0,
            f"{totals.overlaps:,} rows lie in a batch's chunk and in the disk cache that it reads, "
            f"of {int(totals.tier_rows[:, 2:].sum()):,} from disk",
            {"rows read twice": totals.overlaps, "allowed twice": 0},
        ),
        (
            held[0] <= given[0] and held[1] <= given[1],
            f"{format_bytes(held[0])} of {format_bytes(given[0])} on the device, "
            f"{format_bytes(held[1])} of {format_bytes(given[1])} on the host",
            {"device, bytes": held[0], "device budget, bytes": given[0], "host, bytes": held[1], "host budget, bytes": given[1]},
        ),
        (
            used <= budget,
            f"{format_bytes(used)} of {format_bytes(budget)} on disk, "
            f"{format_bytes(choice.full_rows * choice.row_bytes)} if every row were packed with every batch",
            {"disk, bytes": used, "disk budget, bytes": budget},
        ),
    )  # fmt: skip
    return [
        Check(name=name, passed=passed, detail=detail, numbers=numbers)
        for name, (passed, detail, numbers) in zip(CACHE_PLAN_CHECKS, details, strict=True)
    ]


def _covered(
    totals: PlanTotals, placement: Placement, choice: SegmentChoice, num_inputs: Array, num_rows: int
) -> tuple[bool, str, dict[str, int]]:
    """Tests that every row of every batch and of the table has its place: (result, sentence, numbers)."""
    other = totals.tier_rows.sum(axis=1) + totals.without_features != num_inputs
    wrong = int(np.count_nonzero(other | (totals.tier_rows[:, 2:].sum(axis=1) != choice.pairs)))
    stored = totals.num_cached + int(totals.tier_rows[:, 3].sum())
    without = int(np.count_nonzero(placement.slot == NO_FEATURES))
    on_disk = int(np.count_nonzero(placement.slot == ELSEWHERE))
    places = len(placement.device_ids) + len(placement.host_ids) + on_disk
    rows_fit = stored <= choice.full_rows if totals.order == "copies" else stored == choice.rows
    sound = wrong == 0 and rows_fit and places == num_rows == len(placement.slot) - without
    detail = (
        f"{wrong:,} of {len(num_inputs):,} batches have other rows than inputs; {stored:,} rows stored, {choice.rows:,} counted; "
        f"{places:,} rows have a place, the table has {num_rows:,}"
    )
    return sound, detail, {"batches with other rows": wrong, "rows with a place": places, "rows of the table": num_rows}
