"""The chunks stage: cuts parts into chunks, orders them, and writes the work of every device in every step."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from graphmill.assets.building.execution import Threads
from graphmill.assets.building.page import Page
from graphmill.assets.building.stage import Building, Check, Stage, Summary
from graphmill.assets.chunks.config import ChunksConfig, ChunksTable, chunks_config
from graphmill.assets.chunks.costs import chunks_need
from graphmill.assets.chunks.rates import parse_rates
from graphmill.assets.costs.needs import Speed
from graphmill.assets.graph.read import SAMPLING, open_graph
from graphmill.assets.partitions.empty import EVERY_CHUNK, SAYS, empty_check
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.chunks.counts import StepCounts, cost
from graphmill.kernels.chunks.cut import check_parts
from graphmill.kernels.chunks.schedule import Scheduled, choose_schedule
from graphmill.kernels.types import Topology


def _headline(artifacts: Sequence[Artifact]) -> str:
    """Returns the rows that a pass loads from the host, and how many fewer these are than without sharing and reuse."""
    numbers = artifacts[0].summary["numbers"]
    v_ori, v_ru = numbers["v_ori"], numbers["v_ru"]
    saved = 100 * (1 - v_ru / max(1, v_ori))
    shape = f"{numbers['num_parts']:,} parts of {numbers['chunks_per_part']:,} chunks"
    return f"**{v_ru:,} rows from the host per layer**, {saved:.0f} % fewer than chunk by chunk; {shape}"


CHUNKS_PAGE = Page(
    about="A full-graph pass cut into steps: in each, every device computes one chunk of destinations with all of their in-edges. "
    "Devices share what they load and keep what the next step needs, so fewer rows cross from the host. "
    "Look at the volumes: V_ori loads every chunk alone, V_+p2p shares between devices, V_+ru keeps rows, too; no order can go below the "
    "distinct rows.",
    docs="docs/stages/chunks.md",
    headline=_headline,
    first=("v_ori", "v_p2p", "v_ru", "num_distinct", "traffic_cut_ratio", "replication", "most_buffer_rows"),
    labels={
        "v_ori": "V_ori: rows from the host, chunk by chunk",
        "v_p2p": "V_+p2p: rows from the host, shared between devices",
        "v_ru": "V_+ru: rows from the host, shared and kept",
        "num_distinct": "distinct rows that are needed",
        "replication": "alpha: rows of all chunks per node",
        "most_buffer_rows": "rows of the largest buffer",
        "replication_by_chunks": "rows of all chunks per node, by chunks in all",
        "schedule_of_fewest_rows": "the schedule with the fewest rows from the host",
        "byte_nanoseconds": "nanoseconds of a layer per byte of a row, by equation 4",
        "byte_nanoseconds_of_fewest_rows": "the same with the fewest rows from the host",
        "volumes_by_schedule": "rows from the host per layer, by schedule",
    },
    columns={"digests": "xxh3-64 of the record of each step and device"},
)


class ChunksStage(Stage):
    """Builds the chunks artifact; `CHUNKS` is the one instance."""

    page = CHUNKS_PAGE
    name = table = "chunks"
    code_version = 1
    Table = ChunksTable
    config_of = staticmethod(chunks_config)
    Semantic = ChunksConfig
    Execution = Threads
    need = staticmethod(chunks_need)
    speed = Speed(per_second=5e6)
    reads_stages = ("graph", "partitions")
    reads_aspects: Mapping[str, str] = {"graph": SAMPLING}
    says: Mapping[str, str] = {
        "every node and edge is in one step": "Every node is a destination in one step, with all of its in-edges.",
        "written steps load what the schedule promised": "The rows that the written steps load, and those that the schedule was "
        "chosen by, are counted in two ways and agree.",
        "the schedule is no worse than identity and Algorithm 4": "A schedule that was searched loads no more rows than the "
        "identity and Algorithm 4; with given speeds of the links it takes no more seconds.",
        EVERY_CHUNK: SAYS[EVERY_CHUNK],
    }
    warnings = (EVERY_CHUNK,)
    needs: Mapping[str, str] = {"partitions": " with the parts that it cuts"}

    def build(self, building: Building[ChunksConfig, Threads]) -> Summary:
        """Cuts, schedules and writes; raises InputError if the parts are of another graph."""
        from graphmill.assets.chunks.build import (
            cut_in_order,
            replication_by_chunks,
            schedule_numbers,
            sets_of,
            write_steps,
        )
        from graphmill.assets.figures.chunks import replication_figure, traffic_figure
        from graphmill.assets.partitions.read import open_partitions

        inputs, semantic, writer, progress = building.inputs, building.semantic, building.writer, building.progress
        topology, table, threads = open_graph(inputs["graph"]).topology, semantic.table, building.execution.threads
        partitions = open_partitions(inputs["partitions"])
        part_of = check_parts(partitions.part_of, partitions.num_parts, table.chunks_per_part)
        chunks = cut_in_order(
            topology,
            part_of,
            partitions.num_parts,
            semantic,
            writer.path("x").parent,
            progress,
            threads,
            partial(writer.create, "node_ids"),
        )
        sets = sets_of(topology, chunks, table.self_term, writer.scratch(), threads, progress)
        progress.start("schedule", None, "schedules")
        # The choice does not depend on the bytes of a row.
        rates = parse_rates(table.rates).of_rows(1) if table.rates else None
        found = choose_schedule(sets, partitions.num_parts, table.schedule, rates=rates, threads=threads)
        num_distinct = sets.num_distinct
        del sets
        progress.done()
        for name, array in (("chunk_ptr", chunks.ptr), ("schedule", found.schedule)):
            writer.save(name, array)
        counts = write_steps(topology, part_of, chunks, found.schedule, table.self_term, threads, writer, progress)
        curve = replication_by_chunks(topology, chunks, progress)
        traffic_figure(writer.path("traffic.png"), found.found, found.chosen, num_distinct, counts)
        replication_figure(writer.path("replication.png"), curve, partitions.num_parts)
        numbers = schedule_numbers(found, counts, num_distinct, topology.num_nodes, rates)
        rows = [{"chunks": count, "replication": round(value, 4)} for count, value in curve.items()]
        numbers |= {"replication_by_chunks": rows}
        figures = {"rows from the host": "traffic.png", "replication by chunks": "replication.png"}
        checks = [*_checks(found, counts, topology, rates), empty_check(EVERY_CHUNK, np.diff(chunks.ptr))]
        return Summary(numbers=numbers, checks=checks, figures=figures)


CHUNKS = ChunksStage()


def _checks(
    found: Scheduled, counts: StepCounts, topology: Topology, rates: tuple[float, float, float] | None
) -> list[Check]:
    """Compares the written counts with those that the schedule was chosen by, and with the graph."""
    volumes, plain = found.found[found.chosen], [found.found[name] for name in ("identity", "hongtu")]
    best = min(each.v_ru for each in plain)
    slower = rates is not None and cost(*volumes, rates) > min(cost(*each, rates) for each in plain)
    written = (counts.v_ori, counts.v_p2p, counts.v_ru)
    nodes, edges = int(counts.destinations.sum()), int(counts.edges.sum())
    searched = found.chosen not in ("identity", "hongtu")
    details = (
        (
            nodes == topology.num_nodes and edges == topology.num_edges,
            f"{nodes:,} destinations and {edges:,} edges in the steps; the graph has {topology.num_nodes:,} and {topology.num_edges:,}",
            {"destinations": nodes, "nodes": topology.num_nodes, "edges in steps": edges, "edges": topology.num_edges},
        ),
        (
            written == tuple(volumes),
            f"V_ori, V_+p2p, V_+ru written: {written}; counted by the schedule: {tuple(volumes)}",
            {"V_+ru written": counts.v_ru, "V_+ru counted": volumes.v_ru},
        ),
        (
            not searched or (volumes.v_ru <= best if rates is None else not slower),
            f"{volumes.v_ru:,} rows by {found.chosen}, {best:,} by the better of identity and Algorithm 4",
            {"V_+ru": volumes.v_ru, "V_+ru of the better of the two": best},
        ),
    )
    return [
        Check(name=name, passed=passed, detail=detail, numbers=numbers)
        for name, (passed, detail, numbers) in zip(ChunksStage.checks, details, strict=False)
    ]
