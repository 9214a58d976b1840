"""A whole pass over chunks of a graph in memory, and the same pass uncut."""

import numpy as np
import torch
from torch.nn import functional

from graphmill.kernels.blocks.transpose import transpose
from graphmill.kernels.chunks.steps import chunk_steps
from graphmill.kernels.types import Block
from graphmill.trainers.batches.batch import attach_weights
from graphmill.trainers.devices.logical import LogicalDevice
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.loss import CrossEntropy
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.recipe.config import TrainConfig
from graphmill.trainers.record.ledger import Ledger, Timeline
from graphmill.trainers.rows.source import TableSource
from graphmill.trainers.techniques.fullgraph.passes.chunk_pass import Passes
from graphmill.trainers.techniques.fullgraph.passes.replicas import Replicas, open_gradients
from graphmill.trainers.techniques.fullgraph.passes.row_passes import InputRows
from graphmill.trainers.techniques.fullgraph.passes.whole_pass import NodeLosses, WholePass
from graphmill.trainers.techniques.fullgraph.rows.buffers import Mover
from graphmill.trainers.techniques.fullgraph.rows.host_rows import Place
from graphmill.trainers.techniques.fullgraph.rows.lists import walk
from graphmill.trainers.techniques.fullgraph.rows.supply import ChunkBlocks
from tests.kernels.graphs import random_topology

RANDOM = StepRandom(3, 1, 0)


class KernelSteps:
    """Steps as the `chunks` stage makes them, in memory."""

    def __init__(self, graph, part_of, num_parts, chunks_per_part):
        self.num_parts, self.chunks_per_part = num_parts, chunks_per_part
        self.steps = chunk_steps(graph.indptr, graph.indices, part_of, num_parts, chunks_per_part=chunks_per_part)

    def step(self, part, step):
        return self.steps[step][part]


def made_model(width, classes, **options):
    return build_model(TrainConfig(trainer="fullgraph", threads=1, **options), width, classes, seed=5)


def gradients(model):
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


def whole(graph, model):
    """Returns the whole graph as a block of a model."""
    block = Block(
        num_dst=graph.num_nodes, num_src=graph.num_nodes, start=graph.indptr[:-1].astype(np.int32),
        end=graph.indptr[1:].astype(np.int32), indices=graph.indices.astype(np.int32),
        src_ids=np.arange(graph.num_nodes, dtype=graph.indices.dtype),
    )  # fmt: skip
    block = transpose(block)
    attach_weights((block,), graph, model.edge_weight)
    return block


def problem_block(model, num_nodes, num_edges, width):
    """Returns a drawn graph as a block of a model, and float64 features."""
    generator = np.random.default_rng(3)
    return whole(random_topology(num_nodes, num_edges, seed=3), model), generator.standard_normal((num_nodes, width))


def uncut(graph, x, labels, train_ids, model):
    """Returns the loss and the gradients of a pass that is not cut."""
    model.zero_grad()
    block = whole(graph, model)
    logits = model((block,) * len(model.layers), torch.from_numpy(x).to(model_dtype(model)), RANDOM)
    loss = functional.cross_entropy(logits[train_ids], torch.from_numpy(labels[train_ids]).long(), reduction="sum")
    loss.backward()
    return loss.item(), gradients(model)


def model_dtype(model):
    return next(model.parameters()).dtype


def cut(
    graph, x, labels, train_ids, model, chunks, mode="p2p+reuse", devices=None, hybrid=True, ledger=None,
    booked=False, overlap=True, timeline=None,
):  # fmt: skip
    """Returns the loss and the gradients of a pass over chunks; `booked` counts memory on a single device as well."""
    model.zero_grad()
    all_devices = devices or [LogicalDevice(i) for i in range(chunks.num_parts)]
    count = len(all_devices)
    places = [
        Place(part=part, device=all_devices[part * count // chunks.num_parts], several=booked or count > 1)
        for part in range(chunks.num_parts)
    ]
    kept = str(model_dtype(model)).removeprefix("torch.")
    replicas, booked_at = Replicas(model, places), Ledger() if ledger is None else ledger
    passes = Passes(
        replicas=replicas, walk=walk(chunks, mode), blocks=ChunkBlocks(chunks, graph, model, 1 << 30),
        mover=Mover(places, booked_at, timeline or Timeline(), None, 1, overlap),
        dtype=kept, hybrid=hybrid, folder=None, gradients=open_gradients(replicas, None, booked_at),
    )  # fmt: skip
    inputs = InputRows(TableSource(x, False, 1), replicas, kept)
    loss = WholePass(passes, inputs, NodeLosses(passes, labels, train_ids, CrossEntropy()))(RANDOM)
    return loss, gradients(model)
