"""The `[packed]` table, the settings of packing, and the segments that a part packs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from assets.building.execution import Workers
from assets.sizes import parse_size
from kernels.errors import InputError

GROUP_BYTES = 8 << 30
"""Bytes of the rows of a group of segments, if the table does not give the number of groups."""

PART_NAME = re.compile(r"segments-(\d+)-(\d+)")


@dataclass(frozen=True, kw_only=True)
class PackedConfig:
    """The `[packed]` table; the stage's hashed configuration.

    Raises:
        InputError: a value is outside its range.
    """

    # number of groups of segments; each is a part of its own, packed by one pass over the features; 0 = one per 8 GiB of stored rows
    groups: int = 0

    def __post_init__(self) -> None:
        """Checks the range."""
        if self.groups < 0:
            raise InputError(f"groups = {self.groups} is negative", "give 0 for one per 8 GiB, or more")


@dataclass(frozen=True, kw_only=True)
class PackedExecution(Workers):
    """Execution config of the stage; no byte of the chunks depends on it.

    Raises:
        InputError: a value is outside its range.
    """

    # largest number of processes that pack groups at the same time; each reads the features once per group
    workers: int = 1
    # bytes of feature rows that all processes together hold: ranges of the table, and rows that are collected for writes of large pieces
    memory: str = "512MiB"

    def __post_init__(self) -> None:
        """Checks the ranges."""
        super().__post_init__()
        if self.process_bytes < 2 << 20:
            problem = f"memory = {self.memory!r} is less than 2 MiB for each of {self.workers} workers"
            raise InputError(problem, "a pass over the features reads and distributes 1 MiB at a time, or more")

    @property
    def process_bytes(self) -> int:
        """Number of bytes of feature rows that one process holds."""
        return parse_size(self.memory) // self.workers


class SegmentRange(NamedTuple):
    """Consecutive segments: low to high - 1."""

    low: int
    high: int

    @property
    def name(self) -> str:
        """Name of the part."""
        return f"segments-{self.low}-{self.high - 1}"

    @staticmethod
    def of(part: str) -> SegmentRange:
        """Returns the range that a part's name gives."""
        match = PART_NAME.fullmatch(part)
        assert match, f"{part!r} names no part"
        return SegmentRange(int(match[1]), int(match[2]) + 1)
