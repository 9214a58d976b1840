"""What a full-graph training takes, without torch: memory on the CPU, and bytes and seconds of an epoch.

The terms of memory are of all ranks of a machine together. They share the rows of all nodes and the kept blocks; each has a process, a
model, buffers for its parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from math import ceil
from typing import Any

from graphmill.assets.chunks.read import cut_of, open_chunks
from graphmill.assets.costs.needs import Term
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.trainers.recipe.costs.batch import batch_sizes, drawn_bound
from graphmill.trainers.recipe.costs.course import Case, Scored
from graphmill.trainers.recipe.costs.device import cached_terms, model_terms
from graphmill.trainers.recipe.costs.edge_rows import LISTED_BYTES, PLACE_BYTES, SORTED_BYTES, edge_row_bytes
from graphmill.trainers.recipe.costs.exact import link_rows_bytes, score_bytes
from graphmill.trainers.recipe.costs.forecast import COMPUTING, EXCHANGING, FORWARD, Costs
from graphmill.trainers.recipe.costs.memory import (
    HEAP,
    STEP,
    evaluation_terms,
    parameter_term,
    process_terms,
    row_terms,
    sampler_terms,
)
from graphmill.trainers.recipe.costs.node_rows import node_row_terms
from graphmill.trainers.recipe.costs.step import item_bytes, parameter_bytes, step_bytes
from graphmill.trainers.techniques.fullgraph.links import booked_links, edge_columns, pass_links
from graphmill.trainers.techniques.fullgraph.memory import (
    BLOCKS,
    FILL_BYTES,
    ROWS,
    ChunkCounts,
    Way,
    device_bytes,
    fixed_first,
    held_on_host,
    keeps_aggregate,
    largest,
    layer_shapes,
    reads_own,
)
from graphmill.trainers.techniques.fullgraph.volumes import PassVolumes, held_terms, volumes

ROW_COPIES = 2
"""Copies in order that take as long as one of rows, which are gathered."""


def pass_seconds(case: Case) -> tuple[Mapping[str, float], float]:
    """Returns (piece -> seconds of an epoch, seconds of an epoch): a pass over all nodes, visits to chunks, and copies of their rows."""
    speeds, ranks, threads = case.speeds, case.ranks, case.threads
    assert speeds is not None
    links, _, features = ({}, True, 0.0) if case.settings.mode == "device" else booked_links(case)
    # Ranks that have fewer cores than threads take turns.
    used = min(case.cores, ranks * threads)
    grown = case.sizes.num_edges / max(1.0, speeds.edges)
    found = volumes(case) if case.settings.mode != "device" else None
    computing = grown * speeds.at("whole" if found is None else "layers", threads) * threads / used
    visits = 0.0 if found is None else speeds.at("visit", found.parts) * found.parts * found.steps / ranks
    moved = sum(links.get(link, 0.0) for link in ("h2d", "d2h", "d2d"))
    copied = ROW_COPIES * moved / speeds.copy_rate / ranks if speeds.copy_rate else 0.0
    # Each pass reads a table that does not stay in memory anew.
    away = case.feature_place != "memory" and not case.fits and speeds.disk_rate > 0
    copied += features / speeds.disk_rate if away else 0.0
    copied += links.get("disk", 0.0) / speeds.disk_rate if speeds.disk_rate else 0.0
    copied = max(copied, _crossing(case, links, found) - case.settings.overlap * (computing + visits))
    exchanging = 0.0
    if ranks > 1:
        calls = 2 * case.semantic.train.layers * (found.steps if found else 1)
        moved = links.get("rank", 0.0) / ranks / speeds.rank_rate if speeds.rank_rate else 0.0
        exchanging = moved + calls * speeds.call
    return {COMPUTING: computing + visits, EXCHANGING: exchanging}, computing + visits + copied + exchanging


def _crossing(case: Case, links: Mapping[str, float], found: PassVolumes | None) -> float:
    """Returns the seconds in which modelled links carry the rows of an epoch, each direction on its own; 0 without any."""
    gbps, settings = case.execution.link_gbps, case.settings
    if gbps is None or found is None:
        return 0.0
    devices = settings.devices or found.parts
    return max(links.get("h2d", 0.0), links.get("d2h", 0.0)) / devices / (gbps * 1e9)


def evaluated(case: Case, scored: Scored) -> float:
    """Returns the seconds of an evaluation: the forward half of a pass, of all nodes whatever is scored."""
    return FORWARD * pass_seconds(case)[1]


CHUNKS, CHUNK = "[chunks] chunks_per_part", "a chunk's rows and activations"
MESSAGE_COPIES = 3
"""Copies of the rows that come to a rank in a step: as sent, as received, and aligned."""
HOLES, LARGE_BYTES = 0.6, 64 << 20
"""Share of an uncut step's activations that the heap holds at most beside them, in holes between tensors of this size and more."""


def _memory(case: Case) -> list[Term]:
    """Returns the terms of a training cut into chunks, or uncut, which one process does."""
    uncut = case.settings.mode == "device"
    case = replace(case, ranks=1) if uncut else case
    passes = _uncut(case) if uncut else _cut(case)
    found = [
        *process_terms(case),
        *passes,
        parameter_term(case, case.ranks),
        *(_rank_terms(case) if case.ranks > 1 else []),
        *_evaluated(case, sum(term.most for term in passes if term.name in (STEP, CHUNK))),
        *_from_head(case),
        *(term.times(case.ranks) for term in row_terms(case)),
        *held_terms(case),
    ]
    if uncut:
        return found
    # The common terms, which are added to those of every technique, are held beside rows as well.
    others = sum(term.most for term in (*found, *node_row_terms(case)))
    bound = "chunks" not in case.sizes.artifacts
    room = held_on_host(host_bytes(case), _counted(case)[2], others, case.free)
    return [*found, Term(ROWS, room.rows, "hidden", bound, enough=0), Term(BLOCKS, room.blocks, bound=bound)]


def _evaluated(case: Case, free: int) -> list[Term]:
    """Returns the terms of an evaluation by sampled batches beyond the memory of a pass, which is given back first; each rank has one.

    An exact evaluation is a forward pass, cut or not, with what the training holds, in less memory than a step takes. Of links it is
    followed by their ranks, with the rows of all nodes, which each rank has.

    Args:
        free: bytes of a step that are free again.
    """
    sampling, ranks = case.semantic.sampling, case.ranks
    if case.semantic.train.predicts_links:
        uncut, rows = case.settings.mode == "device", link_rows_bytes(case)
        held = Term("rows of all nodes for the scores of links", ranks * rows * (uncut or ranks > 1), "hidden")
        return [held, Term("ranks of links", max(0, ranks * score_bytes(case) - free), bound=True)]
    if case.semantic.train.eval == "exact" or sampling is None:
        return []
    drawn = replace(case, batch=drawn_bound(sampling, case.sizes, batch_sizes(sampling, case.sizes)))
    found = [*sampler_terms(drawn)]
    for term in (each.times(ranks) for each in evaluation_terms(drawn, 0)):
        again = min(free, term.most)
        found.append(replace(term, most=term.most - again, likely=max(0, term.expected - again)))
        free -= again
    return found


def _from_head(case: Case) -> list[Term]:
    """Returns the term of the gradients that a head gives to the outputs of the ends of links, which wait for their layers."""
    train = case.semantic.train
    if not train.predicts_links or train.head != "linear" or case.settings.mode == "device":
        return []
    ends, read = min(case.sizes.num_nodes, 2 * case.batch.pairs), train.layers if train.jk != "none" else 1
    num_bytes = ends * read * train.hidden * item_bytes(train)
    return [Term("gradients of the outputs of the ends of links", num_bytes, "hidden", bound=True)]


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
        Term(STEP, max(0, activations - first), "hidden", bound),
        Term("holes between activations", holes, "hidden", bound=True, likely=0),
        *_edges_of_all(case),
    ]


def _edges_of_all(case: Case) -> list[Term]:
    """Returns the terms of the rows of all edges beside an uncut graph, and of the places of its edges while these are found."""
    sizes, train = case.sizes, case.semantic.train
    if not train.edge_features:
        return []
    return [
        Term("rows of all edges", sizes.num_edge_rows * edge_row_bytes(train, sizes), bound=True),
        Term("places of edges while they are found", SORTED_BYTES * sizes.num_edges, bound=True, likely=0),
    ]


def _keeps_first(case: Case) -> bool:
    """Returns whether the first layer's aggregates of the features are kept from step to step."""
    return case.settings.keep_first and fixed_first(case.semantic.train)


def _cut(case: Case) -> list[Term]:
    train, sizes, ranks = case.semantic.train, case.sizes, case.ranks
    counts, num_parts, _ = _counted(case)
    way = Way(hybrid=case.settings.hybrid, parts=-(-num_parts // ranks))
    num_parameters = parameter_bytes(train, sizes.width, case.num_classes) // item_bytes(train)
    of_chunk: Any = (train, sizes.width, case.num_classes, num_parameters, counts, way)
    held = expected = device_bytes(*of_chunk, edge_width=edge_columns(case))
    if _keeps_first(case):
        # The aggregates and own rows that the first layer's update reads, of a chunk of each part.
        read = way.parts * counts.nodes * ((1 + reads_own(train)) * case.row_bytes + edge_row_bytes(train, sizes))
        expected = device_bytes(*of_chunk, kept_first=True, edge_width=edge_columns(case)) + read
        # The first pass fills the first layer's buffer of each part once, without gradients, through windows.
        buffers = counts.rows * case.row_bytes
        filled = way.parts * buffers + min(buffers, 2 * FILL_BYTES)
        held = max(expected, filled + block_bytes(case, counts.nodes, counts.edges, counts.rows))
    # A device with memory of its own holds them itself.
    on_host = ranks * (train.device == "cpu")
    most, likely = (on_host * int(HEAP * each) for each in (held, expected))
    return [Term(CHUNK, most, CHUNKS, bound=True, likely=likely)]


def _rank_terms(case: Case) -> list[Term]:
    """Returns the terms of what ranks send each other in a step, and of the places of nodes."""
    train, width, ranks = case.semantic.train, case.sizes.width, case.ranks
    counts, num_parts, _ = _counted(case)
    read = [shape.read for shape in layer_shapes(train, width, case.num_classes, edge_columns(case))]
    rows = counts.rows * max(read) * item_bytes(train) * -(-num_parts // ranks)
    most = ranks * MESSAGE_COPIES * rows
    likely = int(max(read[1:], default=0) / max(read) * most) if _keeps_first(case) else most
    # Of links each rank has outputs and gradients of all ends.
    ends = ranks * MESSAGE_COPIES * link_rows_bytes(case)
    # Those of this rank's chunks, and of all chunks as they come and as tensors.
    gradients = 3 * num_parts * parameter_bytes(train, width, case.num_classes)
    return [
        Term("places of rows", ranks * 4 * case.sizes.num_nodes),
        Term("rows of other ranks for a step", most, CHUNKS, bound=True, likely=likely),
        Term("gradients of a step's chunks", ranks * gradients, "hidden", bound=True),
        *([Term("outputs of the ends of links on every rank", ends, "hidden", bound=True)] if ends else []),
    ]


def _device(case: Case) -> list[Term]:
    """Returns the terms of a GPU that has all parts of a process, or the whole graph."""
    settings, sizes, train = case.settings, case.sizes, case.semantic.train
    if settings.mode == "device":
        return [*model_terms(case), *_uncut(case)]
    counts, num_parts, _ = _counted(case)
    parts = -(-num_parts // max(1, settings.devices))
    way = Way(hybrid=settings.hybrid, parts=parts, devices=max(1, settings.devices), overlap=settings.overlap)
    num_parameters = parameter_bytes(train, sizes.width, case.num_classes) // item_bytes(train)
    held = device_bytes(train, sizes.width, case.num_classes, num_parameters, counts, way)
    return [*model_terms(case), Term(CHUNK, held, CHUNKS, bound=True), *cached_terms(case)]


def host_bytes(case: Case) -> int:
    """Returns the most bytes of rows of all nodes at once: outputs and aggregates or mapped rows up to a layer, and gradients."""
    train, way = case.semantic.train, Way(hybrid=case.settings.hybrid)
    shapes = layer_shapes(train, case.sizes.width, case.num_classes, edge_columns(case))
    projected = train.hidden if train.projects else 0
    first = _keeps_first(case)
    outputs = list(accumulate(shape.out * (1 + shape.batch_norm) for shape in shapes))
    kept = list(
        accumulate(shape.kept(way) or first * (not index) * shape.aggregate for index, shape in enumerate(shapes))
    )
    most = (
        outputs[-1] + kept[-1] + 2 * train.hidden * train.predicts_links
    )  # outputs and gradients of the ends of links
    for index, shape in enumerate(shapes):
        below = (outputs[index] - shape.out * (1 + shape.batch_norm)) + kept[index]
        mapped = shape.read * shape.apart  # mapped rows in the forward pass, their gradients in the backward one
        result = shape.out * keeps_aggregate(train)  # the output, which tells the gradient below it
        normed = 2 * shape.out * shape.batch_norm  # gradients of what is normalised, with those of the output
        most = max(most, below + max(result, normed) + shape.out + mapped + (shape.width if shape.needed else 0))
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
    placed = (PLACE_BYTES + LISTED_BYTES) * train.edge_features
    return edges * (12 + weights + placed) + nodes * (12 + 4 * weighted) + rows * (4 + case.sizes.id_bytes)


COSTS = Costs(memory=_memory, links=pass_links, seconds=pass_seconds, evaluated=evaluated, device=_device)
