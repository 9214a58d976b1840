"""Scores a model: exactly, with all neighbours layer by layer, or on samples of the evaluation stream.

Exact inference computes one layer for all nodes before the next begins, in ranges of destinations whose input rows fit the evaluation
workspace. Peak memory: N x (two neighbouring layer widths) x 4 bytes, plus the workspace, plus the topology's mapping.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from kernels.gather import gather
from kernels.plan import EpochPlan
from kernels.sample import Sampler
from kernels.types import Array, BatchKey, Stream, Topology
from trainers.ledger import Ledger
from trainers.minibatch import attach_weights
from trainers.models.layer import LayeredModel, StepRandom
from trainers.sources import FeatureSource

_EVALUATION = StepRandom(0, training=False)


@torch.no_grad()
def infer_exact(
    model: LayeredModel, topology: Topology, features: FeatureSource, workspace_bytes: int, threads: int
) -> Tensor:
    """Computes the logits of every node from all its neighbours.

    Args:
        workspace_bytes: bound on the input rows of one range; a single node's neighbourhood may exceed it.
        threads: of the kernels.

    Returns:
        f32[N, num_classes].
    """
    sampler = Sampler(topology, (-1,), seed=0, threads=threads)
    h: Tensor | None = None
    width = features.width
    for index in range(len(model.layers)):
        rows: list[Tensor] = []
        for low, high in row_ranges(topology.indptr, workspace_bytes // (4 * width)):
            seeds = np.arange(low, high, dtype=topology.indices.dtype)
            (block,) = sampler.sample(BatchKey(Stream.EVAL, 0, 0), seeds, transpose="none")
            attach_weights((block,), topology, model.edge_weight)
            x = torch.empty((block.num_src, width))
            if h is None:
                features.gather(block.src_ids, x, Ledger())
            else:
                gather(h.numpy(), block.src_ids, x.numpy(), threads=threads)
            rows.append(model.forward_layer(index, block, x, _EVALUATION))
        h = torch.cat(rows)
        width = h.shape[1]
    assert h is not None
    return h


@torch.no_grad()
def infer_sampled(
    model: LayeredModel,
    topology: Topology,
    features: FeatureSource,
    node_ids: Array,
    *,
    fanouts: tuple[int, ...],
    batch_size: int,
    seed: int,
    threads: int,
) -> Tensor:
    """Computes the logits of `node_ids` from sampled neighbours, the same ones at every call.

    Returns:
        f32[n, num_classes], in the order of `node_ids`.
    """
    sampler = Sampler(topology, fanouts, seed=seed, threads=threads)
    plan = EpochPlan(np.arange(len(node_ids)), batch_size, seed=seed, stream=Stream.EVAL)
    logits: Tensor | None = None
    for item in plan.batches(0):
        blocks = sampler.sample(item.key, node_ids[item.seeds], transpose="none")
        attach_weights(blocks, topology, model.edge_weight)
        x = torch.empty((blocks[0].num_src, features.width))
        features.gather(blocks[0].src_ids, x, Ledger())
        out = model(blocks, x, _EVALUATION)
        logits = torch.empty((len(node_ids), out.shape[1])) if logits is None else logits
        logits[torch.from_numpy(item.seeds)] = out
    assert logits is not None
    return logits


def accuracy(logits: Tensor, labels: Array) -> float:
    """Returns the share of rows whose largest logit is the label; ties go to the lowest class."""
    return float((logits.numpy().argmax(axis=1) == labels).mean())


def row_ranges(indptr: Array, max_rows: int) -> Iterator[tuple[int, int]]:
    """Cuts nodes 0..N-1 into ranges whose edges and destinations together number at most `max_rows`, one node at least."""
    cost = np.asarray(indptr, dtype=np.int64) + np.arange(len(indptr))
    low, num_nodes = 0, len(indptr) - 1
    while low < num_nodes:
        high = int(np.searchsorted(cost, cost[low] + max_rows, side="right")) - 1
        high = min(max(high, low + 1), num_nodes)
        yield low, high
        low = high
