"""The device memory left for cached rows: one simulated step measures the need of training (FGNN section 6.1, after PaGraph).

A model and an optimiser of the recipe take one step on one mini-batch of the first epoch's seeds, whose neighbours are drawn on the probe
stream: no draw of training is used. A logical device counts the step exactly. The cache gets the rest of the device, less a quarter of the
peak, since another batch may be larger. The probe leaves no state, so the run is the same without it.

A pass over the whole graph draws no batch; its peak is a formula (trainers/techniques/fullgraph/memory.py). Devices that share a memory,
such as the logical ones of a machine and ranks on one GPU, share what is left of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from graphmill.assets.budgets.read import Budgets
from graphmill.assets.features.read import NodeRows, NodeTypes
from graphmill.assets.graph.read import Graph
from graphmill.assets.sampling.drawing import Drawing
from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.system.machine import usable_cores
from graphmill.kernels.links.edge_seeds import EdgeSeeds
from graphmill.kernels.sampling.epoch_plan import Plan
from graphmill.kernels.types import Block, Stream
from graphmill.trainers.batches.batch import attach_weights
from graphmill.trainers.batches.edge_rows import EdgeRows
from graphmill.trainers.devices.accelerator import Accelerator
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.loop.executor import Run
from graphmill.trainers.models.build import build_model, model_types
from graphmill.trainers.models.links.rows import RowsAlone
from graphmill.trainers.models.loss import PLAIN, Loss
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.node_rows import node_rows
from graphmill.trainers.models.optimiser import make_optimiser
from graphmill.trainers.models.own import Model, dtype_of
from graphmill.trainers.recipe.config import ModelConfig
from graphmill.trainers.recipe.queue_bytes import queue_bounds

DEGREES_BYTES, MAP_BYTES = 8, 8
"""Bytes per node on a device that samples: its two degrees, and its entry in the sampler's map."""


def device_room(
    run: Run, budgets: Budgets, device: Device, peak_bytes: int, *, samples: bool = True, beside: int = 1
) -> int:
    """Returns the bytes of rows that a device caches if its budget is "auto"; all ranks call it.

    Args:
        peak_bytes: most bytes that a step takes on it.
        samples: whether it prepares batches, which wait on it, and may draw them from a graph there.
        beside: number of devices of this process that share the machine's memory, if they have none of their own.
    """
    place = str(device.torch_device)
    free = [left for where, left in run.ranks.beside([place, device.free_bytes()]) if where == place]
    if None in free:
        return automatic_device_bytes(budgets, peak_bytes, len(free) * beside)
    others = _other_bytes(run, device) if samples else (0, 0, 0)
    return free_device_bytes(min(free) // len(free), peak_bytes, *others)


def peak_of_run(run: Run, stored: NodeRows, device: Device) -> int:
    """Returns the peak bytes of a step of a run on a device; errors are those of `simulated_peak`.

    Args:
        stored: the feature rows, which say the columns of each node type.
    """
    types = model_types(run.semantic.train, run.graph.topology, stored)
    of_run = run.graph, run.semantic, run.plan, stored.width, device.work_bytes
    return simulated_peak(*of_run, run.drawing, types, run.edges, run.loss if run.edges else None, run.edge_rows)


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


def simulated_peak(
    graph: Graph,
    semantic: ModelConfig,
    plan: Plan,
    width: int,
    work_bytes: int | None,
    drawing: Drawing | None = None,
    types: NodeTypes | None = None,
    edges: EdgeSeeds | None = None,
    pair_loss: Loss | None = None,
    edge_rows: EdgeRows | None = None,
) -> int:
    """Returns the most bytes that one training step holds on a device: parameters, gradients, moments, inputs, activations.

    Args:
        plan: the plan, with the seeds of the first batch.
        width: columns of the features; zeros stand for them.
        work_bytes: bound on the device's workspace in bytes, or None.
        drawing: the way in which neighbours are drawn, required if the recipe weights them; None = by the recipe.
        types: the node types and the columns of their features; None if nodes have no types.
        edges, pair_loss: the edges that are the seeds of the plan, and the loss of their pairs; None if nodes are.
        edge_rows: the rows of edges; None if the model reads none.

    Raises:
        OverBudget: the step does not fit in the workspace.
    """
    # Making a model draws from torch's generator, and a user's model may draw in its step; no later draw may depend on this step.
    assert semantic.sampling is not None, "a technique that caches rows samples"
    drawing = (drawing or Drawing(neighbours=semantic.sampling)).with_fanouts(semantic.sampling.largest_fanouts)
    with torch.random.fork_rng(devices=[]):
        item, device = next(each for each in plan.batches(0) if len(each.seeds)), LogicalDevice(work_bytes=work_bytes)
        sizes = width, graph.num_classes, semantic.seed, len(graph.relations)
        model = build_model(semantic.train, *sizes, types, 0 if edge_rows is None else edge_rows.width)
        if isinstance(model, RowsAlone):
            model.nodes.table.trained = True  # nothing else has a gradient
        key = replace(item.key, stream=Stream.PROBE)
        if edges is None:
            seeds, labels, loss, when = item.seeds, graph.labels[item.seeds], PLAIN[graph.task], {}
        else:
            assert pair_loss is not None
            links = edges.batch(key, item.seeds)
            seeds, labels, loss, when = links.nodes, links.scored, pair_loss.of(model), links.when
        sampler, ids = drawing.sampler(graph.topology, seed=semantic.sampling_seed), {"edge_ids": True}
        blocks = sampler.sample(key, seeds, transpose=model.transpose, **when, **({} if edge_rows is None else ids))
        attach_weights(blocks, graph.topology, model.edge_weight)
        if edge_rows is not None:
            edge_rows.give(blocks, device)
        _simulate_step(semantic, model, blocks, width, device, lambda logits: loss(logits, torch.from_numpy(labels)))
    return device.peak["total"]


def _simulate_step(
    semantic: ModelConfig,
    model: Model,
    blocks: Sequence[Block],
    width: int,
    device: LogicalDevice,
    loss: Callable[[Tensor], Tensor],
) -> None:
    """Takes one step, whose bytes the device counts."""
    device.adopt(model.parameters(), "parameters")
    if (nodes := node_rows(model)) is not None and semantic.train.device != "cpu":
        rows = nodes.table.values  # in the host's memory on the CPU; else on the device, with two moments
        device.adopt([rows, torch.zeros_like(rows), torch.zeros_like(rows)], "parameters")
    optimiser = make_optimiser(model.parameters(), semantic.train)
    x = device.alloc((blocks[0].num_src, width), dtype_of(model), "inputs").zero_()
    with device.active():
        loss(model(blocks, x, StepRandom(semantic.seed, 0, 0))).backward()
        optimiser.step()


def automatic_device_bytes(budgets: Budgets, peak_bytes: int, devices: int = 1) -> int:
    """Returns the bytes of cached rows that each of the devices of budget "auto" holds beside a step of that peak; 0 if nothing is left."""
    assert budgets.device_total_bytes is not None
    return max(0, min(budgets.device_bytes // devices, budgets.device_total_bytes // devices - peak_bytes * 5 // 4))


def free_device_bytes(
    free_bytes: int, peak_bytes: int, queue_bytes: int, evaluation_bytes: int, graph_bytes: int
) -> int:
    """Returns the bytes of cached rows that a device with memory of its own holds if its budget is "auto"; 0 if nothing is left.

    Args:
        peak_bytes: peak bytes of a training step; another batch may need a quarter more.
        evaluation_bytes: bytes of an evaluation; it and the training take turns.

    A sixteenth of the free bytes stays free, for the fragmentation of allocators.
    """
    beside = graph_bytes + max(peak_bytes * 5 // 4 + queue_bytes, evaluation_bytes)
    return max(0, free_bytes - free_bytes // 16 - beside)
