"""Opens a run's source of rows: the table, a cache in front of it, a link before the device.

None of the three changes a row. So the choice of cached rows is execution, like `features` and `samplers`: it is recorded with the run, and
the model's version, weights and metrics do not depend on it. Only the ledger shows the difference.

The device memory left for cached rows: one simulated step measures the need of training (FGNN section 6.1, after PaGraph).

A model and an optimiser of the recipe take one step on one mini-batch of the first epoch's seeds, whose neighbours are drawn on the probe
stream: no draw of training is used. A logical device counts the step exactly. The cache gets the rest of the device, less a quarter of the
peak, since another batch may be larger. The probe leaves no state, so the run is the same without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from graphmill.assets.budgets.read import Budgets, open_budgets
from graphmill.assets.features.config import EDGES
from graphmill.assets.features.read import NodeTypes, open_features, require_edges, require_nodes
from graphmill.assets.graph.read import Graph
from graphmill.assets.hotness.read import open_hotness
from graphmill.assets.sampling.drawing import Drawing
from graphmill.assets.sizes import format_bytes, parse_size
from graphmill.assets.storage.local.require import require
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.assets.storage.system.control_group import fits_memory
from graphmill.assets.storage.system.machine import usable_cores
from graphmill.kernels.errors import InputError
from graphmill.kernels.links.edge_seeds import EdgeSeeds
from graphmill.kernels.rows.placement import place_bytes
from graphmill.kernels.sampling.epoch_plan import EpochPlan, Plan
from graphmill.kernels.types import Array, Stream
from graphmill.trainers.batches.batch import attach_weights
from graphmill.trainers.batches.edge_rows import EdgeRows, open_edge_rows
from graphmill.trainers.devices.accelerator import Accelerator
from graphmill.trainers.devices.logical import LogicalDevice, open_device
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.inference.evaluation import evaluation
from graphmill.trainers.loop.executor import Run
from graphmill.trainers.models.build import build_model, model_types
from graphmill.trainers.models.links.rows import RowsAlone
from graphmill.trainers.models.loss import PLAIN
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.node_rows import node_rows
from graphmill.trainers.models.optimiser import make_optimiser
from graphmill.trainers.models.own import dtype_of
from graphmill.trainers.models.precision import kept_dtype
from graphmill.trainers.recipe.config import ModelConfig, TrainExecution
from graphmill.trainers.recipe.costs.exact import exact_needs
from graphmill.trainers.recipe.costs.memory import bytes_to_come
from graphmill.trainers.recipe.in_turn import prepared_in_turn
from graphmill.trainers.recipe.queue_bytes import queue_bounds
from graphmill.trainers.recipe.techniques import find_technique
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.cache import CachedSource, Features
from graphmill.trainers.rows.open import open_source
from graphmill.trainers.rows.source import FeatureSource, RowIds, TableSource, linked
from graphmill.trainers.tasks.opened import open_task

DEGREES_BYTES, MAP_BYTES = 8, 8
"""Bytes per node on a device that samples: its two degrees, and its entry in the sampler's map."""


def open_data(run: Run) -> None:
    """Opens plan, rows and evaluation of a technique whose processes have the rows of all nodes; errors are those of `open_rows`.

    Several processes share an evaluation, and each has all logits.
    """
    graph, train = run.graph, run.semantic.train
    stored = open_features(run.inputs["features"], verified=run.execution.features == "memory")
    run.plan = epoch_plan(run.seeds, run.semantic)
    run.edge_rows = _open_edge_rows(run)
    run.features = open_rows(run, stored)
    domain = None
    if run.ranks.world > 1:
        domain = find_technique(train.trainer).evaluation_domain(graph.topology, run.ranks.main)
    table, device = run.features.table, run.features.device
    needs = exact_needs(run.semantic, run.execution, {**run.inputs, **run.reads})
    run.infer = evaluation(run.semantic, graph.topology, table, device, run.drawing, domain, needs, run.edge_rows)


def _open_edge_rows(run: Run) -> EdgeRows | None:
    """Returns the rows of the edges, None if the model reads none; raises InputError if they are of other edges than the graph's."""
    if EDGES not in run.inputs:
        return None
    train = run.semantic.train
    at_hand = prepared_in_turn(train.trainer, run.execution) and train.device == "cpu"
    stored = open_features(run.inputs[EDGES])
    require_edges(stored, run.graph.topology)
    return open_edge_rows(stored, kept_dtype(train.dtype), train.num_threads if at_hand else 1)


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
    at_hand = prepared_in_turn(train.trainer, execution) and train.device == "cpu"
    reserved = bytes_to_come(run.semantic, execution, given) if execution.features == "auto" else 0
    table = open_source(stored, execution.features, train.num_threads if at_hand else 1, reserved)
    table.at_hand = at_hand and table.in_place and (not table.mapped or fits_memory(stored.num_bytes))
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
    run: Run,
    stored: FeatureTable,
    table: TableSource,
    device: Device,
    budgets: Budgets,
    record: dict[str, Any],
) -> Callable[[Array], CachedSource]:
    """Returns the function that fills a cache from an order of hotness and writes the facts about it to `record`."""
    host_bytes = _host_bytes(budgets, run.execution, stored)

    def fill(order: Array) -> CachedSource:
        peak_bytes, device_bytes = None, budgets.device_bytes
        if "device" in budgets.automatic:
            types = model_types(run.semantic.train, run.graph.topology, stored)
            of_run = run.graph, run.semantic, run.plan, table, device.work_bytes, run.drawing, types
            peak_bytes = simulated_peak(*of_run, run.edges, run.edge_rows)
            free_bytes = device.free_bytes()
            if free_bytes is None:
                device_bytes = automatic_device_bytes(budgets, peak_bytes)
            else:
                device_bytes = free_device_bytes(free_bytes, peak_bytes, *_other_bytes(run, device))
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


def _other_bytes(run: Run, device: Device) -> tuple[int, int, int]:
    """Returns other bytes on a device with memory of its own: batches that wait, an evaluation, and the graph if the device samples."""
    execution, drawing, topology = run.execution, run.drawing, run.graph.topology
    (queue_bytes, _), graph_bytes = queue_bounds(execution.queue), 0
    settings = run.semantic.train.own_settings
    apart = isinstance(device, Accelerator) and settings.graph_apart(usable_cores(), device.backend.num_devices())
    where = "host" if apart else execution.topology
    if where != "host":
        graph_bytes = (DEGREES_BYTES + MAP_BYTES) * topology.num_nodes
    if where == "device":
        names = ("indptr", "indices", "weights", "edge_types")
        held = [array for name in names if (array := getattr(topology, name)) is not None]
        if drawing is not None and drawing.tables is not None:
            held.append(drawing.tables.table)
        graph_bytes += sum(array.nbytes for array in held)
    return queue_bytes, parse_size(run.semantic.train.eval_workspace), graph_bytes


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


def simulated_peak(
    graph: Graph,
    semantic: ModelConfig,
    plan: Plan,
    features: FeatureSource,
    work_bytes: int | None,
    drawing: Drawing | None = None,
    types: NodeTypes | None = None,
    edges: EdgeSeeds | None = None,
    edge_rows: EdgeRows | None = None,
) -> int:
    """Returns the most bytes that one training step holds on a device: parameters, gradients, moments, inputs, activations.

    Args:
        plan: the plan, with the seeds of the first batch.
        work_bytes: bound on the device's workspace in bytes, or None.
        drawing: the way in which neighbours are drawn, required if the recipe weights them; None = by the recipe.
        types: the node types and the columns of their features; None if nodes have no types.
        edges: the edges that are the seeds of the plan; None if nodes are.
        edge_rows: the rows of edges; None if the model reads none.

    Raises:
        OverBudget: the step does not fit in the workspace.
    """
    # Making a model draws from torch's generator, and a user's model may draw in its step; no later draw may depend on this step.
    assert semantic.sampling is not None, "a technique that caches rows samples"
    drawing = drawing or Drawing(neighbours=semantic.sampling)
    with torch.random.fork_rng(devices=[]):
        item, device = next(iter(plan.batches(0))), LogicalDevice(work_bytes=work_bytes)
        sizes = features.width, graph.num_classes, semantic.seed, len(graph.relations)
        model = build_model(semantic.train, *sizes, types, 0 if edge_rows is None else edge_rows.width)
        if isinstance(model, RowsAlone):
            model.nodes.table.trained = True  # nothing else has a gradient
        largest = drawing.with_fanouts(semantic.sampling.largest_fanouts)
        sampler = largest.sampler(graph.topology, seed=semantic.sampling_seed)
        key = replace(item.key, stream=Stream.PROBE)
        if edges is None:
            seeds, labels, loss = item.seeds, graph.labels[item.seeds], PLAIN[graph.task]
        else:
            links = edges.batch(key, item.seeds)
            seeds, labels, loss = links.nodes, links.scored, open_task(graph).loss(semantic.train).of(model)
        more = {} if edge_rows is None else {"edge_ids": True}
        blocks = sampler.sample(key, seeds, transpose=model.transpose, **more)
        attach_weights(blocks, graph.topology, model.edge_weight)
        if edge_rows is not None:
            edge_rows.give(blocks, device)
        device.adopt(model.parameters(), "parameters")
        if (nodes := node_rows(model)) is not None and semantic.train.device != "cpu":
            rows = nodes.table.values  # in the host's memory on the CPU; else on the device, with two moments
            device.adopt([rows, torch.zeros_like(rows), torch.zeros_like(rows)], "parameters")
        optimiser = make_optimiser(model.parameters(), semantic.train)
        x = device.alloc((blocks[0].num_src, features.width), dtype_of(model), "inputs")
        features.gather(RowIds(blocks[0].src_ids), x, Ledger())
        with device.active():
            logits = model(blocks, x, StepRandom(semantic.seed, 0, 0))
            loss(logits, torch.from_numpy(labels)).backward()
            optimiser.step()
    return device.peak["total"]


def automatic_device_bytes(budgets: Budgets, peak_bytes: int) -> int:
    """Returns the bytes of cached rows that a device of budget "auto" holds beside a step of that peak; 0 if nothing is left."""
    assert budgets.device_total_bytes is not None
    return max(0, min(budgets.device_bytes, budgets.device_total_bytes - peak_bytes * 5 // 4))


def free_device_bytes(
    free_bytes: int, peak_bytes: int, queue_bytes: int, evaluation_bytes: int, graph_bytes: int
) -> int:
    """Returns the bytes of cached rows that a device with memory of its own holds if its budget is "auto"; 0 if nothing is left.

    Args:
        peak_bytes: peak bytes of a training step; another batch may need a quarter more.
        evaluation_bytes: bytes of an evaluation; it and the training take turns.
        graph_bytes: bytes of the graph that the device samples from.

    A sixteenth of the free bytes stays free, for the fragmentation of allocators.
    """
    beside = graph_bytes + max(peak_bytes * 5 // 4 + queue_bytes, evaluation_bytes)
    return max(0, free_bytes - free_bytes // 16 - beside)
