"""Measures the pieces of a pass over the whole graph on this machine: its layers on the in-edges of some nodes, and visits to chunks.

The part of the graph is a chunk that reads most of its rows from outside, and, with its sources folded onto its destinations, a whole
graph. The operations are those of layer_passes.py, in which a layer's gradient needs no second forward pass where it can be told without,
and those of an uncut pass. Seconds are scaled by the edges.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.assets.storage.system.machine import usable_cores
from graphmill.kernels.blocks.transpose import order_weights, transpose
from graphmill.kernels.sampling.sample import Sampler
from graphmill.kernels.types import BatchKey, Block, Stream
from graphmill.trainers.batches.batch import attach_weights
from graphmill.trainers.devices.torch_threads import torch_threads
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.links.heads import LinkHead
from graphmill.trainers.models.links.losses import LinkLoss, PairLoss
from graphmill.trainers.models.masks import LayerRandom, StepRandom
from graphmill.trainers.models.own import Model, dtype_of
from graphmill.trainers.models.products import BF16, computing, summed_over_rows, times, widened
from graphmill.trainers.recipe.costs.course import Case, Speeds
from graphmill.trainers.recipe.costs.known import GraphAtHand
from graphmill.trainers.techniques.fullgraph.executor import keeps_first
from graphmill.trainers.techniques.fullgraph.memory import pairs_at_once
from graphmill.trainers.techniques.fullgraph.passes.layer_passes import differentiated, splits
from graphmill.trainers.techniques.fullgraph.passes.row_passes import maps_apart
from graphmill.trainers.techniques.fullgraph.visits import visit_seconds

PASS_EDGES = 500_000
"""Edges of the part of a graph on which layers are timed, at most."""
MOST_TIMES, MOST_SECONDS = 3, 1.0
"""Times that a layer is timed at most after the first one, and seconds after which it is not timed again."""


def measure_pieces(case: Case, at_hand: GraphAtHand, model: Model, most_bytes: int) -> Speeds:
    """Returns the seconds of a pass, in chunks and in one piece, and of a visit to a chunk.

    Args:
        model: its model; its parameters receive gradients, which are taken away again.
        most_bytes: bytes that the rows of the part may take.
    """
    cores, edges = usable_cores(), float(case.sizes.num_edges)
    counts = sorted({1, max(1, cores // 2), cores})
    if not isinstance(model, LayeredModel) or not at_hand.graph.topology.num_edges:
        return Speeds(layers=dict.fromkeys(counts, 0.0), edges=edges)
    chunk = _part(case, at_hand, model, most_bytes)
    pieces = {"layers": (chunk, _chunk_pass), "whole": (transpose(folded_block(chunk)), _whole_pass)}
    found: dict[str, dict[int, float]] = {}
    for name, (block, both) in pieces.items():
        order_weights(block)
        by_threads = {threads: _seconds(case, block, model, both, threads) for threads in counts}
        # Threads that wait for cores on which other processes run take longer than one thread does: that is the moment, not the machine.
        found[name] = {threads: min(each, by_threads[1]) for threads, each in by_threads.items()}
    speeds = Speeds(layers=found["layers"], whole=found["whole"], edges=edges)
    return replace(speeds, visit=visit_seconds(case, model, speeds.at("layers", case.threads), most_bytes))


def _part(case: Case, at_hand: GraphAtHand, model: LayeredModel, most_bytes: int) -> Block:
    """Returns all in-edges of some nodes as a block with its transpose.

    Each edge of the part may have a row of its own, so there are few edges if rows are long and memory is short.
    """
    topology = at_hand.graph.topology
    mean = max(1.0, topology.num_edges / topology.num_nodes)
    edges = min(PASS_EDGES, most_bytes // (4 * max(case.sizes.width, case.semantic.train.hidden)))
    seeds = np.unique(np.linspace(0, topology.num_nodes - 1, max(1, int(edges / mean))).astype(np.int64))
    ids = seeds.astype(topology.indices.dtype)
    (block,) = Sampler(topology, (-1,), seed=0).sample(BatchKey(int(Stream.PROBE), 0, 0), ids, transpose="all")
    attach_weights((block,), topology, model.edge_weight)
    return block


def folded_block(block: Block) -> Block:
    """Returns a block whose destinations are its only sources, with as many edges: a whole graph has no source besides its nodes."""
    count = block.num_dst
    return replace(block, num_src=count, src_ids=block.src_ids[:count], indices=block.indices % count)


Both = Callable[[Case, LayeredModel, int, Block, int], Callable[[], Any]]
"""Returns what does both passes of a layer on a block: from the training, its model, the layer's number, the block and columns of rows."""


def _seconds(case: Case, block: Block, model: LayeredModel, both: Both, threads: int) -> float:
    """Returns the seconds of both passes of all layers over the whole graph, scaled from a part of it."""
    found = 0.0
    with torch_threads(threads):
        for index in range(len(model.layers)):
            first = index == 0 and model.projection is None
            width = case.sizes.width if first else case.semantic.train.hidden
            found += _median(both(case, model, index, block, width))
            model.zero_grad(set_to_none=True)
        pairs = _pair_seconds(case, model)
    return found * case.sizes.num_nodes / block.num_dst + pairs


def _pair_seconds(case: Case, model: LayeredModel) -> float:
    """Returns the seconds of the losses of all pairs of a pass and of their gradients, scaled from some of them; 0 without links."""
    train, pairs = case.semantic.train, case.batch.pairs
    if not pairs or not isinstance(model.link_head, LinkHead):
        return 0.0
    per_link = pairs // case.sizes.num_train
    count = pairs_at_once(per_link, train.hidden)
    places = np.arange(2 * count * per_link, dtype=np.int32).reshape(count, per_link, 2)
    labels = torch.from_numpy(np.concatenate([places, np.zeros((count, per_link, 1), np.int32)], axis=2))
    rows = torch.rand((places.size, train.hidden), dtype=dtype_of(model), requires_grad=True)
    loss = PairLoss(model.link_head, LinkLoss(train.link_loss, train.margin), train.row_penalty)
    return _median(lambda: loss(rows, labels).backward()) * pairs / (count * per_link)


def _median(work: Callable[[], Any]) -> float:
    """Returns the median seconds of some work; the first time is not counted."""
    seconds, began = [], time.perf_counter()
    while len(seconds) <= MOST_TIMES and (len(seconds) < 2 or time.perf_counter() - began < MOST_SECONDS):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return float(np.median(seconds[1:]))


def _whole_pass(case: Case, model: LayeredModel, index: int, block: Block, width: int) -> Callable[[], Any]:
    first = index == 0 and model.projection is None
    rows = torch.rand((block.num_src, width), dtype=dtype_of(model), requires_grad=not first)
    known = _known(case, model, index, block, rows)

    def both() -> None:
        rows.grad = None
        with _computing(case):
            out = model.forward_layer(index, block, rows, StepRandom(0), summed=known)
        widened(out).sum().backward()

    return both


def _chunk_pass(case: Case, model: LayeredModel, index: int, block: Block, width: int) -> Callable[[], Any]:
    """As the passes of chunks have it: a layer's map over its own rows, its sum, its update, and their gradients."""
    layer: Any = model.layers[index]
    apart, first = maps_apart(layer, width), index == 0 and model.projection is None
    train, masks = case.semantic.train, StepRandom(0).layer(index + 1, block.dst_ids)
    read = torch.rand((block.num_src, layer.projected_width if apart else width), dtype=dtype_of(model))
    own = torch.rand((block.num_dst, width if layer.reads_own or apart else 0), dtype=dtype_of(model))
    needed, known = (apart or not first, not first), _known(case, model, index, block, read)
    sums, again = torch.zeros_like(read), not case.settings.hybrid and known is None

    def aggregated(rows: Tensor) -> Tensor:
        if not apart:
            return layer.aggregate(block, rows, masks)
        return layer.aggregate_projected(block, rows.to(torch.bfloat16) if train.dtype == BF16 else rows, masks)

    def whole(rows: Tensor, own: Tensor) -> Tensor:
        return layer.update(aggregated(rows), own, masks)

    def both() -> None:
        with torch.no_grad(), _computing(case):
            agg = widened(aggregated(read) if known is None else known)
            out = widened(layer.update(agg, own, masks))
        if splits(layer, apart):
            with torch.no_grad(), _computing(case):
                agg = widened(aggregated(read)) if again else agg
            of_rows = _update_backward(case, layer, agg, own, out, masks, needed)
            of_rows = layer.aggregate_backward(block, of_rows) if needed[0] else None
        else:
            of_rows = differentiated(_computing(case), whole, read, own, out, needed)[0]
        if of_rows is not None:
            sums.add_(of_rows)
        if apart:
            _mapped(layer, own, sums[: block.num_dst])

    return both


def _update_backward(
    case: Case, layer: Any, agg: Tensor, own: Tensor, out: Tensor, masks: LayerRandom, needed: tuple[bool, bool]
) -> Any:
    """Returns the gradient of a chunk's aggregate, from its output where that tells it."""
    tells = hasattr(layer, "update_backward") and layer.finish.tells_gradient
    if tells and case.semantic.train.dtype != BF16:
        with torch.no_grad():
            return layer.update_backward(out, out, agg, own, masks, needed)[0]
    return differentiated(_computing(case), lambda rows, own: layer.update(rows, own, masks), agg, own, out, needed)[0]


def _mapped(layer: Any, own: Tensor, above: Tensor) -> None:
    """Maps own rows, and computes the gradients of the map and of the rows."""
    with torch.no_grad():
        layer.project(own)
        summed_over_rows(above, own)
        times(above, layer.map_weight.to(above.dtype).T)


def _known(case: Case, model: LayeredModel, index: int, block: Block, rows: Tensor) -> Tensor | None:
    """Returns the aggregate of a first layer that a training keeps, else None."""
    if index or not keeps_first(case.semantic.train, model):
        return None
    layer: Any = model.layers[0]
    with torch.no_grad(), _computing(case):
        return widened(layer.aggregate(block, rows, StepRandom(0).layer(1, block.dst_ids)))


def _computing(case: Case) -> AbstractContextManager[Any]:
    return computing(case.semantic.train.dtype, torch.device("cpu"))
