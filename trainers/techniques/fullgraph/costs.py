"""What a full-graph training on the CPU takes, without torch: rows of all nodes, kept blocks, and what a device holds.

The terms are of all ranks of a machine together. They share the rows of all nodes and the blocks; each has a process, a model, buffers for
its parts.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from math import ceil
from typing import Any

from graphmill.assets.chunks.costs import cut_of
from graphmill.assets.chunks.read import open_chunks
from graphmill.assets.costs.needs import Term
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.assets.storage.system.control_group import free_bytes
from graphmill.trainers.recipe.costs.batch import batch_sizes
from graphmill.trainers.recipe.costs.course import Case
from graphmill.trainers.recipe.costs.drawn import drawn_bound
from graphmill.trainers.recipe.costs.forecast import Costs
from graphmill.trainers.recipe.costs.memory import (
    HEAP,
    evaluation_terms,
    parameter_term,
    process_terms,
    row_terms,
    sampler_terms,
)
from graphmill.trainers.recipe.costs.step import item_bytes, parameter_bytes, step_bytes
from graphmill.trainers.techniques.fullgraph.plan.memory import (
    KEPT_BLOCKS_SHARE,
    ROWS_SHARE,
    ChunkCounts,
    Way,
    device_bytes,
    fixed_first,
    keeps_aggregate,
    largest,
    layer_shapes,
    reads_own,
)
from graphmill.trainers.techniques.fullgraph.plan.volumes import pass_links, pass_seconds

CHUNKS = "[chunks] chunks_per_part"
ROWS, BLOCKS = "rows of all nodes between layers", "blocks of chunks"
"""Terms that depend on the memory that is free here."""
MESSAGE_COPIES = 3
"""Copies of the rows that come to a rank in a step: as sent, as received, and aligned."""
HOLES, LARGE_BYTES = 0.6, 64 << 20
"""Share of an uncut step's activations that the heap holds at most beside them, in holes between tensors of this size and more."""


def _memory(case: Case) -> list[Term]:
    """Returns the terms of a training cut into chunks, or uncut, which one process does."""
    uncut = case.settings.mode == "device"
    case = replace(case, ranks=1) if uncut else case
    return [
        *process_terms(case),
        *(_uncut(case) if uncut else _cut(case)),
        parameter_term(case, case.ranks),
        *(_rank_terms(case) if case.ranks > 1 else []),
        *_evaluated(case),
        *(term.times(case.ranks) for term in row_terms(case)),
    ]


def _evaluated(case: Case) -> list[Term]:
    """Returns the terms of an evaluation by sampled batches, after a pass whose memory is free again; each rank has one.

    An exact evaluation is a forward pass, cut or not, with what the training holds, in less memory than a step takes.
    """
    sampling, ranks = case.semantic.sampling, case.ranks
    if case.semantic.train.eval == "exact" or sampling is None:
        return []
    drawn = replace(case, batch=drawn_bound(sampling, case.sizes, batch_sizes(sampling, case.sizes)))
    return [*(term.times(ranks) for term in evaluation_terms(drawn, 0)), *sampler_terms(drawn)]


def _uncut(case: Case) -> list[Term]:
    train, sizes, nodes = case.semantic.train, case.sizes, case.sizes.num_nodes
    block = block_bytes(case, nodes, sizes.num_edges, nodes)  # one for all layers
    step, features = step_bytes(train, sizes.width, case.num_classes, case.batch), nodes * case.row_bytes
    activations, bound = int(HEAP * step), not sizes.exact
    # Activations are counted with the first layer's aggregates and own rows, which are there between the steps if they are kept.
    first = int(HEAP * ((1 + reads_own(train)) * features)) if _keeps_first(case) else 0
    # In place of the features where no layer reads a node's own.
    sums = [Term("sums of the features", features, "fullgraph.keep_first", bound)]
    widest = nodes * max(train.hidden, 0 if first else sizes.width) * item_bytes(train)
    holes = int(HOLES * step) if widest >= LARGE_BYTES else 0
    return [
        Term("the whole graph as a block", block, bound=bound),
        Term("features on the device", features, bound=bound),
        *(sums if _keeps_first(case) and reads_own(train) else []),
        Term("activations of a step", max(0, activations - first), "hidden", bound),
        Term("holes between activations", holes, "hidden", bound=True, likely=0),
    ]


def _keeps_first(case: Case) -> bool:
    """Returns whether the first layer's aggregates of the features are kept from step to step."""
    return case.settings.keep_first and fixed_first(case.semantic.train)


def _cut(case: Case) -> list[Term]:
    train, sizes, ranks = case.semantic.train, case.sizes, case.ranks
    rows, free, bound = host_bytes(case), free_bytes(), "chunks" not in sizes.artifacts
    counts, num_parts, blocks = _counted(case)
    way = Way(hybrid=case.settings.hybrid, parts=-(-num_parts // ranks))
    num_parameters = parameter_bytes(train, sizes.width, case.num_classes) // item_bytes(train)
    of_chunk: Any = (train, sizes.width, case.num_classes, num_parameters, counts, way)
    held = expected = device_bytes(*of_chunk)
    if _keeps_first(case):
        # The aggregates and own rows that the first layer's update reads, of a chunk of each part.
        read = way.parts * counts.nodes * (1 + reads_own(train)) * case.row_bytes
        expected = device_bytes(*of_chunk, kept_first=True) + read
        # The first pass fills the first layer's buffer once, without gradients: rows, and a second copy of those that enter.
        held = max(
            expected, 2 * counts.rows * case.row_bytes + block_bytes(case, counts.nodes, counts.edges, counts.rows)
        )
    kept = blocks if free is None else min(blocks, free // KEPT_BLOCKS_SHARE)
    spills = free is not None and ROWS_SHARE * rows > free
    most, likely = (ranks * int(HEAP * each) for each in (held, expected))
    return [
        Term(ROWS, 0 if spills else rows, "hidden", bound),
        Term("a chunk's rows and activations", most, CHUNKS, bound=True, likely=likely),
        Term(BLOCKS, kept, bound=bound),
    ]


def _rank_terms(case: Case) -> list[Term]:
    """Returns the terms of what ranks send each other in a step, and of the places of nodes."""
    train, width, ranks = case.semantic.train, case.sizes.width, case.ranks
    counts, num_parts, _ = _counted(case)
    read = [shape.read for shape in layer_shapes(train, width, case.num_classes)]
    rows = counts.rows * max(read) * item_bytes(train) * -(-num_parts // ranks)
    most = ranks * MESSAGE_COPIES * rows
    likely = int(max(read[1:], default=0) / max(read) * most) if _keeps_first(case) else most
    # Those of this rank's chunks, and of all chunks as they come and as tensors.
    gradients = 3 * num_parts * parameter_bytes(train, width, case.num_classes)
    return [
        Term("places of rows", ranks * 4 * case.sizes.num_nodes),
        Term("rows of other ranks for a step", most, CHUNKS, bound=True, likely=likely),
        Term("gradients of a step's chunks", ranks * gradients, "hidden", bound=True),
    ]


def host_bytes(case: Case) -> int:
    """Returns the most bytes of rows of all nodes at once: outputs and aggregates or mapped rows up to a layer, and gradients."""
    train, way = case.semantic.train, Way(hybrid=case.settings.hybrid)
    shapes = layer_shapes(train, case.sizes.width, case.num_classes)
    projected = train.hidden if train.projects else 0
    first = _keeps_first(case)
    outputs = list(accumulate(shape.out for shape in shapes))
    kept = list(
        accumulate(shape.kept(way) or first * (not index) * shape.aggregate for index, shape in enumerate(shapes))
    )
    most = outputs[-1] + kept[-1]
    for index, shape in enumerate(shapes):
        below = (outputs[index] - shape.out) + kept[index]
        mapped = shape.read * shape.apart  # mapped rows in the forward pass, their gradients in the backward one
        result = shape.out * keeps_aggregate(train)  # the output, which tells the gradient below it
        most = max(most, below + result + shape.out + mapped + (shape.width if shape.needed else 0))
    return int(HEAP * (projected + most) * case.sizes.num_nodes * item_bytes(train))


def _counted(case: Case) -> tuple[ChunkCounts, int, int]:
    """Returns counts of the largest chunk, the number of parts, and the bytes of all blocks; of even chunks where they are not cut yet."""
    sizes = case.sizes
    if "chunks" in sizes.artifacts:
        chunks = open_chunks(sizes.artifacts["chunks"])
        totals = (int(getattr(chunks.counts, name).sum()) for name in ("destinations", "edges", "buffer_rows"))
        return largest(chunks.counts, case.settings.mode), chunks.num_parts, block_bytes(case, *totals)
    parts, each = cut_of(sizes)
    steps = parts * each
    nodes, edges = ceil(sizes.num_nodes / steps), ceil(sizes.num_edges / steps)
    rows = min(sizes.num_nodes, nodes + edges)
    counts = ChunkCounts(nodes=nodes, edges=edges, rows=rows, loaded=rows)
    return counts, parts, block_bytes(case, sizes.num_nodes, sizes.num_edges, steps * rows)


def block_bytes(case: Case, nodes: int, edges: int, rows: int) -> int:
    """Returns the bytes of blocks with their transposes and weights, from the numbers of their destinations, edges and sources."""
    train = case.semantic.train
    weighted = (
        train.model in ("gcn", "gin")
        or train.aggregator in ("gcn", "sum")
        or train.edge_weight
        or is_reference(train.model)
    )
    weights = 4 * weighted * (1 + keeps_aggregate(train))  # those of sums in the order of the transpose, too
    return edges * (12 + weights) + nodes * (12 + 4 * weighted) + rows * (4 + case.sizes.id_bytes)


COSTS = Costs(memory=_memory, links=pass_links, seconds=pass_seconds)
