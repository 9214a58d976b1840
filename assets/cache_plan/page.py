"""Texts of the page of a cache plan."""

from __future__ import annotations

from collections.abc import Sequence

from graphmill.assets.building.page import Page
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.artifact import Artifact


def headline(artifacts: Sequence[Artifact]) -> str:
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
    headline=headline,
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
