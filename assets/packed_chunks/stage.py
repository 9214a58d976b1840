"""The packed chunks stage: its parts, and their builds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from graphmill.assets.building.page import Page
from graphmill.assets.building.stage import Building, FanOut, Summary
from graphmill.assets.cache_plan.costs import budget_rows, edge_budgets_read, planned_rows, wanted_batches
from graphmill.assets.cache_plan.read import open_segment_plan
from graphmill.assets.cache_plan.stage import edge_budgets
from graphmill.assets.costs.needs import DRAWING, LIBRARIES, WORKER_BYTES, Need, Sizes, Speed, Term
from graphmill.assets.features.config import of_edges
from graphmill.assets.features.read import open_features
from graphmill.assets.packed_chunks.config import GROUP_BYTES, STATIC_TIERS, PackedConfig, PackedExecution, SegmentRange
from graphmill.assets.packed_chunks.distribute import MOST_BUFFER_BYTES, WAITING_THREADS, BufferSizes
from graphmill.assets.samples.read import StoredOrder
from graphmill.assets.sizes import format_bytes
from graphmill.assets.sources.unread import EDGE_TABLE
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.require import require
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.pages import PAGE_BYTES


def _headline(artifacts: Sequence[Artifact]) -> str:
    """Returns the number and bytes of the chunks, and the bytes of the disk caches."""
    numbers = artifacts[0].summary["numbers"]
    chunks, caches = (format_bytes(numbers[name]) for name in ("chunk_bytes", "cache_bytes"))
    segments = f"{numbers['num_segments']:,} segment" + ("s" if numbers["num_segments"] != 1 else "")
    return f"**{numbers['num_batches']:,} chunks, {chunks}**, and disk caches of {segments}, {caches}"


PACKED_CHUNKS_PAGE = Page(
    about="The feature rows that each batch needs from disk, written next to each other, beside the disk cache of each segment of batches. "
    "Training from disk then reads a few long ranges per batch in place of thousands of single rows. "
    "Look at the sizes of chunks and caches, which are what packing costs on disk, and at the largest chunk, which a queue has to hold.",
    docs="docs/stages/packed_chunks.md",
    headline=_headline,
    first=("num_batches", "chunk_bytes", "cache_bytes", "largest_chunk_bytes", "packed_rows", "cached_rows"),
    labels={"chunk_bytes": "chunks (MiB)", "cache_bytes": "caches (MiB)"},
    columns={
        "part_of": "part that holds the chunk of the batch",
        "offsets": "byte of the part's file at which the chunk starts",
        "num_bytes": "bytes of the chunk",
        "num_cached": "rows that the batch reads of its segment's cache",
        "digests": "digest of the chunk",
    },
)


BLOCK_BYTES = 1 << 20

PAIR_BYTES = 60
"""Bytes that a thread takes for each input of a batch that comes from disk, while it finds slots."""


def packed_need(semantic: Any, execution: Any, sizes: Sizes) -> Need | None:
    """Returns the need of the packed chunks stage: of the processes that pack groups side by side, at their fullest."""
    edges, row = edge_budgets_read(sizes), sizes.row_bytes
    batches, plan, nodes = (
        wanted_batches(sizes, edges),
        planned_rows(sizes),
        sizes.num_rows if edges else sizes.num_nodes,
    )
    if batches is None or plan is None:
        return None
    placed = budget_rows(sizes, "device", edges) + budget_rows(sizes, "host", edges)
    stored_rows = plan.packed + plan.cached
    groups = min(max(1, semantic.groups or -(-stored_rows * row // GROUP_BYTES)), max(1, plan.segments))
    # Batches of different parts are never of one group, and the static tiers then have a pass of their own.
    passes = groups + (batches.parts if batches.parts > 1 else 0)
    workers, bound = min(execution.workers, passes), not plan.exact
    buffers, count = BufferSizes.of(execution.process_bytes), -(-batches.count // groups)
    heads = 4 * batches.inputs + 2 * PAGE_BYTES * batches.count
    # What a chunk holds on average; a chunk that is larger than its share of the buffers is written in pieces.
    chunk = (heads + plan.packed * row) // max(1, batches.count) + PAGE_BYTES
    share = max(PAGE_BYTES, min(MOST_BUFFER_BYTES, buffers.buffer_bytes // max(1, count)))
    packed, ordered = -(-plan.packed // groups), semantic.order == "reads"
    spans = min(buffers.span_bytes, (placed + -(-plan.cached // groups) + ordered * packed) * row)
    most = min(batches.most_inputs, stored_rows)
    busy = execution.threads_each + WAITING_THREADS
    listed = (1 + 3 * ordered) * packed + 2 * (placed + -(-plan.cached // groups))
    words = 8 * -(-(heads + stored_rows * row) // (groups * PAGE_BYTES))
    chances = 4 * (1 + batches.layers) * sizes.num_nodes * ordered
    each = (
        Term("two ranges of the features", min(2 * buffers.range_bytes, sizes.feature_bytes), "[packed] memory"),
        Term("buffers of chunks", count * min(chunk, share), bound=bound),
        Term("rows in the order of caches and images", spans, bound=bound),
        Term("lists of rows", 4 * listed + words + 4 * nodes * (sizes.num_rows < nodes), "[packed] groups", bound),
        Term("slots of nodes", 4 * nodes),
        *([Term("chances of embeddings", chances, "[packed] order")] if ordered else []),
        Term("batches and pieces of the threads", busy * (BLOCK_BYTES + batches.most_bytes + PAIR_BYTES * most), bound=bound),
    )  # fmt: skip
    processes = () if workers == 1 else (Term(f"{workers} processes that pack", workers * WORKER_BYTES),)
    stored = heads + (stored_rows + placed) * row + PAGE_BYTES * (batches.count + plan.segments)
    return Need(
        name="packed_chunks",
        phases=((LIBRARIES, *processes, *(term.times(workers) for term in each)), (DRAWING,)),
        stored=stored,
        stored_at_most=bound,
        work=passes * sizes.feature_bytes + stored,
    )


class PackedStage(FanOut):
    """Packs rows into chunks and segment caches; `PACKED_CHUNKS` is the one instance."""

    page = PACKED_CHUNKS_PAGE
    name = "packed_chunks"
    # 2: the images are in the first part; 3: pages of caches have digests; 4: a chunk's digest is over those of its pages;
    # 5: pages of chunks have digests
    code_version = 5
    work_unit = "MiB"
    speed = Speed(per_second=500e6)
    table = "packed"
    Table = Semantic = PackedConfig
    Execution = PackedExecution
    need = staticmethod(packed_need)
    reads_stages = ("features", "samples", "cache_plan")
    says: Mapping[str, str] = {
        "rows are the features": "Rows drawn from chunks, caches and images are those of the feature table, byte by "
        "byte.",
        "one chunk a batch": "There are as many chunks as batches in the cache plan.",
        "chunks begin on pages": "Every chunk is whole pages of the disk, so that it can be read past the page cache.",
    }
    of_one_feature_table = True
    by_sample_set = True
    needs: Mapping[str, str] = {"cache_plan": ", which says what is packed"}

    def wanted(self, pipeline: Any) -> PackedConfig | None:
        """Returns the config if the pipeline has `[packed]`, or a training reads packed chunks."""
        if pipeline.table("cache_plan") is None or (
            pipeline.table("packed") is None and not pipeline.is_read(self.name)
        ):
            return None
        return pipeline.table("packed") or PackedConfig()

    def configs(self, pipeline: Any) -> Mapping[str, PackedConfig]:
        """Returns the config of the chunks of rows of nodes, and that of rows of edges if `[memory]` has a budget for them."""
        config = self.wanted(pipeline)
        if config is None:
            return {}
        edges = {of_edges(self.name): replace(config, of_edges=True, order="nodes")} if edge_budgets(pipeline) else {}
        return {self.name: config} | edges

    def input_table(self, semantic: PackedConfig) -> str | None:
        """Returns the name of the table whose rows are packed, by the plan about it, for rows of edges."""
        return EDGE_TABLE if semantic.of_edges else None

    def parts(self, inputs: Mapping[str, Artifact], semantic: PackedConfig) -> Sequence[str]:
        """Returns the parts' names, by segment: groups of about equally many stored rows, each of one part of the graph if batches are.

        Raises:
            InputError: the graph has no features, or the plan is for other features.
        """
        table, plan = open_features(inputs["features"]), inputs["cache_plan"]
        if table.row_bytes == 0:
            raise InputError(f"{inputs['features'].label} has no features to pack", "train on a graph with features")
        # A plan for other features may know of other nodes without a row.
        require(plan, {"inputs": {"features": inputs["features"]}})
        segment_of, packed_ptr = plan.array("segment_of"), plan.array("packed_ptr")
        num_segments = len(plan.array("cache_ptr")) - 1
        last_batch = np.searchsorted(segment_of, np.arange(num_segments), side="right")
        rows = packed_ptr[last_batch] + plan.array("cache_ptr")[1:]  # stored up to the end of each segment
        wanted = semantic.groups or -(-int(rows[-1]) * table.row_bytes // GROUP_BYTES)
        count = min(max(1, wanted), num_segments)
        ends = np.searchsorted(rows, rows[-1] * np.arange(1, count) // count) + 1
        # Ranks that read different parts of the graph read different files.
        order = StoredOrder.of(inputs["samples"])
        edges = [int(segment_of[first]) for first, _ in order.blocks]
        cuts = np.unique(np.concatenate([edges, np.minimum(ends, num_segments), [num_segments]]))
        tiers = [STATIC_TIERS] if order.num_parts > 1 else []
        return [*tiers, *(SegmentRange(int(low), int(high)).name for low, high in pairwise(cuts))]

    def work(self, inputs: Mapping[str, Artifact], semantic: PackedConfig, part: str) -> int:
        """Returns the number of MiB of the feature table: a part passes over it once."""
        return (open_features(inputs["features"]).num_bytes >> 20) + 1

    def parts_read(
        self, inputs: Mapping[str, Artifact], semantic: PackedConfig, part: str
    ) -> Mapping[str, Sequence[str]]:
        """Reads the stored batches of its segments, and no others."""
        segments, names = SegmentRange.of(part), list(inputs["samples"].parts)
        plan = open_segment_plan(inputs["cache_plan"]).group(segments.low, segments.high)
        stored = inputs["samples"].array("part_of")[plan.first_batch : plan.first_batch + len(plan.segment_of)]
        return {"samples": [names[number] for number in np.unique(stored).tolist()]}

    def build(self, building: Building[PackedConfig, PackedExecution]) -> Summary:
        """Writes the index of the finished groups."""
        from graphmill.assets.packed_chunks.build_index import build_index

        return build_index(building, self.parts(building.inputs, building.semantic))

    def build_part(self, building: Building[PackedConfig, PackedExecution]) -> Summary:
        """Packs a group."""
        from graphmill.assets.packed_chunks.build_group import build_group

        stored = self.parts_read(building.inputs, building.semantic, building.part)["samples"]
        return build_group(building, stored)


PACKED_CHUNKS = PackedStage()
