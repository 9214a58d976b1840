"""The packed_chunks stage: the feature rows that each batch needs from disk, side by side (DiskGNN, section 5.2).

The plan (assets/cache_plan.py) says which rows lie in device and host memory, which in the disk cache of a segment of batches, and which
are packed with their batch. Here they get there: a group of consecutive segments is a part, and each part is built by one sequential pass
over the feature table, range by range, however many batches want a row.

Parts `segments-A-B`:
    chunks u8[bytes]      one chunk a batch, each section starting on a page of the file and padded to whole pages:
                          addresses i32[inputs], slots in the order of the inputs (kernels/slots.py);
                          places i32[c], ascending: the batch's rows of its segment's cache;
                          rows, packed, ascending by node id
    bounds i64[n+1]       byte of the file at which each chunk starts, and the end; num_cached i64[n] = c
    digests u64[n]        `chunk_digest` of each chunk: XXH64 of the XXH64 of its pages
    caches u8[bytes]      the disk cache of each segment, rows in the plan's order, padded to whole pages
    cache_bounds i64[s+1] byte of the file at which each cache starts, and the end
    cache_digests u64[p]  XXH64 of each page of the caches, since they are read by pages
    device_image, host_image [rows, F]   rows of the static tiers, stored type; in the part of segment 0 only, whose pass brings them along
The parent, for all B batches and S segments, by epoch and step:
    part_of i32[B], offsets i64[B], num_bytes i64[B], num_cached i64[B], digests u64[B]; cache_offsets i64[S], cache_bytes i64[S]

A slot on the staged tier is a row of the batch's own staging: packed rows first, then its cached rows in the order of `places`. The
topology stays in the samples, which are laid out for the same kind of read.

Peak memory of a part, N nodes, T threads: `memory` (ranges, buffers and windows; assets/dealing.py), or 2 MiB and a page for each of its
batches where that is more; 4 N bytes; 4 bytes for each stored row, 8 for those of caches and images, 8 for each page of a cache; and for
each of T + 4 threads 4 MiB and a batch with 60 bytes for each input that comes from disk.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from assets.execution import Workers
from assets.graph import open_graph
from assets.sizes import parse_size
from assets.stage import Progress, Summary
from kernels.errors import InputError

if TYPE_CHECKING:
    from assets.artifact import Artifact
    from assets.writer import Writer

GROUP_BYTES = 8 << 30
"""Rows of a group, where the table does not say how many groups there are."""

PACKED_CHECKS = ("rows are the features", "one chunk a batch", "chunks begin on pages")
"""What the stage tests."""

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
            raise InputError(problem, "a pass over the features reads and deals 1 MiB at a time, or more")

    @property
    def process_bytes(self) -> int:
        """Bytes of one process."""
        return parse_size(self.memory) // self.workers


class Group(NamedTuple):
    """Consecutive segments: low to high - 1."""

    low: int
    high: int

    @property
    def name(self) -> str:
        """The part's name."""
        return f"segments-{self.low}-{self.high - 1}"

    @staticmethod
    def of(part: str) -> Group:
        """Returns the group that a part's name says."""
        match = PART_NAME.fullmatch(part)
        assert match, f"{part!r} names no part"
        return Group(int(match[1]), int(match[2]) + 1)


class PackedStage:
    """Packs rows into chunks and segment caches; `PACKED_CHUNKS` is the one instance."""

    name = "packed_chunks"
    # 2: the images are in the first part; 3: pages of caches have digests; 4: a chunk's digest is over those of its pages
    code_version = 4
    work_unit = "MiB"
    Semantic = PackedConfig
    Execution = PackedExecution

    def inputs(self, semantic: PackedConfig) -> Mapping[str, str]:
        """Packing reads features, batches and the plan."""
        return {"graph": "graph", "samples": "samples", "cache_plan": "cache_plan"}

    def raw(self, semantic: PackedConfig) -> Mapping[str, str]:
        """Nothing from outside the store enters."""
        return {}

    def parts(self, inputs: Mapping[str, Artifact], semantic: PackedConfig) -> Sequence[str]:
        """Returns the parts' names, by segment: groups of about equally many stored rows.

        Raises:
            InputError: the graph has no features.
        """
        table, plan = open_graph(inputs["graph"]).features, inputs["cache_plan"]
        if table.row_bytes == 0:
            raise InputError(f"{inputs['graph'].label} has no features to pack", "train on a graph with features")
        segment_of, packed_ptr = plan.array("segment_of"), plan.array("packed_ptr")
        num_segments = len(plan.array("cache_ptr")) - 1
        last_batch = np.searchsorted(segment_of, np.arange(num_segments), side="right")
        rows = packed_ptr[last_batch] + plan.array("cache_ptr")[1:]  # stored up to the end of each segment
        wanted = semantic.groups or -(-int(rows[-1]) * table.row_bytes // GROUP_BYTES)
        count = min(max(1, wanted), num_segments)
        ends = np.searchsorted(rows, rows[-1] * np.arange(1, count) // count) + 1
        cuts = np.unique(np.concatenate([[0], np.minimum(ends, num_segments), [num_segments]]))
        return [Group(int(low), int(high)).name for low, high in pairwise(cuts)]

    def work(self, inputs: Mapping[str, Artifact], semantic: PackedConfig, part: str) -> int:
        """Returns the MiB of the feature table: a part passes over it once."""
        table = open_graph(inputs["graph"]).features
        return (table.num_rows * table.row_bytes >> 20) + 1

    def build(
        self,
        inputs: Mapping[str, Artifact],
        semantic: PackedConfig,
        execution: PackedExecution,
        writer: Writer,
        progress: Progress,
        part: str | None = None,
    ) -> Summary:
        """Packs a group, or puts the index over finished ones.

        Raises:
            InputError: the plan is not one of these samples, something that is read is damaged, or the disk is full.
        """
        if part is None:
            from assets.packed_index import build_index

            return build_index(inputs, self.parts(inputs, semantic), writer)
        from assets.packing import pack_group

        threads = execution.threads_each
        return pack_group(inputs, Group.of(part), threads, execution.process_bytes, writer, progress)


PACKED_CHUNKS = PackedStage()
