"""The evaluation of a training: logits of nodes in the way that the train table asks for.

Sampled neighbours are drawn on the evaluation stream: the same ones at every call. Batches are drawn ahead of the model: by the threads of
a source, which also gather their rows, or, where processes exchange rows in step, by one thread that is one batch ahead. If the bounds keep
logits, an inference that was killed goes on behind the last batch of which all processes have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import xxhash
from torch import Tensor

from graphmill.assets.building.stage import Progress
from graphmill.assets.sampling.drawing import Drawing
from graphmill.assets.sizes import parse_size
from graphmill.kernels.sampling.epoch_plan import EpochPlan, PlannedBatch, evaluation_plan
from graphmill.kernels.types import Array, Block, Stream, Topology
from graphmill.trainers.batches.batch import MiniBatch, attach_weights, send_blocks
from graphmill.trainers.batches.edge_rows import EdgeRows
from graphmill.trainers.batches.one_ahead import one_ahead
from graphmill.trainers.batches.source import EvaluationSource, PreparedSource
from graphmill.trainers.devices.malloc import return_freed_memory
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.inference.bounds import OUTPUT_ROWS, Bounds
from graphmill.trainers.inference.domain import Domain, Piece
from graphmill.trainers.inference.exact import Inference
from graphmill.trainers.inference.gathered import EVALUATION
from graphmill.trainers.inference.kept import KeptBatches, RowLog
from graphmill.trainers.inference.needed import NeededNodes
from graphmill.trainers.inference.pace import ExactPace, Pace
from graphmill.trainers.models.own import Model, dtype_of
from graphmill.trainers.models.products import widened
from graphmill.trainers.recipe.config import ModelConfig
from graphmill.trainers.recipe.costs.exact import Needs
from graphmill.trainers.record.ledger import Line
from graphmill.trainers.rows.source import FeatureSource, RowIds


class DrawnInputs(NamedTuple):
    """The blocks and input rows, float[n, F], of a batch that was drawn here, all on the device."""

    blocks: Sequence[Block]
    x: Tensor


def infer_sampled(
    inference: Inference,
    node_ids: Array,
    plan: EpochPlan,
    source: PreparedSource | None = None,
    hinted: set[str] | None = None,
    times: Array | None = None,
) -> Tensor:
    """Computes the logits of nodes from sampled neighbours; all processes call it with the same nodes.

    Args:
        inference: the model, and the nodes that this process computes.
        node_ids: ids[n] global.
        plan: batches of the places 0..n-1, on the evaluation stream.
        source: the source of the batches of these nodes, with their rows on the device; None draws and gathers them here, in turn with
            other processes.
        hinted: the hints that a run has had (trainers/inference/pace.py).
        times: f64[n], the time as of which each node is seen, which may be repeated with another time; None for the nodes' own, or none.

    Returns:
        float[n, num_classes], in the order of `node_ids`.
    """
    assert plan.stream == Stream.EVAL
    bounds, turns = inference.bounds, inference.nodes.turns(list(plan.batches(0)))
    own = [item for item in turns if item is not None]
    name = f"logits {xxhash.xxh32_hexdigest(node_ids.tobytes() + (b'' if times is None else times.tobytes()))}"
    kept = KeptBatches(bounds.kept, name, [len(item.seeds) for item in own])
    start = 0
    if bounds.kept is not None:
        start = inference.nodes.least(kept.done if kept.done < len(own) else len(turns))
    bounds.progress.start("evaluate", len(own), "batches")
    bounds.progress.advance(min(start, len(own)))
    if source is None:
        batches = _drawn(inference, node_ids, times, plan, turns[start:])
        shared, traffic = 0, bounds.device.traffic
    else:
        batches, shared, traffic = source.batches(0, start), source.shared, source.batching.ledger
    hints, left = set[str]() if hinted is None else hinted, max(0, len(own) - start)
    pace = Pace(bounds.progress, left, traffic, shared, hints, in_step=source is None)

    def pieces() -> Iterator[Piece]:
        for item, logits in zip(own, kept.restored(min(start, len(own))), strict=False):
            yield Piece(item.seeds, logits)
        yield from _computed(inference, turns[start:], batches, pace, kept)

    logits = inference.nodes.collected(pieces(), len(node_ids))
    pace.end()
    bounds.progress.done()
    return logits


def _computed(
    inference: Inference,
    turns: Sequence[PlannedBatch | None],
    batches: Iterator[MiniBatch | DrawnInputs | None],
    pace: Pace,
    kept: KeptBatches,
) -> Iterator[Piece]:
    """Yields the logits of each batch of this process; the order of `batches` is that of the turns."""
    bounds, waited = inference.bounds, pace.waits(batches)
    for item in turns:
        # Errors of the threads that prepare batches come with the next batch.
        with torch.no_grad(), bounds.device.evaluating():
            batch = next(waited)
            if item is None or batch is None:
                continue
            with bounds.computing():
                out = widened(inference.model(batch.blocks, batch.x, EVALUATION))
            rows = len(batch.x)
        # Its bytes are released when the source is asked for the next one, so no reference may outlive this line.
        del batch
        logits = bounds.device.fetch(out, OUTPUT_ROWS, bounds.device.traffic)
        kept.add(logits)
        yield Piece(item.seeds, logits)
        bounds.progress.advance(1)
        pace.done(rows)
    left = sum(1 for _ in waited)  # asking once more ends its threads
    assert not left, f"there are {left} batches more than the plan has"


def _drawn(
    inference: Inference, node_ids: Array, times: Array | None, plan: EpochPlan, turns: Sequence[PlannedBatch | None]
) -> Iterator[DrawnInputs | None]:
    """Yields the batches that this process computes, and takes part in the exchanges of the others, of which it yields None."""
    model, topology, features, bounds = inference.model, inference.topology, inference.features, inference.bounds
    assert bounds.drawing is not None
    return_freed_memory()  # what the threads of an epoch have freed serves no other thread
    sampler, device = bounds.drawing.sampler(topology, seed=plan.seed, threads=bounds.threads), bounds.device

    def draw(item: PlannedBatch | None) -> tuple[Block, ...]:
        if item is None:
            return ()
        as_of = None if times is None else times[item.seeds]
        blocks = bounds.sampled(sampler, item.key, node_ids[item.seeds], as_of)
        attach_weights(blocks, topology, model.edge_weight)
        bounds.give_edges(blocks)
        return blocks

    def gathered(blocks: tuple[Block, ...]) -> DrawnInputs | None:
        ids = blocks[0].src_ids if blocks else node_ids[:0]
        x = torch.empty((len(ids), features.width), dtype=dtype_of(model), device=device.torch_device)
        features.gather(RowIds(ids), x, device.traffic)
        return DrawnInputs(send_blocks(blocks, device, device.traffic), x) if blocks else None

    with ThreadPoolExecutor(1, "draw") as thread, closing(one_ahead(map(draw, turns), thread)) as drawn:
        yield from map(gathered, drawn)
    return_freed_memory()  # nor what an evaluation has freed those of the next one


WEIGHTS = Line("d2h", "parameter")


def evaluation(
    semantic: ModelConfig,
    topology: Topology,
    features: FeatureSource,
    device: Device,
    drawing: Drawing | None,
    domain: Callable[[Bounds], Domain] | None = None,
    needs: Needs | None = None,
    edge_rows: EdgeRows | None = None,
) -> Callable[[Model, Array, Path, Progress, EvaluationSource, Path | None, Array | None], Tensor]:
    """Returns the function that evaluates a model in the way of its train table (`Run.infer`, trainers/loop/executor.py).

    Args:
        topology, device, drawing, needs, edge_rows: as of `Inference` and its `Bounds`.
        features: rows of nodes for an exact evaluation, and for a sampled one of several processes.
        domain: a function that makes the domain of this process; None for all nodes.
    """
    train, sampling = semantic.train, semantic.sampling
    # Needed nodes of the validation nodes, and of all splits at the end; and what was hinted at.
    read_as: Any = {"device": device, "dtype": train.dtype, "drawing": drawing, "needs": needs, "edge_rows": edge_rows}
    read_as |= {"workspace_bytes": parse_size(train.eval_workspace), "threads": train.num_threads}
    known, hinted = dict[bytes, NeededNodes | None](), set[str]()

    def infer(
        model: Model,
        node_ids: Array,
        folder: Path,
        progress: Progress,
        source: EvaluationSource,
        kept: Path | None,
        times: Array | None = None,
    ) -> Tensor:
        name = xxhash.xxh3_128_digest(np.ascontiguousarray(node_ids).data)
        log = RowLog(kept, log_key(model, device, name * (train.eval == "exact"))) if kept else None
        bounds = Bounds(folder=folder, progress=progress, kept=log, **read_as)
        inference = Inference(model, topology, features, bounds, domain and domain(bounds))
        if train.eval == "exact":
            known[name] = known[name] if name in known else inference.needed(node_ids)
            pace = ExactPace(progress, inference.num_passes * inference.nodes.num_nodes, hinted)
            logits = inference.exact(node_ids, known[name])
            pace.end()
            return logits
        assert sampling is not None
        how: Any = {"batch_size": sampling.batch_size, "seed": semantic.sampling_seed}
        places = evaluation_plan(np.arange(len(node_ids)), **how)
        # Processes that share the rows exchange them batch by batch, so there nothing runs ahead. A source of batches knows nodes alone.
        ahead = None if domain or times is not None else source(evaluation_plan(node_ids, **how))
        return infer_sampled(inference, node_ids, places, ahead, hinted, times)

    return infer


def log_key(model: Model, device: Device, name: bytes) -> bytes:
    """Returns u8[16], the key of the rows that an inference keeps: a digest of the weights, and of a name of what is computed.

    A sampled inference has no name: one file has the batches of all splits.
    """
    found = xxhash.xxh3_128(name)
    for tensor in model.state_dict().values():
        weights = device.fetch(tensor.detach(), WEIGHTS, device.traffic)
        found.update(weights.contiguous().view(-1).view(torch.uint8).numpy().data)
    return found.digest()
