"""The device memory left for cached rows: one simulated step measures the need of training (FGNN section 6.1, after PaGraph).

A model and an optimiser of the recipe take one step on one mini-batch of the first epoch's seeds, whose neighbours are drawn on the probe
stream: no draw of training is used. A logical device counts the step exactly. The cache gets the rest of the device, less a quarter of the
peak, since another batch may be larger. The probe leaves no state, so the run is the same without it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.nn import functional

from graphmill.assets.budgets.read import Budgets
from graphmill.assets.features.read import NodeTypes
from graphmill.assets.graph.read import Graph
from graphmill.assets.sampling.drawing import Drawing
from graphmill.kernels.sampling.epoch_plan import Plan
from graphmill.kernels.types import Stream
from graphmill.trainers.batches.batch import attach_weights
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.node_rows import node_rows
from graphmill.trainers.models.optimiser import make_optimiser
from graphmill.trainers.models.own import dtype_of
from graphmill.trainers.recipe.config import ModelConfig
from graphmill.trainers.record.ledger import Ledger
from graphmill.trainers.rows.source import FeatureSource, RowIds


def simulated_peak(
    graph: Graph,
    semantic: ModelConfig,
    plan: Plan,
    features: FeatureSource,
    work_bytes: int | None,
    drawing: Drawing | None = None,
    types: NodeTypes | None = None,
) -> int:
    """Returns the most bytes that one training step holds on a device: parameters, gradients, moments, inputs, activations.

    Args:
        plan: the plan, with the seeds of the first batch.
        work_bytes: bound on the device's workspace in bytes, or None.
        drawing: the way in which neighbours are drawn, required if the recipe weights them; None = by the recipe.
        types: the node types and the columns of their features; None if nodes have no types.

    Raises:
        OverBudget: the step does not fit in the workspace.
    """
    # Making a model draws from torch's generator, and a user's model may draw in its step; no later draw may depend on this step.
    assert semantic.sampling is not None, "a technique that caches rows samples"
    drawing = drawing or Drawing(neighbours=semantic.sampling)
    with torch.random.fork_rng(devices=[]):
        item, device = next(iter(plan.batches(0))), LogicalDevice(work_bytes=work_bytes)
        model = build_model(
            semantic.train, features.width, graph.num_classes, semantic.seed, len(graph.relations), types
        )
        largest = drawing.with_fanouts(semantic.sampling.largest_fanouts)
        sampler = largest.sampler(graph.topology, seed=semantic.sampling_seed)
        blocks = sampler.sample(replace(item.key, stream=Stream.PROBE), item.seeds, transpose=model.transpose)
        attach_weights(blocks, graph.topology, model.edge_weight)
        device.adopt(model.parameters(), "parameters")
        if (nodes := node_rows(model)) is not None and semantic.train.device != "cpu":
            rows = nodes.table.values  # in the host's memory on the CPU; else on the device, with two moments
            device.adopt([rows, torch.zeros_like(rows), torch.zeros_like(rows)], "parameters")
        optimiser = make_optimiser(model.parameters(), semantic.train)
        x = device.alloc((blocks[0].num_src, features.width), dtype_of(model), "inputs")
        features.gather(RowIds(blocks[0].src_ids), x, Ledger())
        with device.active():
            logits = model(blocks, x, StepRandom(semantic.seed, 0, 0))
            labels = torch.from_numpy(graph.labels[item.seeds]).long()
            functional.cross_entropy(logits, labels, reduction="sum").backward()
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
        free_bytes: free bytes of the device before the training.
        peak_bytes: peak bytes of a training step; another batch may need a quarter more.
        queue_bytes: bytes of batches that wait on the device.
        evaluation_bytes: bytes of an evaluation; it and the training take turns.
        graph_bytes: bytes of the graph that the device samples from.

    A sixteenth of the free bytes stays free, for the fragmentation of allocators.
    """
    beside = graph_bytes + max(peak_bytes * 5 // 4 + queue_bytes, evaluation_bytes)
    return max(0, free_bytes - free_bytes // 16 - beside)
