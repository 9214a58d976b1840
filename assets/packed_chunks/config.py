"""The `[packed]` table, how packing runs, and which batches a part packs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from assets.building.execution import Workers
from assets.sizes import parse_size
from kernels.errors import InputError

GROUP_BYTES = 8 << 30
"""Rows of a group, where the table does not say how many groups there are."""

PART_NAME = re.compile(r"segments-(\d+)-(\d+)")


@dataclass(frozen=True, kw_only=True)
class PackedConfig:
    """The `[packed]` table; the stage's hashed configuration.

    Raises:
        InputError: a value is outside its range.
    """

    # Parts that are packed for themselves, each with one pass over the features; 0 = one for every 8 GiB of stored rows.
    groups: int = 0

    def __post_init__(self) -> None:
        """Checks the range."""
        if self.groups < 0:
            raise InputError(f"groups = {self.groups} is negative", "give 0 for one a 8 GiB, or more")


@dataclass(frozen=True, kw_only=True)
class PackedExecution(Workers):
    """How chunks are packed; no byte of them depends on this.

    Raises:
        InputError: a value is outside its range.
    """

    # Processes that pack groups side by side, at most; each reads the features once a group.
    workers: int = 1
    # Features in memory at a time, of all processes together: ranges of the table, and what is collected to be written in large pieces.
    memory: str = "512MiB"

    def __post_init__(self) -> None:
        """Checks the ranges."""
        super().__post_init__()
        if self.process_bytes < 2 << 20:
            problem = f"memory = {self.memory!r} is less than 2 MiB for each of {self.workers} workers"
            raise InputError(problem, "a pass over the features reads and distributes 1 MiB at a time, or more")

    @property
    def process_bytes(self) -> int:
        """Bytes of one process."""
        return parse_size(self.memory) // self.workers


class SegmentRange(NamedTuple):
    """Consecutive segments: low to high - 1."""

    low: int
    high: int

    @property
    def name(self) -> str:
        """The part's name."""
        return f"segments-{self.low}-{self.high - 1}"

    @staticmethod
    def of(part: str) -> SegmentRange:
        """Returns the range that a part's name says."""
        match = PART_NAME.fullmatch(part)
        assert match, f"{part!r} names no part"
        return SegmentRange(int(match[1]), int(match[2]) + 1)
