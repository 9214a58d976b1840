"""Opens a run's source of rows: the table, a cache in front of it, a link before the device.

None of the three changes a row. So the choice of cached rows is execution, like `features` and `samplers`: it is recorded with the run, and
the model's version, weights and metrics do not depend on it. Only the ledger shows the difference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphmill.assets.budgets.read import Budgets, open_budgets
from graphmill.assets.features.read import open_features, require_nodes
from graphmill.assets.hotness.read import open_hotness
from graphmill.assets.sizes import format_bytes, parse_size
from graphmill.assets.storage.local.require import require
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.assets.storage.system.control_group import fits_memory
from graphmill.kernels.errors import InputError
from graphmill.kernels.rows.placement import place_bytes
from graphmill.kernels.sampling.epoch_plan import EpochPlan
from graphmill.kernels.types import Array
from graphmill.trainers.devices.logical import open_device
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.inference.evaluation import evaluation
from graphmill.trainers.loop.device_room import device_room, peak_of_run
from graphmill.trainers.loop.executor import Run
from graphmill.trainers.recipe.config import ModelConfig
from graphmill.trainers.recipe.costs.exact import exact_needs
from graphmill.trainers.recipe.execution import TrainExecution
from graphmill.trainers.recipe.queue_bytes import prepared_in_turn
from graphmill.trainers.recipe.techniques import find_technique
from graphmill.trainers.rows.cache import CachedSource, Features
from graphmill.trainers.rows.open import open_source
from graphmill.trainers.rows.source import TableSource, linked


def open_data(run: Run) -> None:
    """Opens plan, rows and evaluation of a technique whose processes have the rows of all nodes; errors are those of `open_rows`.

    Several processes share an evaluation, and each has all logits.
    """
    graph, train = run.graph, run.semantic.train
    stored = open_features(run.inputs["features"], verified=run.execution.features == "memory")
    run.plan = epoch_plan(run.seeds, run.semantic)
    at_hand = prepared_in_turn(train, run.execution) and train.device == "cpu"
    run.edge_rows = run.open_edge_rows(train.num_threads if at_hand else 1)
    run.features = open_rows(run, stored)
    domain = None
    if run.ranks.world > 1:
        domain = find_technique(train.trainer).evaluation_domain(graph.topology, run.ranks.main)
    table, device = run.features.table, run.features.device
    needs = exact_needs(run.semantic, run.execution, {**run.inputs, **run.reads})
    run.infer = evaluation(run.semantic, graph.topology, table, device, run.drawing, domain, needs, run.edge_rows)


def epoch_plan(train_ids: np.ndarray, semantic: ModelConfig) -> EpochPlan:
    """Returns the seeds of each batch, by [sampling], or all seeds in one batch if nothing is sampled."""
    sampling, accumulate = semantic.sampling, semantic.train.accumulate
    if sampling is None or find_technique(semantic.train.trainer).whole_graph:
        return EpochPlan(train_ids, len(train_ids), seed=semantic.seed, accumulate=accumulate)
    seed = semantic.sampling_seed
    return EpochPlan(train_ids, sampling.batch_size, seed=seed, reuse=sampling.reuse, accumulate=accumulate)


def open_rows(run: Run, stored: FeatureTable) -> Features:
    """Opens the table and fills the cache.

    Args:
        run: the run, with its plan; rows are cached if hotness and budgets are among its artifacts.

    Raises:
        InputError: the inputs are of other stages or of a graph with other nodes, a block of the table is damaged, or the budgets
            contradict `features`.
    """
    execution, train, given = run.execution, run.semantic.train, {**run.inputs, **run.reads}
    require_nodes(stored, run.graph.topology.num_nodes, "the graph")
    work_bytes = parse_size(execution.workspace) if execution.workspace else None
    device = open_device(train.device, work_bytes, execution.link_gbps)
    at_hand = prepared_in_turn(train, execution) and train.device == "cpu"
    reserved = run.bytes_to_come() if execution.features == "auto" else 0
    if run.edge_rows is not None and run.edge_rows.source.mapped:
        reserved += run.edge_rows.table.num_bytes
    table = open_source(stored, execution.features, train.num_threads if at_hand else 1, reserved)
    edges_at_hand = run.edge_rows is None or run.edge_rows.at_hand
    table.at_hand = at_hand and edges_at_hand and table.in_place and (not table.mapped or fits_memory(stored.num_bytes))
    if execution.features == "memory":
        table.pin(device)
    source, record, fill = table, {}, None
    if "budgets" in given:
        fill = _filler(run, stored, table, device, open_budgets(given["budgets"]), record)
    if "hotness" in given and fill is not None:
        hotness = given["hotness"]
        require(hotness, {"arrays": {"order": {"shape": (stored.num_nodes,)}}})
        source, fill = fill(open_hotness(hotness).order), None
    source = linked(source, device)
    return Features(stored=stored, table=table, source=source, device=device, record=record, fill=fill)


def _filler(
    run: Run, stored: FeatureTable, table: TableSource, device: Device, budgets: Budgets, record: dict[str, Any]
) -> Callable[..., CachedSource]:
    """Returns the function that fills a cache from an order of hotness (`Features.fill`), and writes the facts about it to `record`."""
    host_bytes = _host_bytes(budgets, run.execution, stored)

    def fill(
        order: Array,
        *,
        device: Device = device,
        most: int | None = None,
        devices: int = 1,
        step_bytes: int | None = None,
    ) -> CachedSource:
        peak_bytes, device_bytes = None, budgets.device_bytes
        if "device" in budgets.automatic:
            peak_bytes = peak_of_run(run, stored, device) if step_bytes is None else step_bytes
            device_bytes = device_room(run, budgets, device, peak_bytes, samples=step_bytes is None, beside=devices)
        left = stored.num_bytes if most is None else most * stored.row_bytes
        in_device, of_host = min(device_bytes, left), host_bytes // devices
        in_host = min(of_host, left - in_device)
        placement = place_bytes(order, stored.row_bytes, in_device, in_host, stored.row_of)
        device.cache_bytes = device_bytes
        record.update(
            simulated_peak_bytes=peak_bytes,
            device_budget_bytes=device_bytes,
            host_budget_bytes=of_host,
            device_rows=record.get("device_rows", 0) + len(placement.device_ids),
            host_rows=record.get("host_rows", 0) + len(placement.host_ids),
        )
        return CachedSource(stored, table, placement, device)

    return fill


def _host_bytes(budgets: Budgets, execution: TrainExecution, stored: FeatureTable) -> int:
    """Returns the bytes of the host tier; a table in memory needs none, since all its rows are on the host."""
    if execution.features != "memory":
        return budgets.host_bytes
    held = stored.num_bytes
    if "host" not in budgets.automatic and held > budgets.host_bytes:
        problem = (
            f'features = "memory" holds {format_bytes(held)} where [memory] host allows {budgets.host_bytes:,} bytes'
        )
        raise InputError(problem, 'raise host, or set features = "mapped"')
    return 0
