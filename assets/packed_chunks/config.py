"""The `[packed]` table, the settings of packing, and the segments that a part packs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from graphmill.assets.building.execution import MOST_THREADS, Workers
from graphmill.assets.building.keys import Checked, KeyProblem, within
from graphmill.assets.sizes import parse_size

GROUP_BYTES = 8 << 30
"""Bytes of the rows of a group of segments, if the table does not give the number of groups."""
STATIC_TIERS = "static-tiers"
"""Name of that part."""
PART_NAME = re.compile(r"segments-(\d+)-(\d+)")


@dataclass(frozen=True, kw_only=True)
class PackedConfig(Checked):
    """The `[packed]` table; the stage's hashed configuration."""

    # number of groups of segments; each is a part of its own, packed by one pass over the features; 0 = one per 8 GiB of stored rows
    groups: int = field(default=0, metadata=within(0))
    # order of the rows of a chunk: "nodes" = by id; "reads" = rows that embeddings of earlier steps make needless stand last, for "fresh"
    # and "fresh-distributed"
    order: Literal["nodes", "reads"] = field(default="nodes", metadata={"hashed": "unless default"})
    # whether the rows are those of edges
    of_edges: bool = field(default=False, metadata={"key": False, "hashed": "unless default"})


@dataclass(frozen=True, kw_only=True)
class PackedExecution(Workers):
    """Execution config of the stage; no byte of the chunks depends on it."""

    # largest number of processes that pack groups at the same time; each reads the features once per group
    workers: int = field(default=1, metadata=within(1, MOST_THREADS))
    # bytes of feature rows that all processes together hold: ranges of the table, and rows that are collected for writes of large pieces
    memory: str = "512MiB"

    def problems(self) -> Iterator[KeyProblem]:
        """Yields too little memory for a pass over the features, which reads and distributes 1 MiB at a time, or more."""
        if self.workers > 0 and self.process_bytes < 2 << 20:
            yield KeyProblem(
                "memory", f"memory = {self.memory!r} is less than 2 MiB for each of {self.workers} workers"
            )

    @property
    def process_bytes(self) -> int:
        """Number of bytes of feature rows that one process holds."""
        return parse_size(self.memory) // self.workers


class SegmentRange(NamedTuple):
    """Consecutive segments: low to high - 1; none for the part that has the static tiers alone."""

    low: int
    high: int

    @property
    def name(self) -> str:
        """Name of the part."""
        return f"segments-{self.low}-{self.high - 1}" if self.high > self.low else STATIC_TIERS

    @staticmethod
    def of(part: str) -> SegmentRange:
        """Returns the range that a part's name gives."""
        if part == STATIC_TIERS:
            return SegmentRange(0, 0)
        match = PART_NAME.fullmatch(part)
        assert match, f"{part!r} names no part"
        return SegmentRange(int(match[1]), int(match[2]) + 1)
