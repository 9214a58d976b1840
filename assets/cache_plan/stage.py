"""The cache plan stage: tiers first, then the segments of the disk cache."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from graphmill.assets.budgets.config import LEVELS
from graphmill.assets.budgets.read import Budgets, open_budgets
from graphmill.assets.building.execution import Threads
from graphmill.assets.building.page import Page
from graphmill.assets.building.stage import Building, Check, Stage, Summary
from graphmill.assets.cache_plan.build import PlanTotals, plan_all
from graphmill.assets.cache_plan.config import CachePlanConfig, CachePlanTable, EdgeBudgets, cache_plan_config
from graphmill.assets.cache_plan.costs import cache_plan_need
from graphmill.assets.cache_plan.segment_size import SegmentBatches, SegmentChoice, SizeLimits, choose_size
from graphmill.assets.costs.needs import Speed
from graphmill.assets.features.config import of_edges
from graphmill.assets.features.read import open_features, require_nodes
from graphmill.assets.samples.read import open_samples
from graphmill.assets.samples.wanted import WantedRows
from graphmill.assets.sizes import format_bytes
from graphmill.assets.sources.unread import EDGE_TABLE
from graphmill.assets.storage.files.arrays import scratch_arrays
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.writer import Writer
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.kernels.hotness.ranking import rank
from graphmill.kernels.ranges import Allocate
from graphmill.kernels.rows.pages import PAGE_BYTES
from graphmill.kernels.rows.placement import Placement, place_rows
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
    """Tests the plan against numbers counted another way: inputs (i64[B], of each batch) by the sampler, rows by the gaps between uses.

    Of inputs that share a row on disk one is counted.
    """
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


def _headline(artifacts: Sequence[Artifact]) -> str:
    """Returns the bytes that training will read from disk, and the share of the rows that comes from memory."""
    numbers = artifacts[0].summary["numbers"]
    tiers = numbers["read_bytes_by_tier"]
    memory, total = tiers["device"] + tiers["host"], max(1, sum(tiers.values()))
    read = (
        f"**{format_bytes(numbers['moved_bytes'])} read from disk**, {numbers['amplification']:.2f} per byte asked for"
    )
    return (
        f"{read}; {100 * memory / total:.0f} % of the rows from device and host; {numbers['num_segments']:,} segments"
    )


CACHE_PLAN_PAGE = Page(
    about="For every row of every stored batch, the one place that serves it: device, host, disk cache or the batch's own packed chunk. "
    "It decides what training from disk will read, to the byte, before anything is written. "
    "Look at the bytes read per byte asked for, which should be near 1, and at the share of the rows by tier.",
    docs="docs/stages/cache_plan.md",
    headline=_headline,
    first=("moved_bytes", "asked_bytes", "amplification", "disk_bytes", "disk_budget_bytes", "num_segments", "order"),
    labels={
        "moved_bytes": "read from disk (MiB)",
        "asked_bytes": "asked of the disk (MiB)",
        "amplification": "bytes read per byte asked for",
        "amplification_by_id": "bytes read per byte asked for, ordered by id",
        "disk_bytes": "stored on disk (MiB)",
        "order": "order of the disk cache",
    },
    columns={
        "segment_of": "segment of the batch",
        "tier_rows": "rows that the batch takes from device, host, disk cache and chunk",
        "pages": "pages that the batch reads of the disk cache",
        "runs": "ranges of adjacent pages among them",
        "pages_by_id": "pages it would read were the cache ordered by node id",
    },
)


class CachePlanStage(Stage):
    """Plans the tiers; `CACHE_PLAN` is the one instance."""

    page = CACHE_PLAN_PAGE
    name = table = "cache_plan"
    code_version = 3  # 3: members, and copies
    Table = CachePlanTable
    config_of = staticmethod(cache_plan_config)
    Semantic = CachePlanConfig
    Execution = Threads
    need = staticmethod(cache_plan_need)
    reads_stages = ("features", "samples", "budgets")  # features: row sizes, and nodes with rows
    says = CACHE_PLAN_CHECKS
    of_one_feature_table = True
    by_sample_set = True
    speed = Speed(per_second=3e6)
    needs: Mapping[str, str] = {"samples": " to lay out the rows of stored batches", "memory": " with the budgets"}

    def configs(self, pipeline: Any) -> Mapping[str, CachePlanConfig]:
        """Returns the config of the plan of rows of nodes, and that of rows of edges if `[memory]` has a budget for them."""
        config, edges = self.wanted(pipeline), edge_budgets(pipeline)
        if config is None:
            return {}
        return {self.name: config} | ({of_edges(self.name): replace(config, edges=edges)} if edges else {})

    def inputs(self, semantic: CachePlanConfig) -> Mapping[str, str]:
        """Returns role -> stage of the inputs; a plan of rows of edges has its budgets in its config."""
        return {name: name for name in self.reads_stages if semantic.edges is None or name != "budgets"}

    def input_table(self, semantic: CachePlanConfig) -> str | None:
        """Returns the name of the table that the plan is about, for one of rows of edges."""
        return EDGE_TABLE if semantic.edges else None

    def build(self, building: Building[CachePlanConfig, Threads]) -> Summary:
        """Ranks, sizes, splits, orders and counts."""
        inputs, semantic, writer, progress = building.inputs, building.semantic, building.writer, building.progress
        table, threads = open_features(inputs["features"], verified=True), building.execution.threads
        budgets = _budgets(semantic, inputs, table)
        wanted = WantedRows(open_samples(inputs["samples"]), table.num_rows if semantic.edges else None)
        visits, num_wanted = wanted.counted(threads, progress)
        require_nodes(table, len(visits), inputs["samples"].label)
        placement = place_visited(visits, table, budgets, scratch_arrays(writer.scratch()))
        for name in ("slot", "device_ids", "host_ids"):
            writer.save(name, getattr(placement, name))
        asked = semantic.table
        with SegmentBatches(wanted, placement.slot, threads) as batches:
            limits = SizeLimits(
                row_bytes=table.row_bytes,
                disk_bytes=budgets.disk_bytes,
                segment_size=asked.segment_size,
                keys=("edge_disk", "edge_host") if semantic.edges else SizeLimits.keys,
            )
            choice = choose_size(batches, placement.slot, limits, progress)
            totals = plan_all(batches, placement, choice, asked.order, semantic.seed, writer, progress)
            rows = num_wanted - batches.repeated
        return Summary(
            numbers=plan_numbers(totals, placement, choice) | {"feature_bytes": table.num_bytes},
            checks=plan_checks(totals, placement, choice, budgets, rows, table.num_rows),
            figures=_draw(totals, writer),
        )


CACHE_PLAN = CachePlanStage()


def edge_budgets(pipeline: Any) -> EdgeBudgets | None:
    """Returns the budgets of packed rows of edges; None if a pipeline has no such rows, or packs none."""
    memory, features = pipeline.table("memory"), pipeline.table("features")
    if memory is None or memory.edge_disk is None or features is None or features.edges is None:
        return None
    return EdgeBudgets(host=memory.edge_host, disk=memory.edge_disk)


def _budgets(semantic: CachePlanConfig, inputs: Mapping[str, Artifact], table: FeatureTable) -> Budgets:
    """Returns the bytes that each level may hold of the rows that a plan is about."""
    if semantic.edges is None:
        return open_budgets(inputs["budgets"])
    sizes: Any = {f"{level}_bytes": semantic.edges.num_bytes(level, table.num_bytes) for level in LEVELS}
    return Budgets(**sizes)


def place_visited(visits: Array, table: FeatureTable, budgets: Budgets, allocate: Allocate = np.zeros) -> Placement:
    """Places the most visited nodes within the budgets; nodes that no batch needs, or that have no features, take no space.

    Args:
        visits: u32[N], number of training batches that need each row of nodes, or of edges.
    """
    order, needed = rank(visits, allocate), visits if table.row_of is None else visits[np.asarray(table.row_of) >= 0]
    left, rows = int(np.count_nonzero(needed)), []
    for budget in (budgets.device_bytes, budgets.host_bytes):
        rows.append(min(left, budget // table.row_bytes) if table.row_bytes else left)
        left -= rows[-1]
    return place_rows(order, *rows, row_of=table.row_of)


def _draw(totals: PlanTotals, writer: Writer) -> dict[str, str]:
    from graphmill.assets.figures.tiers import page_curves, tier_shares

    tier_shares(writer.path("tiers.png"), totals.tier_rows)
    page_curves(
        writer.path("cache_io.png"), {"ordered by node id": totals.pages_by_id, f'"{totals.order}"': totals.pages}
    )
    return {"rows by tier": "tiers.png", "disk cache pages by batch": "cache_io.png"}
