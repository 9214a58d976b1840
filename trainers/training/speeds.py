"""Measures the pieces of a batch on this machine: drawing, gathering, transposing, pruning, and training steps on a few drawn batches.

A model and an optimiser of the recipe take the steps on random rows, since no time depends on values; neither survives. A technique
without batches measures pieces of its own (`Technique.pieces`). Everything takes some seconds.

The pieces of an exact evaluation, the columns of a row and of an edge, are measured on a part of a graph that is small enough. The
evaluation of trainers/inference/exact.py runs on some nodes whose rows lie in memory: without edges, and with the edges of the first of
them. Sources are the graph's own modulo the number of these nodes. `count_scored` counts the rows and edges that such seconds are
multiplied by.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from graphmill.assets.features.read import NodeTypes
from graphmill.assets.graph.read import Graph
from graphmill.assets.sampling.drawing import Drawing
from graphmill.assets.sampling.training_edges import candidate_ranges
from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.assets.storage.system.control_group import free_bytes
from graphmill.assets.storage.system.machine import usable_cores
from graphmill.kernels.blocks.transpose import transpose
from graphmill.kernels.history.csr2 import prune
from graphmill.kernels.links.splits import PARTS
from graphmill.kernels.links.triples import KnownEdges, Triples
from graphmill.kernels.rows.gather import gather
from graphmill.kernels.sampling.epoch_plan import PlannedBatch
from graphmill.kernels.types import Array, Block, Topology
from graphmill.trainers.batches.batch import attach_weights
from graphmill.trainers.devices.malloc import keep_freed_memory, return_freed_memory
from graphmill.trainers.devices.torch_threads import torch_threads
from graphmill.trainers.inference.bounds import Bounds
from graphmill.trainers.inference.choice import scored_splits
from graphmill.trainers.inference.exact import Inference
from graphmill.trainers.inference.needed import find_needed, pays
from graphmill.trainers.inference.windows import APART_BYTES
from graphmill.trainers.models.build import build_model
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.links.heads import LinkHead
from graphmill.trainers.models.links.ranks import Pairs, link_ranks
from graphmill.trainers.models.links.rows import RowsAlone
from graphmill.trainers.models.loss import Loss
from graphmill.trainers.models.masks import StepRandom
from graphmill.trainers.models.node_rows import node_rows
from graphmill.trainers.models.optimiser import make_optimiser
from graphmill.trainers.models.own import Model, dtype_of
from graphmill.trainers.recipe.config import ModelConfig
from graphmill.trainers.recipe.costs.course import Case, Scored, Speeds
from graphmill.trainers.recipe.costs.exact import CANDIDATES, QUERIES, tile_rows
from graphmill.trainers.recipe.costs.forecast import edge_elements, row_elements
from graphmill.trainers.recipe.costs.known import GraphAtHand, batch_sampler, transposes
from graphmill.trainers.recipe.techniques import find_technique
from graphmill.trainers.rows.source import TableSource
from graphmill.trainers.tasks.links import OF_RANKS
from graphmill.trainers.tasks.opened import open_task

MOST_STEPS, MOST_SECONDS = 16, 1.0
"""Batches that a piece is timed on at most, and seconds after which no further one is."""
TABLE_BYTES, TABLE_SHARE = 256 << 20, 8
"""Bytes of rows from which rows are gathered, and the part of free memory that they take at most, as its divisor."""


def measure_speeds(case: Case, at_hand: GraphAtHand, num_classes: int, types: NodeTypes | None = None) -> Speeds:
    """Returns the seconds of the pieces of a batch, without those of disks and of other processes. What it takes is given back.

    Args:
        types: the node types and the columns of their features; None if nodes have no types.
    """
    keep_freed_memory()  # as a training does
    try:
        return _measure(case, at_hand, num_classes, types)
    finally:
        return_freed_memory()


def _measure(case: Case, at_hand: GraphAtHand, num_classes: int, types: NodeTypes | None) -> Speeds:
    cores, drawn, train = usable_cores(), case.drawn, case.semantic.train
    if train.edge_features and is_reference(train.model):
        return Speeds()  # code that reads rows of edges has no pieces without them
    counts = sorted({1, max(1, cores // 2), cores})
    with torch.random.fork_rng(devices=[]):
        # Rows of edges are not timed: their part is that of rows of nodes by their bytes, and a step is that of the model without them.
        plain = replace(train, edge_features=False)
        case = replace(case, semantic=replace(case.semantic, train=plain))
        semantic, relations = case.semantic, len(at_hand.graph.relations)
        if semantic.train.model == "rows":
            types = NodeTypes(starts=(0, at_hand.graph.topology.num_nodes), columns=(0,))
        model = build_model(semantic.train, case.sizes.width, num_classes, semantic.seed, relations, types)
        if isinstance(model, RowsAlone):
            model.nodes.table.trained = True  # nothing else has a gradient
        own_pieces = find_technique(semantic.train.trainer).pieces_function()
        if own_pieces is not None:
            found = own_pieces(case, at_hand, model, _most_bytes())
            with torch_threads(case.threads):
                return replace(found, compare=compare_seconds(case, model))
        if case.plan is None or drawn is None or not drawn.blocks:
            return Speeds()
        table = _table(case)
        found = {threads: _walked(case, at_hand, model, table, threads) for threads in counts}
        with ThreadPoolExecutor(1) as other:
            handed = {threads: _walked(case, at_hand, model, table, threads, other).step for threads in counts}
        del table
        with torch_threads(case.threads):
            exact = measure_exact(case, at_hand.graph.topology, model, _most_bytes())
            compare = compare_seconds(case, model)
    # Threads that wait for cores on which other processes run take longer than one thread does: that is the moment, not the machine.
    found = {threads: _Seconds(*map(min, each, found[1])) for threads, each in found.items()}
    return Speeds(
        step={threads: each.step for threads, each in found.items()},
        handed={threads: max(handed[threads], each.step) for threads, each in found.items()},
        draw={threads: each.draw for threads, each in found.items()},
        gather={threads: each.gather for threads, each in found.items()},
        transpose=_timed(drawn.blocks, lambda blocks: [transpose(block) for block in blocks[len(blocks) > 1 :]]),
        prune=_timed(drawn.blocks, _pruned) if len(drawn.blocks[0]) > 1 else 0.0,
        edges=drawn.edges,
        inputs=drawn.inputs,
        exact_rows=exact[0],
        exact_edges=exact[1],
        compare=compare,
    )


class _Seconds(NamedTuple):
    draw: float
    gather: float
    step: float


def _table(case: Case) -> np.ndarray:
    """Returns rows of the features' size in memory, at most `TABLE_BYTES`; the bytes of a row decide, not their type."""
    sizes = case.sizes
    rows = max(1, min(sizes.num_nodes, _most_bytes() // max(1, sizes.row_bytes)))
    return np.ones((rows, max(1, sizes.row_bytes // 4)), np.float32)


def _most_bytes() -> int:
    """Returns the bytes that rows may take for a measurement."""
    free = free_bytes()
    return TABLE_BYTES if free is None else min(TABLE_BYTES, free // TABLE_SHARE)


def _walked(
    case: Case,
    at_hand: GraphAtHand,
    model: Model,
    table: np.ndarray,
    threads: int,
    other: ThreadPoolExecutor | None = None,
) -> _Seconds:
    """Returns the median seconds of the pieces of batches that are drawn, gathered and trained on in turn, as a training goes.

    So each piece finds the caches of the processor as another one has left them. With an `other` thread, it draws and gathers.
    """
    semantic, sampler = case.semantic, batch_sampler(case.semantic, at_hand, threads)
    optimiser, seconds, began = make_optimiser(model.parameters(), semantic.train), [], time.perf_counter()
    edges = at_hand.edges(semantic)
    loss = None if edges is None else open_task(at_hand.graph).loss(semantic.train).of(model)
    assert case.plan is not None

    def prepare(item: PlannedBatch) -> tuple[tuple[Block, ...], np.ndarray, Array | None, float, float]:
        started = time.perf_counter()
        blocks = sampler.sample(item.key, item.seeds, transpose=transposes(semantic))
        attach_weights(blocks, at_hand.graph.topology, model.edge_weight)
        pairs = None if edges is None else edges.batch(item.key, item.seeds).scored
        drawn = time.perf_counter()
        rows = np.empty((blocks[0].num_src, table.shape[1]), np.float32)
        gather(table, blocks[0].src_ids % len(table), rows, threads=threads)
        return blocks, rows, pairs, drawn - started, time.perf_counter() - drawn

    with torch_threads(threads):
        for item in case.plan.batches(0):
            if not len(item.seeds):
                continue
            found = prepare(item) if other is None else other.submit(prepare, item).result()
            blocks, rows, pairs, drawn, gathered = found
            started = time.perf_counter()
            _step(model, optimiser, blocks, _inputs(rows, case, model), loss, pairs)
            seconds.append((drawn, gathered, time.perf_counter() - started))
            if len(seconds) > MOST_STEPS or (len(seconds) > 2 and time.perf_counter() - began > MOST_SECONDS):
                break
    return _Seconds(*np.median(seconds[1:] or seconds, axis=0).tolist())


def _inputs(rows: np.ndarray, case: Case, model: Model) -> torch.Tensor:
    """Returns float[n, F] of the model's type: the gathered rows if they have that type, else others."""
    width, dtype = case.sizes.width, dtype_of(model)
    if dtype == torch.float32 and rows.shape[1] == width:
        return torch.from_numpy(rows)
    return torch.ones((len(rows), width), dtype=dtype)


def _step(
    model: Model,
    optimiser: torch.optim.Optimizer,
    blocks: tuple[Block, ...],
    x: torch.Tensor,
    loss: Loss | None = None,
    pairs: Array | None = None,
) -> None:
    """Takes a step by the loss of pairs, i32[p, 1 + k, 3], or without them on labels that are made up."""
    logits = model(blocks, x, StepRandom(0))
    if loss is not None and pairs is not None:
        loss(logits, torch.from_numpy(pairs)).backward()
    else:
        # Rows are alike and labels are not: a model that had learnt them would go on with denormal gradients, which processors are slow
        # with.
        labels = torch.arange(len(logits)) % logits.shape[1]
        functional.cross_entropy(logits, labels, reduction="sum").backward()
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    if (nodes := node_rows(model)) is not None:
        nodes.taken()


def _timed(items: Sequence[Any], work: Callable[[Any], Any]) -> float:
    """Returns the median seconds of some work on a few items; the first one is not counted."""
    seconds, began = [], time.perf_counter()
    for item in items[: MOST_STEPS + 1]:
        started = time.perf_counter()
        work(item)
        seconds.append(time.perf_counter() - started)
        if time.perf_counter() - began > MOST_SECONDS and len(seconds) > 1:
            break
    return float(np.median(seconds[1:] or seconds))


def _pruned(blocks: tuple[Block, ...]) -> None:
    prune(blocks, [np.full(block.num_src, -1, np.int32) for block in blocks[1:]], "hidden")


MOST_EDGES, WORKSPACE_BYTES = 2_000_000, 1 << 40
"""Edges of the part, and bytes of a workspace that nothing exceeds: the bounds take half of the free memory if that is less."""
REPEATS = 2
"""Times that each evaluation runs; the shorter one counts."""


def measure_exact(case: Case, topology: Topology, model: Model, most_bytes: int) -> tuple[float, float]:
    """Returns the seconds of an exact evaluation for an input column of a row, and for a summed column of an edge.

    Those of a user's module over whole blocks, which exposes no layers, are not measured: 0.
    """
    if not isinstance(model, LayeredModel):
        return 0.0, 0.0
    train, width = case.semantic.train, case.sizes.width
    count = max(1, min(topology.num_nodes, most_bytes // max(1, 4 * width)))
    rows, layers = np.ones((count, width), np.float32), train.layers
    last = int(np.searchsorted(topology.indptr[: count + 1], MOST_EDGES, side="right")) - 1
    ends = np.minimum(np.asarray(topology.indptr[: count + 1]), topology.indptr[last])
    parts = [_part(topology, each, count) for each in (np.zeros_like(ends), ends)]
    without, whole = (_exact_seconds(model, part, rows, case.threads) for part in parts)
    edges = edge_elements(train, width, case.num_classes, [parts[1].num_edges] * layers)
    of_rows = without / max(1, row_elements(train, width, case.num_classes, [count] * (layers + 1)))
    return of_rows, max(0.0, whole - without) / max(1, edges)


def _part(topology: Topology, ends: Array, count: int) -> Topology:
    """Returns the first nodes of a graph, with the edges up to `ends`, i64[count + 1]; types of nodes stay where they are."""
    edges = slice(0, int(ends[-1]))
    taken = {name: each[edges] for name in ("weights", "edge_types") if (each := getattr(topology, name)) is not None}
    return replace(
        topology,
        indptr=ends,
        indices=np.asarray(topology.indices[edges]) % count,
        in_degree=topology.in_degree[:count],
        out_degree=topology.out_degree[:count],
        edge_ids=None,
        **taken,
    )


def _exact_seconds(model: Model, part: Topology, rows: Array, threads: int) -> float:
    found = []
    for _ in range(REPEATS):
        bounds = Bounds(workspace_bytes=WORKSPACE_BYTES, threads=threads)
        inference = Inference(model, part, TableSource(rows, False, threads), bounds)
        started = time.perf_counter()
        inference.exact()
        found.append(time.perf_counter() - started)
    return min(found)


def compare_seconds(case: Case, model: Model) -> float:
    """Returns the seconds of comparing a link with a candidate for its end, by the model's head on rows of its width; 0 without links."""
    train, head = case.semantic.train, model.link_head
    if not train.predicts_links or not isinstance(head, LinkHead):
        return 0.0
    count = 4 * CANDIDATES
    rows = torch.rand((count, train.hidden), dtype=dtype_of(model))
    ends = np.arange(QUERIES, dtype=np.int64)
    relation = np.zeros(QUERIES, np.int64) if head.reads_relations else None
    pairs = Pairs(source=ends, target=ends + QUERIES, relation=relation, ranges={"target": [(0, count)]})
    known = KnownEdges(Triples(num_nodes=count), ends, ends + QUERIES)
    return _timed([pairs] * 2, lambda each: link_ranks(head, rows, each, known, "target")) / (QUERIES * count)


def count_scored(
    semantic: ModelConfig, graph: Graph, drawing: Drawing | None, row_bytes: int, *, exact: bool
) -> tuple[Scored, Scored]:
    """Returns the counts of an evaluation between epochs, and of that at the end."""
    if graph.links is not None:
        return _links_scored(semantic, graph, drawing, row_bytes)
    splits = scored_splits(semantic.train, graph)
    valid, *final = (np.array(getattr(graph, f"{split}_ids")) for split in ("valid", *splits))
    if not exact:
        return Scored((len(valid),)), Scored(tuple(map(len, final)))
    first, last = (_exact(semantic, graph, drawing, row_bytes, nodes) for nodes in (valid, np.concatenate(final)))
    return first, last


def _links_scored(
    semantic: ModelConfig, graph: Graph, drawing: Drawing | None, row_bytes: int
) -> tuple[Scored, Scored]:
    """Returns the same for links: the rows of all nodes, and the candidates of the links that are ranked."""
    links, train = graph.links, semantic.train
    assert links is not None
    nodes = _exact(semantic, graph, drawing, row_bytes, np.arange(graph.topology.num_nodes))
    ranges = candidate_ranges(links, graph.topology).values()
    candidates = np.sum([[high - low for low, high in side] for side in ranges], axis=0)
    relation = np.zeros(len(links.split), np.int64) if links.relation is None else np.asarray(links.relation)
    of_parts = np.bincount(np.asarray(links.split), weights=candidates[relation], minlength=len(PARTS)).tolist()
    of_splits: dict[str, Any] = dict(zip(PARTS, of_parts, strict=True))
    final = sum(of_splits[split] for split in open_task(graph).scored(train, ()))
    return nodes._replace(compared=of_splits["valid"] * (train.metric in OF_RANKS)), nodes._replace(compared=final)


def _exact(semantic: ModelConfig, graph: Graph, drawing: Drawing | None, row_bytes: int, node_ids: Array) -> Scored:
    train, topology = semantic.train, graph.topology
    layers, count = train.layers, topology.num_nodes
    if not pays(len(node_ids), count):
        every = (float(count),) * (layers + 1)
        return Scored((len(node_ids),), every, (float(topology.num_edges),) * layers, count)
    bounds = Bounds(workspace_bytes=parse_size(train.eval_workspace), threads=train.num_threads, drawing=drawing)
    whole, ends = bounds.whole(topology), bounds.ends(topology)
    needed = find_needed(whole, ends, np.sort(node_ids), layers, bounds.fitting_bytes // 2)
    in_order = apart = 0
    for wanted, span in _tiles(partial(needed.flags, 0), count, row_bytes):
        close = span * row_bytes <= wanted * (row_bytes + APART_BYTES)
        in_order, apart = in_order + close * span, apart + (not close) * wanted
    return Scored((len(node_ids),), needed.num_nodes, needed.num_edges, in_order, apart)


def _tiles(flags: Callable[[int, int], Array], count: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    """Yields (rows that are wanted, rows from the first to the last one that is read) of each tile with a wanted row.

    Args:
        flags: (low, high) -> bool[high - low], whether rows from low to high are wanted.
    """
    tile = tile_rows(row_bytes)
    for low in range(0, count, tile):
        high = min(low + tile, count)
        places = np.flatnonzero(flags(low, high))
        if len(places):
            whole = 2 * len(places) >= high - low
            yield len(places), high - low if whole else int(places[-1] - places[0]) + 1
