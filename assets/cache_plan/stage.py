"""The cache plan stage: tiers first, then the segments of the disk cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphmill.assets.budgets.read import Budgets, open_budgets
from graphmill.assets.building.execution import Threads
from graphmill.assets.building.stage import Progress, Stage, Summary
from graphmill.assets.cache_plan.build import PlanTotals, plan_all
from graphmill.assets.cache_plan.config import CachePlanConfig, CachePlanTable, cache_plan_config
from graphmill.assets.cache_plan.costs import cache_plan_need
from graphmill.assets.cache_plan.page import CACHE_PLAN_PAGE
from graphmill.assets.cache_plan.segment_size import SegmentBatches, SizeLimits, choose_size
from graphmill.assets.cache_plan.summary import CACHE_PLAN_CHECKS, plan_checks, plan_numbers
from graphmill.assets.costs.needs import Need, Sizes, Speed
from graphmill.assets.features.read import open_features, require_nodes
from graphmill.assets.samples.read import open_samples
from graphmill.assets.storage.arrays import scratch_arrays
from graphmill.assets.storage.artifact import Artifact
from graphmill.assets.storage.table import FeatureTable
from graphmill.assets.storage.writer import Writer
from graphmill.kernels.hotness.ranking import rank
from graphmill.kernels.ranges import Allocate
from graphmill.kernels.rows.placement import Placement, place_rows
from graphmill.kernels.types import Array


class CachePlanStage(Stage):
    """Plans the tiers; `CACHE_PLAN` is the one instance."""

    page = CACHE_PLAN_PAGE
    name = table = "cache_plan"
    code_version = 3  # 3: members, and copies
    Table = CachePlanTable
    Semantic = CachePlanConfig
    Execution = Threads
    reads_stages = ("features", "samples", "budgets")  # features: row sizes, and nodes with rows
    says, checks = CACHE_PLAN_CHECKS, tuple(CACHE_PLAN_CHECKS)
    of_one_feature_table = True
    speed = Speed(per_second=3e6)
    needs: Mapping[str, str] = {"samples": " to lay out the rows of stored batches", "memory": " with the budgets"}

    def wanted(self, pipeline: Any) -> CachePlanConfig | None:
        """Returns the config if the pipeline has `[cache_plan]`."""
        return (
            None
            if pipeline.table("cache_plan") is None
            else cache_plan_config(pipeline.table("cache_plan"), pipeline.seed)
        )

    def need(self, semantic: CachePlanConfig, execution: Threads, sizes: Sizes) -> Need | None:
        """Returns the memory, the disk and the work of a build."""
        return cache_plan_need(semantic, execution, sizes)

    def build(
        self,
        inputs: Mapping[str, Artifact],
        semantic: CachePlanConfig,
        execution: Threads,
        writer: Writer,
        progress: Progress,
    ) -> Summary:
        """Ranks, sizes, splits, orders and counts.

        Raises:
            InputError: the disk budget is smaller than one segment of all batches needs, or than configured copies need, or a batch is
                damaged.
        """
        table, budgets = open_features(inputs["features"], verified=True), open_budgets(inputs["budgets"])
        samples = open_samples(inputs["samples"])
        visits = np.asarray(samples.access_counts())
        require_nodes(table, len(visits), inputs["samples"].label)
        placement = place_visited(visits, table, budgets, scratch_arrays(writer.scratch()))
        for name in ("slot", "device_ids", "host_ids"):
            writer.save(name, getattr(placement, name))
        asked = semantic.table
        with SegmentBatches(samples, execution.threads) as batches:
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
        table: the feature table.
        budgets: budgets of the device and the host.
        allocate: function that makes the arrays of N elements that the work needs.
    """
    order, needed = rank(visits, allocate), visits if table.row_of is None else visits[np.asarray(table.row_of) >= 0]
    left, rows = int(np.count_nonzero(needed)), []
    for budget in (budgets.device_bytes, budgets.host_bytes):
        rows.append(min(left, budget // table.row_bytes) if table.row_bytes else left)
        left -= rows[-1]
    return place_rows(order, *rows, row_of=table.row_of)


def _draw(totals: PlanTotals, writer: Writer) -> dict[str, str]:
    """Draws the figures and returns title -> file."""
    from graphmill.assets.figures.tiers import page_curves, tier_shares

    tier_shares(writer.path("tiers.png"), totals.tier_rows)
    page_curves(
        writer.path("cache_io.png"), {"ordered by node id": totals.pages_by_id, f'"{totals.order}"': totals.pages}
    )
    return {"rows by tier": "tiers.png", "disk cache pages by batch": "cache_io.png"}
