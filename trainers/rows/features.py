"""The feature rows of a run: the table, what training gathers from, and the device that holds cached rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from assets.storage.table import FeatureTable
from kernels.types import Array
from trainers.devices.protocol import Device
from trainers.rows.cache import CachedSource
from trainers.rows.source import FeatureSource


@dataclass(frozen=True, kw_only=True)
class Features:
    """Rows of a run.

    Attributes:
        stored: the table as it lies in its file.
        table: every row, uncached and without a link; evaluation reads it. A `TableSource`, but where ranks have parts of the rows.
        source: what training gathers from.
        device: holds the cached rows, and the work while a workspace is set.
        record: what the cache is, for run.json; empty without one.
        fill: makes a cached source from an order of hotness (ids[N], hottest first) within the run's budgets, for a technique that counts
            visits itself; None where there are no budgets, or the cache is filled already.
    """

    stored: FeatureTable
    table: Any
    source: FeatureSource
    device: Device
    record: dict[str, Any] = field(default_factory=dict)
    fill: Callable[[Array], CachedSource] | None = None
