"""The cache plan stage: tiers first, then the segments of the disk cache."""

from collections.abc import Mapping, Sequence

import numpy as np

from graphmill.assets.budgets.read import Budgets, open_budgets
from graphmill.assets.building.execution import Threads
from graphmill.assets.building.page import Page
from graphmill.assets.building.stage import Building, Stage, Summary
from graphmill.assets.cache_plan.build import PlanTotals, plan_all
from graphmill.assets.cache_plan.config import CachePlanConfig, CachePlanTable, cache_plan_config
from graphmill.assets.cache_plan.costs import cache_plan_need
from graphmill.assets.cache_plan.segment_size import SegmentBatches, SizeLimits, choose_size
from graphmill.assets.cache_plan.summary import CACHE_PLAN_CHECKS, plan_checks, plan_numbers
from graphmill.assets.costs.needs import Speed
from graphmill.assets.features.read import open_features, require_nodes
from graphmill.assets.samples.read import open_samples
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.files.arrays import scratch_arrays
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.writer import Writer
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.kernels.hotness.ranking import rank
from graphmill.kernels.ranges import Allocate
from graphmill.kernels.rows.placement import Placement, place_rows
from graphmill.kernels.types import Array


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

    def build(self, building: Building[CachePlanConfig, Threads]) -> Summary:
        """Ranks, sizes, splits, orders and counts."""
        inputs, semantic, writer, progress = building.inputs, building.semantic, building.writer, building.progress
        table, budgets = open_features(inputs["features"], verified=True), open_budgets(inputs["budgets"])
        samples = open_samples(inputs["samples"])
        visits = np.asarray(samples.access_counts())
        require_nodes(table, len(visits), inputs["samples"].label)
        placement = place_visited(visits, table, budgets, scratch_arrays(writer.scratch()))
        for name in ("slot", "device_ids", "host_ids"):
            writer.save(name, getattr(placement, name))
        asked = semantic.table
        with SegmentBatches(samples, building.execution.threads) as batches:
            limits = SizeLimits(
                row_bytes=table.row_bytes, disk_bytes=budgets.disk_bytes, segment_size=asked.segment_size
            )
            choice = choose_size(batches, placement.slot, limits, progress)
            totals = plan_all(batches, placement, choice, asked.order, semantic.seed, writer, progress)
        return Summary(
            numbers=plan_numbers(totals, placement, choice) | {"feature_bytes": table.num_bytes},
            checks=plan_checks(totals, placement, choice, budgets, np.asarray(samples.num_inputs), table.num_rows),
            figures=_draw(totals, writer),
        )


CACHE_PLAN = CachePlanStage()


def place_visited(visits: Array, table: FeatureTable, budgets: Budgets, allocate: Allocate = np.zeros) -> Placement:
    """Places the most visited nodes within the budgets; nodes that no batch needs, or that have no features, take no space.

    Args:
        visits: u32[N], number of training batches that need each node.
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
