"""The chunks stage: cuts parts into chunks, orders them, and writes what every device does in every step."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from assets.building.stage import Progress, Stage, Summary
from assets.chunks.config import ChunksConfig, ChunksExecution, ChunksTable, chunks_config
from assets.chunks.page import CHUNKS_PAGE
from assets.graph.read import SAMPLING, open_graph

if TYPE_CHECKING:
    from assets.storage.artifact import Artifact
    from assets.storage.writer import Writer


class ChunksStage(Stage):
    """Builds the chunks artifact; `CHUNKS` is the one instance."""

    page = CHUNKS_PAGE
    name = table = "chunks"
    code_version = 1
    Table = ChunksTable
    Semantic = ChunksConfig
    Execution = ChunksExecution
    needs = MappingProxyType({"partitions": " with parts"})

    def wanted(self, pipeline: Any) -> ChunksConfig | None:
        """Chunks are made where [chunks] asks for them."""
        table = pipeline.table("chunks")
        return None if table is None else chunks_config(table, pipeline.seed)

    def inputs(self, semantic: ChunksConfig) -> Mapping[str, str]:
        """Chunks are those of a graph and its parts."""
        return {"graph": "graph", "partitions": "partitions"}

    def reads_aspects(self, semantic: ChunksConfig) -> Mapping[str, str]:
        """Labels have no say in what is computed where."""
        return {"graph": SAMPLING}

    def build(
        self,
        inputs: Mapping[str, Artifact],
        semantic: ChunksConfig,
        execution: ChunksExecution,
        writer: Writer,
        progress: Progress,
    ) -> Summary:
        """Cuts, schedules and writes.

        Raises:
            InputError: the parts are those of another graph.
        """
        from assets.chunks.build import write_steps
        from kernels.chunks.cut import check_parts, cut_chunks
        from kernels.chunks.schedule import make_schedule

        topology, table = open_graph(inputs["graph"]).topology, semantic.table
        from assets.partitions.read import open_partitions

        partitions = open_partitions(inputs["partitions"])
        part_of = check_parts(np.asarray(partitions.part_of), partitions.num_parts, table.chunks_per_part)
        chunks = cut_chunks(topology.indptr, part_of, partitions.num_parts, table.chunks_per_part)
        schedule = make_schedule(
            topology.indptr, topology.indices, chunks, schedule=table.schedule, self_term=table.self_term
        )
        writer.save("chunk_ptr", chunks.ptr)
        writer.save("node_ids", chunks.node_ids)
        writer.save("schedule", schedule)
        counts = write_steps(topology, part_of, chunks, schedule, table.self_term, execution.threads, writer, progress)
        numbers = {
            "num_nodes": topology.num_nodes,
            "num_parts": chunks.num_parts,
            "chunks_per_part": chunks.chunks_per_part,
            "v_ori": counts.v_ori,
            "v_p2p": counts.v_p2p,
            "v_ru": counts.v_ru,
            "num_distinct": 0,
        }
        return Summary(numbers=numbers)


CHUNKS = ChunksStage()
