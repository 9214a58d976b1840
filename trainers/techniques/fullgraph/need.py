"""The memory of a full-graph training on the CPU, term by term, without torch: rows of all nodes, kept blocks, and what a device holds.

The terms are of all ranks of a machine together. They share the rows of all nodes and the blocks; each has a process, a model, buffers for
its parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from math import ceil
from typing import Any

from graphmill.assets.building.needs import Term
from graphmill.assets.chunks.need import cut_of
from graphmill.assets.chunks.read import open_chunks
from graphmill.assets.storage.control_group import free_bytes
from graphmill.assets.storage.user_code import is_reference
from graphmill.trainers.recipe.batch_sizes import batch_sizes
from graphmill.trainers.recipe.need import (
    HEAP,
    LAUNCHER_BYTES,
    Case,
    evaluation_terms,
    parameter_term,
    process_terms,
    row_terms,
    sampler_terms,
)
from graphmill.trainers.recipe.step_bytes import item_bytes, parameter_bytes, step_bytes
from graphmill.trainers.recipe.terms import LAUNCHER
from graphmill.trainers.techniques.fullgraph.memory import (
    ChunkCounts,
    Way,
    device_bytes,
    fixed_first,
    keeps_aggregate,
    largest,
    layer_shapes,
    reads_own,
)

CHUNKS = "[chunks] chunks_per_part"
CHUNK_ROWS, OTHER_ROWS = "a chunk's rows and activations", "rows of other ranks for a step"
STEP, HOLES_TERM = "activations of a step", "holes between activations"
KEPT_BLOCKS_SHARE = 4
"""Prepared blocks stay in memory up to the free memory divided by this number."""
MESSAGE_COPIES = 3
"""Copies of the rows that come to a rank in a step: as sent, as received, and aligned."""
HOLES = 0.6
"""Share of an uncut step's activations that the heap holds at most beside them, in holes between tensors of 100 MB and more."""
ROWS_SHARE = 2
"""Rows of all nodes stay in memory up to the free memory divided by this number."""


def terms(case: Case) -> list[Term]:
    """Returns the terms of `fullgraph`: cut into chunks, or uncut."""
    settings: Any = case.semantic.train.settings
    ranks = 1 if settings.mode == "device" else case.ranks
    found = _uncut(case) if settings.mode == "device" else _cut(case, settings, ranks)
    rows = [term.times(ranks) for term in row_terms(case)]
    return [
        *([Term(LAUNCHER, LAUNCHER_BYTES)] if ranks > 1 else []),
        *process_terms(case, ranks),
        *found,
        parameter_term(case, ranks),
        *(_rank_terms(case, settings, ranks) if ranks > 1 else []),
        *_evaluated(case, ranks),
        *rows,
    ]


def _evaluated(case: Case, ranks: int) -> list[Term]:
    """Returns the terms of an evaluation by sampled batches, after a pass whose memory is free again; each rank has one.

    An exact evaluation is a forward pass, cut or not, with what the training holds, in less memory than a step takes.
    """
    sampling = case.semantic.sampling
    if case.semantic.train.eval == "exact" or sampling is None:
        return []
    drawn = replace(case, batch=batch_sizes(sampling, case.sizes))
    waiting = [term.times(ranks) for term in evaluation_terms(drawn, 0)]
    return [*waiting, *sampler_terms(drawn, ranks)]


def _uncut(case: Case) -> list[Term]:
    train, sizes, batch = case.semantic.train, case.sizes, case.batch
    block = block_bytes(case, sizes.num_nodes, sizes.num_edges, sizes.num_nodes)  # one for all layers
    step = step_bytes(train, sizes.width, max(2, sizes.num_classes), batch)
    return [
        Term("the whole graph as a block", block, bound=not sizes.exact),
        Term("features on the device", sizes.num_nodes * case.row_bytes, bound=not sizes.exact),
        *_first_sums(case),
        Term(STEP, int(HEAP * step), "hidden", bound=not sizes.exact),
        Term(HOLES_TERM, int(HOLES * step), "hidden", bound=True),
    ]


def _first_sums(case: Case) -> list[Term]:
    """Returns the term of the first layer's kept aggregates, in place of the features where no layer reads a node's own."""
    train, sizes = case.semantic.train, case.sizes
    settings: Any = train.settings
    if not fixed_first(train) or not settings.keep_first or not reads_own(train):
        return []
    num_bytes = sizes.num_nodes * sizes.width * item_bytes(train)
    return [Term("sums of the features", num_bytes, "fullgraph.keep_first", bound=not sizes.exact)]


def _cut(case: Case, settings: Any, ranks: int) -> list[Term]:
    train, sizes = case.semantic.train, case.sizes
    rows = host_bytes(case, settings)
    free, sure = free_bytes(), "chunks" in sizes.artifacts
    counts, num_parts, blocks = _counted(case, settings.mode)
    classes = max(2, sizes.num_classes)
    num_parameters = parameter_bytes(train, sizes.width, classes) // item_bytes(train)
    own_parts = -(-num_parts // ranks)
    held = device_bytes(
        train, sizes.width, classes, num_parameters, counts, Way(hybrid=settings.hybrid, parts=own_parts)
    )
    kept = blocks if free is None else min(blocks, free // KEPT_BLOCKS_SHARE)
    spills = free is not None and ROWS_SHARE * rows > free
    return [
        Term("rows of all nodes between layers", 0 if spills else rows, "hidden", bound=not sure),
        Term(CHUNK_ROWS, ranks * int(HEAP * held), CHUNKS, bound=True),
        Term("blocks of chunks", kept, bound=not sure),
    ]


def _rank_terms(case: Case, settings: Any, ranks: int) -> list[Term]:
    """Returns the terms of what ranks send each other in a step, and of the places of nodes."""
    train, sizes = case.semantic.train, case.sizes
    counts, num_parts, _ = _counted(case, settings.mode)
    shapes = layer_shapes(train, sizes.width, max(2, sizes.num_classes))
    rows = counts.rows * max(shape.read for shape in shapes) * item_bytes(train) * -(-num_parts // ranks)
    # Those of this rank's chunks, and of all chunks as they come and as tensors.
    gradients = 3 * num_parts * parameter_bytes(train, sizes.width, max(2, sizes.num_classes))
    return [
        Term("places of rows", ranks * 4 * sizes.num_nodes),
        Term(OTHER_ROWS, ranks * MESSAGE_COPIES * rows, CHUNKS, bound=True),
        Term("gradients of a step's chunks", ranks * gradients, "hidden", bound=True),
    ]


def host_bytes(case: Case, settings: Any) -> int:
    """Returns the most bytes of rows of all nodes at once: outputs and aggregates or mapped rows up to a layer, and gradients."""
    train, sizes, way = case.semantic.train, case.sizes, Way(hybrid=settings.hybrid)
    shapes = layer_shapes(train, sizes.width, max(2, sizes.num_classes))
    projected = train.hidden if train.projects else 0
    first = settings.keep_first and fixed_first(train)
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
    return int(HEAP * (projected + most) * sizes.num_nodes * item_bytes(train))


def expected_terms(case: Case, memory: Mapping[str, int]) -> dict[str, int]:
    """Returns term -> bytes of the terms of a training, with what its kept aggregates of features spare.

    Args:
        case: the training.
        memory: term -> bytes by the bounds of `terms`.
    """
    train, sizes = case.semantic.train, case.sizes
    settings: Any = train.settings
    found = {what: num_bytes for what, num_bytes in memory.items() if what != HOLES_TERM}
    if not (settings.keep_first and fixed_first(train)):
        return found
    if settings.mode == "device":
        # Its activations are counted with the first layer's aggregates and own rows, which are there between the steps.
        first = (1 + reads_own(train)) * sizes.num_nodes * sizes.width * item_bytes(train)
        return found | {STEP: max(0, found[STEP] - int(HEAP * first))}
    counts, num_parts, _ = _counted(case, settings.mode)
    classes, own_parts = max(2, sizes.num_classes), -(-num_parts // case.ranks)
    num_parameters = parameter_bytes(train, sizes.width, classes) // item_bytes(train)
    way = Way(hybrid=settings.hybrid, parts=own_parts)
    held = device_bytes(train, sizes.width, classes, num_parameters, counts, way, kept_first=True)
    # The aggregates and own rows that the first layer's update reads, of a chunk of each part.
    held += own_parts * counts.nodes * (1 + reads_own(train)) * sizes.width * item_bytes(train)
    found[CHUNK_ROWS] = case.ranks * int(HEAP * held)
    if OTHER_ROWS in found:
        shapes = layer_shapes(train, sizes.width, classes)
        share = max((shape.read for shape in shapes[1:]), default=0) / max(shape.read for shape in shapes)
        found[OTHER_ROWS] = int(share * found[OTHER_ROWS])
    return found


def _counted(case: Case, mode: Any) -> tuple[ChunkCounts, int, int]:
    """Returns counts of the largest chunk, the number of parts, and the bytes of all blocks; of even chunks where they are not cut yet."""
    sizes = case.sizes
    if "chunks" in sizes.artifacts:
        chunks = open_chunks(sizes.artifacts["chunks"])
        totals = (int(getattr(chunks.counts, name).sum()) for name in ("destinations", "edges", "buffer_rows"))
        return largest(chunks.counts, mode), chunks.num_parts, block_bytes(case, *totals)
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
