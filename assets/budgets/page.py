"""Texts of the page of memory budgets, and of the page of the measured numbers that they are computed from."""

from __future__ import annotations

from collections.abc import Sequence

from graphmill.assets.building.page import Page
from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.artifact import Artifact


def headline(artifacts: Sequence[Artifact]) -> str:
    """Returns the bytes of each level."""
    numbers = artifacts[0].summary["numbers"]
    levels = ", ".join(f"{level} {format_bytes(numbers[f'{level}_bytes'])}" for level in ("device", "host", "disk"))
    return f"**{levels}** for {format_bytes(numbers['feature_bytes'])} of features"


BUDGETS_PAGE = Page(
    about="How many bytes of feature rows the device, the host memory and the disk cache may hold. "
    'Caches and plans keep to these sizes, and "auto" is resolved here once, so a later run on a busier machine gets the same. '
    "Look at the rows that fit into each level, and at the arithmetic behind each size.",
    docs="docs/stages/budgets.md",
    headline=headline,
    first=("device_bytes", "host_bytes", "disk_bytes", "device_rows", "host_rows", "feature_bytes"),
    kinds=frozenset({"json"}),
)

MEASURED_PAGE = Page(
    about="What was measured on this machine into the home: its memory, and the free space of its disk. "
    'Budgets of "auto" are computed from these numbers, so that they are the same from run to run. '
    "Observe this asset after the numbers were measured again, and see whether budgets are marked as stale.",
    docs="docs/stages/budgets.md",
    kinds=frozenset({"json"}),
)
