"""Computes a trained model's logits of nodes from sampled neighbours, on the evaluation stream: the same ones at every call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from graphmill.kernels.sampling.epoch_plan import EpochPlan, PlannedBatch
from graphmill.kernels.types import Array, Stream
from graphmill.trainers.batches.batch import attach_weights, send_blocks
from graphmill.trainers.batches.source import PreparedSource
from graphmill.trainers.inference.bounds import OUTPUT_ROWS
from graphmill.trainers.inference.domain import Piece
from graphmill.trainers.inference.exact import Inference
from graphmill.trainers.inference.gathered import EVALUATION
from graphmill.trainers.inference.pace import Pace
from graphmill.trainers.models.own import dtype_of
from graphmill.trainers.models.precision import widened
from graphmill.trainers.rows.source import RowIds


def infer_sampled(
    inference: Inference,
    node_ids: Array,
    plan: EpochPlan,
    source: PreparedSource | None = None,
    hinted: set[str] | None = None,
) -> Tensor:
    """Computes the logits of nodes from sampled neighbours; all processes call it with the same nodes.

    Args:
        inference: the model, and the nodes that this process computes.
        node_ids: ids[n] global.
        plan: batches of the places 0..n-1, on the evaluation stream.
        source: the source of the batches of these nodes, with their rows on the device; None draws one batch after the other here.
        hinted: the hints that a run has had (trainers/inference/pace.py).

    Returns:
        float[n, num_classes], in the order of `node_ids`.
    """
    assert plan.stream == Stream.EVAL
    progress, turns = inference.bounds.progress, inference.nodes.turns(list(plan.batches(0)))
    total = sum(item is not None for item in turns)
    progress.start("evaluate", total, "batches")
    if source is None:
        logits = inference.nodes.collected(_drawn(inference, node_ids, plan, turns), len(node_ids))
    else:
        traffic = source.batching.ledger
        pace = Pace(progress, total, traffic, source.shared, set() if hinted is None else hinted)
        logits = inference.nodes.collected(_supplied(inference, plan, source, pace), len(node_ids))
        pace.end()
    progress.done()
    return logits


def _supplied(inference: Inference, plan: EpochPlan, source: PreparedSource, pace: Pace) -> Iterator[Piece]:
    """Yields the logits of each batch of a source, whose order is that of the plan."""
    bounds, batches = inference.bounds, pace.waits(source.batches(0))
    for item in plan.batches(0):
        # Errors of the threads that prepare batches come with the next batch.
        with torch.no_grad(), bounds.device.evaluating():
            batch = next(batches)
            with bounds.computing():
                out = widened(inference.model(batch.blocks, batch.x, EVALUATION))
            rows = len(batch.x)
        # Its bytes are released when the source is asked for the next one, so no reference may outlive this line.
        del batch
        yield Piece(item.seeds, bounds.device.fetch(out, OUTPUT_ROWS, bounds.device.traffic))
        bounds.progress.advance(1)
        pace.done(rows)
    left = sum(1 for _ in batches)  # asking once more ends its threads
    assert not left, f"the source has {left} batches more than the plan"


def _drawn(
    inference: Inference, node_ids: Array, plan: EpochPlan, turns: Sequence[PlannedBatch | None]
) -> Iterator[Piece]:
    """Yields the logits of the batches that this process computes, and takes part in the exchanges of the others."""
    model, topology, features, bounds = inference.model, inference.topology, inference.features, inference.bounds
    assert bounds.drawing is not None
    sampler, device = bounds.drawing.sampler(topology, seed=plan.seed, threads=bounds.threads), bounds.device
    for item in turns:
        if item is None:
            features.gather(RowIds(node_ids[:0]), torch.empty((0, features.width)), device.traffic)
            continue
        blocks = sampler.sample(item.key, node_ids[item.seeds], transpose="none")
        attach_weights(blocks, topology, model.edge_weight)
        with torch.no_grad(), device.evaluating(), bounds.computing():
            shape = (blocks[0].num_src, features.width)
            x = torch.empty(shape, dtype=dtype_of(model), device=device.torch_device)
            features.gather(RowIds(blocks[0].src_ids), x, device.traffic)
            out = widened(model(send_blocks(blocks, device, device.traffic), x, EVALUATION))
        yield Piece(item.seeds, device.fetch(out, OUTPUT_ROWS, device.traffic))
        bounds.progress.advance(1)
