"""What a run reads its rows from: the table, a cache in front of it, a link before the device.

None of the three changes a row. So which rows are cached is execution, like `features` and `samplers`: it is recorded with the run, and
the model's version, weights and metrics do not depend on it. Only the ledger tells the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assets.budgets.read import Budgets, open_budgets
from assets.features.read import require_nodes
from assets.graph.read import Graph
from assets.hotness.read import open_hotness
from assets.sampling.drawing import Drawing
from assets.sizes import format_bytes, parse_size
from assets.storage.artifact import Artifact
from assets.storage.require import require
from assets.storage.table import FeatureTable
from kernels.errors import InputError
from kernels.rows.placement import place_bytes
from kernels.sampling.epoch_plan import Plan
from kernels.types import Array
from trainers.batches.queue import queue_bounds
from trainers.config import ModelConfig, TrainExecution
from trainers.devices.open import open_device
from trainers.devices.protocol import Device
from trainers.probe_step import automatic_device_bytes, free_device_bytes, simulated_peak
from trainers.rows.cache import CachedSource
from trainers.rows.linked import LinkedSource
from trainers.rows.source import FeatureSource, TableSource, open_source

DEGREES_BYTES, MAP_BYTES = 8, 8
"""Per node, where a device samples: its two degrees, and its entry in the sampler's map."""


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


def open_rows(
    graph: Graph,
    stored: FeatureTable,
    semantic: ModelConfig,
    execution: TrainExecution,
    plan: Plan,
    reads: Mapping[str, Artifact],
    drawing: Drawing | None = None,
) -> Features:
    """Opens the table and fills the cache.

    Args:
        graph, semantic, plan, drawing: what is trained, for the simulated step.
        stored: the features of its nodes.
        execution: says where the table is, and how fast the link.
        reads: stage -> artifact; rows are cached where hotness and budgets are among them.

    Raises:
        InputError: the inputs are of other stages or of a graph with other nodes, a block of the table is damaged, or the budgets
            contradict `features`.
    """
    require_nodes(stored, graph.topology.num_nodes, "the graph")
    work_bytes = parse_size(execution.workspace) if execution.workspace else None
    device = open_device(semantic.train.device, work_bytes, execution.link_gbps)
    table = open_source(stored, execution.features)
    if device.remote and execution.features == "memory":
        table.pin(device)
    source, record, fill = table, {}, None
    if "budgets" in reads:
        budgets = open_budgets(reads["budgets"])
        fill = _filler(graph, stored, semantic, execution, plan, drawing, table, device, budgets, record)
    if "hotness" in reads and fill is not None:
        hotness = reads["hotness"]
        require(hotness, {"arrays": {"order": {"shape": (stored.num_nodes,)}}})
        source, fill = fill(open_hotness(hotness).order), None
    link = device.link("h2d")
    if link is not None:
        source = LinkedSource(source, link)
    return Features(stored=stored, table=table, source=source, device=device, record=record, fill=fill)


def _filler(
    graph: Graph,
    stored: FeatureTable,
    semantic: ModelConfig,
    execution: TrainExecution,
    plan: Plan,
    drawing: Drawing | None,
    table: TableSource,
    device: Device,
    budgets: Budgets,
    record: dict[str, Any],
) -> Callable[[Array], CachedSource]:
    """Returns what fills a cache from an order of hotness; args as of `open_rows`, and the record that tells of it."""

    host_bytes = _host_bytes(budgets, execution, stored)

    def fill(order: Array) -> CachedSource:
        peak_bytes, device_bytes = None, budgets.device_bytes
        if "device" in budgets.automatic:
            work_bytes = parse_size(execution.workspace) if execution.workspace else None
            peak_bytes = simulated_peak(graph, semantic, plan, table, work_bytes, drawing)
            free_bytes = device.free_bytes()
            if free_bytes is None:
                device_bytes = automatic_device_bytes(budgets, peak_bytes)
            else:
                others = _other_bytes(graph, semantic, execution, drawing)
                device_bytes = free_device_bytes(free_bytes, peak_bytes, *others)
        placement = place_bytes(order, stored.row_bytes, device_bytes, host_bytes, stored.row_of)
        device.cache_bytes = device_bytes
        record.update(
            simulated_peak_bytes=peak_bytes,
            device_budget_bytes=device_bytes,
            host_budget_bytes=host_bytes,
            device_rows=len(placement.device_ids),
            host_rows=len(placement.host_ids),
        )
        return CachedSource(stored, table, placement, device)

    return fill


def _other_bytes(
    graph: Graph, semantic: ModelConfig, execution: TrainExecution, drawing: Drawing | None
) -> tuple[int, int, int]:
    """Returns what else a device with memory of its own holds: batches that wait, an evaluation, and the graph where it samples there."""
    queue_bytes, _ = queue_bounds(execution.queue)
    graph_bytes, topology = 0, graph.topology
    if execution.topology != "host":
        graph_bytes = (DEGREES_BYTES + MAP_BYTES) * topology.num_nodes
    if execution.topology == "device":
        names = ("indptr", "indices", "weights", "edge_types")
        held = [array for name in names if (array := getattr(topology, name)) is not None]
        if drawing is not None and drawing.tables is not None:
            held.append(drawing.tables.table)
        graph_bytes += sum(array.nbytes for array in held)
    return queue_bytes, parse_size(semantic.train.eval_workspace), graph_bytes


def _host_bytes(budgets: Budgets, execution: TrainExecution, stored: FeatureTable) -> int:
    """Returns the bytes of the host tier; a table in memory needs none, for all its rows are on the host."""
    if execution.features != "memory":
        return budgets.host_bytes
    held = stored.num_bytes
    if "host" not in budgets.automatic and held > budgets.host_bytes:
        problem = (
            f'features = "memory" holds {format_bytes(held)} where [memory] host allows {budgets.host_bytes:,} bytes'
        )
        raise InputError(problem, 'raise host, or set features = "mapped"')
    return 0
