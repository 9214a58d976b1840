"""The feature rows of a run: the table, the source of training rows, and the device that holds cached rows."""

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
    """The feature rows of a run.

    Attributes:
        stored: the table of the file.
        table: every row, uncached and without a link; evaluation reads it. A `TableSource`, unless ranks have parts of the rows.
        source: the source that training gathers from.
        device: the device that holds the cached rows, and the work while a workspace is set.
        record: facts about the cache, for run.json; empty without a cache.
        fill: function that makes a cached source from an order of hotness (ids[N], hottest first) within the run's budgets, for a technique
            that counts visits itself; None without budgets, or if the cache is filled already.
    """

    stored: FeatureTable
    table: Any
    source: FeatureSource
    device: Device
    record: dict[str, Any] = field(default_factory=dict)
    fill: Callable[[Array], CachedSource] | None = None
