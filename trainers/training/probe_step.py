"""How much of a device is left for cached rows: one simulated training step says what training needs (FGNN section 6.1, after PaGraph).

A model and an optimiser of the recipe take one step on one mini-batch of the first epoch's seeds, whose neighbours are drawn on the probe
stream: no draw of training is used up or seen. A logical device counts the step exactly. What is cached is the rest of the device, less a
quarter of the peak: another batch may be larger. Nothing of it is kept, so the run is the same as without.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.nn import functional

from assets.budgets.read import Budgets
from assets.graph.read import Graph
from assets.sampling.drawing import Drawing
from kernels.sampling.epoch_plan import Plan
from kernels.types import Stream
from trainers.batches.batch import attach_weights
from trainers.devices.logical import LogicalDevice
from trainers.models.build import build_model
from trainers.models.masks import StepRandom
from trainers.models.optimiser import make_adam
from trainers.models.own import dtype_of
from trainers.recipe.config import ModelConfig
from trainers.record.ledger import Ledger
from trainers.rows.source import FeatureSource, RowIds


def simulated_peak(
    graph: Graph,
    semantic: ModelConfig,
    plan: Plan,
    features: FeatureSource,
    work_bytes: int | None,
    drawing: Drawing | None = None,
) -> int:
    """Returns the most bytes that one training step holds on a device: parameters, gradients, moments, inputs, activations.

    Args:
        graph, semantic: what is trained on what.
        plan: names the seeds of the first batch.
        features: where its rows come from.
        work_bytes: bound of the device's workspace, or None.
        drawing: how neighbours are drawn; None = as the recipe says, which weights need to be opened for.

    Raises:
        OverBudget: the step does not fit in the workspace.
    """
    # Making a model draws from torch's own generator, and a user's may draw in its step; no later draw must tell that this step was taken.
    assert semantic.sampling is not None, "a technique that caches rows samples"
    drawing = drawing or Drawing(neighbours=semantic.sampling)
    with torch.random.fork_rng(devices=[]):
        device = _step(graph, semantic, drawing, plan, features, LogicalDevice(work_bytes=work_bytes))
    return device.peak["total"]


def _step(
    graph: Graph,
    semantic: ModelConfig,
    drawing: Drawing,
    plan: Plan,
    features: FeatureSource,
    device: LogicalDevice,
) -> LogicalDevice:
    item = next(iter(plan.batches(0)))
    train = semantic.train
    model = build_model(train, features.width, graph.num_classes, semantic.seed)
    assert semantic.sampling is not None
    largest = drawing.with_fanouts(semantic.sampling.largest_fanouts)
    sampler = largest.sampler(graph.topology, seed=semantic.seed)
    blocks = sampler.sample(replace(item.key, stream=Stream.PROBE), item.seeds, transpose=model.transpose)
    attach_weights(blocks, graph.topology, model.edge_weight)
    device.adopt(model.parameters(), "parameters")
    optimiser = make_adam(model.parameters(), train.lr)
    x = device.alloc((blocks[0].num_src, features.width), dtype_of(model), "inputs")
    features.gather(RowIds(blocks[0].src_ids), x, Ledger())
    with device.active():
        logits = model(blocks, x, StepRandom(semantic.seed, 0, 0))
        labels = torch.from_numpy(graph.labels[item.seeds]).long()
        functional.cross_entropy(logits, labels, reduction="sum").backward()
        optimiser.step()
    return device


def automatic_device_bytes(budgets: Budgets, peak_bytes: int) -> int:
    """Returns the bytes of cached rows that a device of budget "auto" holds beside a step of that peak; 0 when nothing is left."""
    assert budgets.device_total_bytes is not None
    return max(0, min(budgets.device_bytes, budgets.device_total_bytes - peak_bytes * 5 // 4))


def free_device_bytes(
    free_bytes: int, peak_bytes: int, queue_bytes: int, evaluation_bytes: int, graph_bytes: int
) -> int:
    """Returns the bytes of cached rows that a device with memory of its own holds where its budget is "auto"; 0 when nothing is left.

    Args:
        free_bytes: of the device, before the training holds anything there.
        peak_bytes: of a training step; another batch may need a quarter more.
        queue_bytes: batches that wait on the device.
        evaluation_bytes: an evaluation; it and the training take turns.
        graph_bytes: what the device samples from.

    A sixteenth of what is free stays free, for what allocators lose between blocks of different sizes.
    """
    beside = graph_bytes + max(peak_bytes * 5 // 4 + queue_bytes, evaluation_bytes)
    return max(0, free_bytes - free_bytes // 16 - beside)
