"""The cache_plan stage: which of four levels serves every row of every stored batch, and what that will read (DiskGNN, sections 4 and 5.1).

    slot i32[N], device_ids, host_ids ids[n]       the static tiers: the nodes that most batches need, within the budgets
    segment_of i32[B]                              which segment a batch is in, B = K x batches an epoch, by epoch and step
    cache_ptr i64[S+1], cache_ids ids[m]           rows of each segment's disk cache, in the order of its file
    member_ptr i64[B+1], members i32[q]            rows of its segment's disk cache that each batch reads
    packed_ptr i64[B+1], packed_ids ids[p]         rows of each batch's chunk, ascending
    tier_rows i64[B, 4]                            rows that a batch takes from device, host, disk cache and chunk
    pages, runs, pages_by_id i64[B]                pages and page runs it reads of the disk cache; pages were it ordered by id
    tiers.png, cache_io.png                        share of rows by tier; I/O by batch before and after the ordering (Fig. 5)

A row that a batch needs comes from the tier that holds it, else from its segment's cache, else from its chunk: exactly one. The size of
a segment is the smallest whose rows fit the disk budget (kernels/segment_size.py: Algorithm 2 on exact numbers of all segments), checked
against the bytes of whole pages before anything is written. Where that reads many bytes that nobody wants, segments are longer and hold a
row several times (assets/segment_layout.py). Every number of the summary is exact: the packer writes and the trainer reads
these bytes. The disk budget counts feature bytes of all K epochs.

Samples are read three times at most, a segment at a time, each batch verified. Peak memory with N nodes, T threads, R the bytes of a
record, and P (batch, node) pairs from disk in the largest segment, of which m nodes cached, s its batches:

    16 N (slots, working memory, visits; 28 N while nodes are ranked) + T R + 8 B min(B, 1024)
    + ids of the segment 2 x 4 x (its inputs) + 12 P + m (16 ceil(s / 64) + 40)

and with copies 40 P, of segments of 2^25 pairs, instead of the last two.
Ids and features are never held for more than one segment; ids take 8 bytes instead of 4 from 2^31 nodes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from assets.budgets import Budgets, open_budgets
from assets.execution import Threads
from assets.plan_segments import Planned, plan_all
from assets.plan_summary import plan_checks, plan_numbers
from assets.segment_choice import Room, SegmentBatches, choose_size
from assets.stage import Progress, Summary
from assets.stored_samples import open_samples
from kernels.errors import InputError
from kernels.placement import Placement, place_rows
from kernels.ranking import rank
from kernels.segments import SegmentPlan
from kernels.types import Array

if TYPE_CHECKING:
    from assets.artifact import Artifact
    from assets.writer import Writer


@dataclass(frozen=True, kw_only=True)
class CachePlanTable:
    """The `[cache_plan]` table; all of it is hashed.

    Raises:
        InputError: a value is outside its range.
    """

    order: Literal["auto", "filled", "gray", "minhash", "grouped"] = "auto"
    # Of the rows of a segment's disk cache: Gray-code order of the memberships in batches, with pages filled from it or as it is;
    # DiskGNN's Algorithm 1; or with copies of a row for groups of batches. "auto" is "filled" or "grouped", which moves fewer bytes.
    segment_size: int = 0
    # Batches that share a disk cache; 0 = the fewest that the disk budget allows, for "grouped" as many as memory does.

    def __post_init__(self) -> None:
        """Checks the range."""
        if self.segment_size < 0:
            raise InputError(f"segment_size = {self.segment_size} is negative", "give 0 for the search, or a count")


@dataclass(frozen=True, kw_only=True)
class CachePlanConfig:
    """The stage's hashed configuration; `cache_plan_config` makes it."""

    table: CachePlanTable
    # The table.
    seed: int
    # Draws the permutations of "minhash"; 0 for the others, which draw nothing.


def cache_plan_config(table: CachePlanTable, seed: int) -> CachePlanConfig:
    """Returns the stage's configuration without what does not matter to it."""
    return CachePlanConfig(table=table, seed=seed if table.order == "minhash" else 0)


class CachePlanExecution(Threads):
    """How a plan is made: threads that read batches and run the kernels."""


class CachePlanStage:
    """Plans the tiers; `CACHE_PLAN` is the one instance."""

    name = "cache_plan"
    code_version = 3  # 3: members, and copies
    Semantic = CachePlanConfig
    Execution = CachePlanExecution

    def inputs(self, semantic: CachePlanConfig) -> Mapping[str, str]:
        """Reads row sizes, the batches and the budgets."""
        return {"graph": "graph", "samples": "samples", "budgets": "budgets"}

    def raw(self, semantic: CachePlanConfig) -> Mapping[str, str]:
        """Returns no digests: everything comes from the store."""
        return {}

    def build(
        self,
        inputs: Mapping[str, Artifact],
        semantic: CachePlanConfig,
        execution: CachePlanExecution,
        writer: Writer,
        progress: Progress,
    ) -> Summary:
        """Ranks, sizes, splits, orders and counts.

        Raises:
            InputError: the disk budget is smaller than one segment of all batches needs, or than copies do where they are asked
                for, or a batch is damaged.
        """
        table, budgets = inputs["graph"].table("features"), open_budgets(inputs["budgets"])
        samples = open_samples(inputs["samples"])
        visits = np.asarray(samples.access_counts())
        placement = place_visited(visits, table.row_bytes, budgets)
        for name in ("slot", "device_ids", "host_ids"):
            writer.save(name, getattr(placement, name))
        asked = semantic.table
        with SegmentBatches(samples, execution.threads) as batches:
            room = Room(row_bytes=table.row_bytes, disk_bytes=budgets.disk_bytes, segment_size=asked.segment_size)
            choice = choose_size(batches, placement.slot, visits, room, progress)
            planned = plan_all(batches, placement, choice, asked.order, semantic.seed, writer, progress)
        return Summary(
            numbers=plan_numbers(planned, placement, choice) | {"feature_bytes": table.num_rows * table.row_bytes},
            checks=plan_checks(planned, placement, choice, budgets, np.asarray(samples.num_inputs)),
            figures=_draw(planned, writer),
        )


CACHE_PLAN = CachePlanStage()


def place_visited(visits: Array, row_bytes: int, budgets: Budgets) -> Placement:
    """Places the most visited nodes within the budgets; nodes that no batch needs take no room.

    Args:
        visits: u32[N], batches that need a node.
        row_bytes: bytes of a row.
        budgets: of the device and the host.
    """
    order, left = rank(visits), int(np.count_nonzero(visits))
    rows = []
    for budget in (budgets.device_bytes, budgets.host_bytes):
        rows.append(min(left, budget // row_bytes) if row_bytes else left)
        left -= rows[-1]
    return place_rows(order, *rows)


def _draw(planned: Planned, writer: Writer) -> dict[str, str]:
    """Draws the figures and returns title -> file."""
    from assets.figures import page_curves, tier_shares

    tier_shares(writer.path("tiers.png"), planned.tier_rows)
    page_curves(
        writer.path("cache_io.png"), {"ordered by node id": planned.pages_by_id, f'"{planned.order}"': planned.pages}
    )
    return {"rows by tier": "tiers.png", "disk cache pages by batch": "cache_io.png"}


def open_placement(artifact: Artifact) -> Placement:
    """Returns the static tiers of a cache_plan artifact, mapped.

    Raises:
        InputError: it is of another stage, or lacks an array.
    """
    _require(artifact)
    return Placement(**{name: artifact.array(name) for name in ("slot", "device_ids", "host_ids")})


def open_segment_plan(artifact: Artifact) -> SegmentPlan:
    """Returns the segments of a cache_plan artifact, mapped; raises as `open_placement`."""
    _require(artifact)
    names = ("segment_of", "cache_ptr", "cache_ids", "member_ptr", "members", "packed_ptr", "packed_ids")
    return SegmentPlan(**{name: artifact.array(name) for name in names})


def _require(artifact: Artifact) -> None:
    from assets.needs import require

    arrays: dict[str, Any] = {name: {"dtype": "int32", "ndim": 1} for name in ("slot", "segment_of", "members")}
    arrays |= {name: {"dtype": "int64", "ndim": 1} for name in ("cache_ptr", "member_ptr", "packed_ptr")}
    ids = ("device_ids", "host_ids", "cache_ids", "packed_ids")
    arrays |= {name: {"dtype": ("int32", "int64"), "ndim": 1} for name in ids}
    require(artifact, {"stage": CachePlanStage.name, "arrays": arrays})
