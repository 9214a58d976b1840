"""The bytes of an exact evaluation in one process, with its scores, and of what is known of links besides; without torch.

trainers/inference/exact.py says how the workspace W is divided. A set of rows of all nodes is in memory if it fits its share, and else in a
file; what a layer sums is in memory as far as W / 2 allows, the rest of its columns in a file. Before a training rows of nodes that the
scored ones do not reach are counted, too: how many they are is known when an evaluation has walked the graph.

Layers that sum their sources in memory have the same bits in any workspace, so an evaluation takes the largest one that fits the memory
that is free when it begins (`fitting_workspace`). Other layers keep to the workspace of the table.

An evaluation of links has the rows of all nodes, in memory or in a file, and ranks some links at a time: ends that stay, and one tile of
their scores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from graphmill.assets.costs.needs import Sizes, Term, sizes_of
from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.names.user_code import is_reference
from graphmill.assets.storage.system.machine import usable_cores
from graphmill.trainers.recipe.architecture import DISTANCE_HEADS, LABEL_HEADS
from graphmill.trainers.recipe.config import ModelConfig, TrainConfig
from graphmill.trainers.recipe.costs.batch import whole_batch
from graphmill.trainers.recipe.costs.course import Case
from graphmill.trainers.recipe.costs.edge_rows import ID_BYTES, LISTED_BYTES, PLACE_BYTES, SORTED_BYTES, edge_row_bytes
from graphmill.trainers.recipe.costs.step import item_bytes, layer_widths
from graphmill.trainers.recipe.execution import TrainExecution
from graphmill.trainers.recipe.techniques import find_technique

WINDOW_BYTES = 16 << 20
"""Windows of a file of features that is read in order: one is read while another is computed with."""
TILE_ROWS, TILE_BYTES = (64, 4096), 8 << 20
"""Least and most rows of a tile, and the bytes of its rows between the two."""
AHEAD_BYTES = 8 << 20
"""Bytes of tiles that wait for a thread, and of results that wait to be written (trainers/devices/side_by_side.py)."""
EDGE_BYTES, TILE_EDGE_BYTES = 32, 48
"""Bytes of an edge of a range of destinations: its ids in the graph and in the block, its place in the order of reading, its weight; and of
an edge of a tile that sums its sources where they are."""
SKEW = 4
"""Edges of the tiles at hand over those of as many mean ones."""
LOGIT_COPIES = 3
"""Copies of the scored nodes' logits: of all ranges, in the order that was asked for, and for the score."""
RESULT_SHARE = 8
"""Divisor of the workspace, for the rows of all nodes by which links are scored: more are in a file unless twice as much is free."""
LEAST_WORKSPACE, WORKSPACE_STEPS = 16 << 20, 32
"""Workspace below which what an evaluation holds besides is more than the workspace; and parts of one, all or some of which are taken."""
Needs = Callable[..., int]
"""Workspace, and `rows` -> bytes of an exact evaluation at most (`exact_bytes`)."""
PAGES_BYTES = 32 << 20
"""Pages of libraries and of mapped files that a training touches all the time: without space for them it reads them again and again."""


def fitting_workspace(needs: Callable[[int], int], most: int, free: int) -> int:
    """Returns the largest workspace with which an exact evaluation fits the memory that is free, in bytes; a small one if none does.

    Args:
        needs: workspace -> bytes of the evaluation at most (`exact_bytes`).
    """
    sizes = (most * part // WORKSPACE_STEPS for part in range(WORKSPACE_STEPS, 0, -1))
    least = min(most, LEAST_WORKSPACE)
    return next((each for each in sizes if each > least and needs(each) <= free), least)


def exact_needs(semantic: ModelConfig, execution: TrainExecution, artifacts: Mapping[str, Artifact]) -> Needs | None:
    """Returns the function that counts the bytes of an exact evaluation of a training on some artifacts; None if the graph is not known."""
    sizes = sizes_of(artifacts)
    if sizes is None:
        return None
    batch = whole_batch(semantic.train.layers, sizes)
    case = Case(semantic=semantic, execution=execution, sizes=sizes, batch=batch, cores=usable_cores())
    return partial(exact_bytes, case)


def exact_bytes(case: Case, workspace: int = 0, rows: Sequence[int] = ()) -> int:
    """Returns the most bytes that one process takes for an exact evaluation.

    Args:
        rows: numbers of rows of layers that sum their sources where they are: of the features, and of the outputs of each layer; () for
            those of all nodes.
    """
    train, sizes = case.semantic.train, case.sizes
    workspace = workspace or parse_size(train.eval_workspace)
    layers, item = train.layers, item_bytes(train)
    whole, rows = sums_where_they_are(case), rows or [sizes.num_nodes] * (layers + 1)
    found = _whole_bytes(case, workspace, rows) if whole else _gathered_bytes(case, workspace)
    found = 0 if train.model == "rows" else found
    found += sizes.num_nodes * (3 * layers + 11) // 8
    if train.predicts_links:
        result = link_rows_bytes(case)
        return max(found, score_bytes(case)) + (result if result <= workspace // RESULT_SHARE else 0)
    scored = sizes.num_train + sizes.num_valid + sizes.num_test
    return found + LOGIT_COPIES * scored * case.num_classes * item


def link_rows_bytes(case: Case) -> int:
    """Returns the bytes of the rows of all nodes by which links are scored; 0 for other tasks."""
    train = case.semantic.train
    return case.sizes.num_nodes * train.hidden * item_bytes(train) * train.predicts_links


def most_exact_bytes(case: Case) -> int:
    """Returns the most bytes of an exact evaluation by one process, with the rows of links that go to a file only if memory is short."""
    found, result = exact_bytes(case), link_rows_bytes(case)
    return found + (result if result > parse_size(case.semantic.train.eval_workspace) // RESULT_SHARE else 0)


def sums_where_they_are(case: Case) -> bool:
    """Returns whether layers sum their sources where they are (`sums_in_memory`, trainers/inference/whole.py)."""
    train, sampling = case.semantic.train, case.semantic.sampling
    drawn = sampling is not None and sampling.method not in ("uniform", "")
    shared = case.ranks > 1 or find_technique(train.trainer).own_shards
    other = train.aggregator == "max" or train.dtype == "bf16"
    return train.model in ("sage", "gcn", "gin", "gat") and not (drawn or shared or other or train.edge_features)


def _whole_bytes(case: Case, workspace: int, rows: Sequence[int]) -> int:
    """Returns the bytes of the sets of rows of the layer that has the most, and of a tile."""
    train, item = case.semantic.train, item_bytes(case.semantic.train)

    def kept(nodes: int, width: int) -> int:
        num_bytes = nodes * width * item
        return num_bytes if num_bytes <= workspace // 8 else 0

    def summed(nodes: int, width: int) -> int:
        return min(workspace // 2, nodes * width * item)

    most, inputs = 0, kept(rows[0], train.hidden) if train.projects else 0
    for number, (wide, out) in enumerate(layer_widths(train, case.sizes.width, case.num_classes)):
        narrow, own = layer_rows(train, number, wide, out)
        sources, results = rows[number : number + 2]
        scores = kept(sources, train.heads) if train.model == "gat" else 0
        # Rows of a layer below are summed where they are.
        mapped = summed(sources, narrow) + kept(results, own) + scores
        held = mapped if narrow else max(0, summed(sources, wide) - inputs)
        result = kept(results, out) * (number + 1 < train.layers)
        most = max(most, inputs + held + result * (2 if train.head == "linear" else 1))
        inputs = result
    return most + _tiles_bytes(case, workspace)


def tile_rows(row_bytes: int) -> int:
    """Returns the number of rows of a tile, a power of two: it depends on the bytes of a row alone."""
    least, most = TILE_ROWS
    fitting = max(1, TILE_BYTES // max(1, row_bytes))
    return min(most, max(least, 1 << (fitting.bit_length() - 1)))


def _tiles_bytes(case: Case, workspace: int) -> int:
    """Returns the bytes of the tiles that threads compute with, of those that wait, and of the windows of the features' file."""
    train, sizes = case.semantic.train, case.sizes
    threads = max(1, min(case.threads, workspace // 4 // TILE_BYTES))
    row_bytes = max(sizes.width, train.hidden) * item_bytes(train)
    rows = min(sizes.num_nodes, tile_rows(row_bytes))
    # Of each thread its rows, and its sums or results.
    tiles = AHEAD_BYTES + (1 + 2 * threads) * rows * row_bytes
    edges = SKEW * TILE_EDGE_BYTES * sizes.num_edges * rows // max(1, sizes.num_nodes)
    blocks = min(workspace // 4, threads * edges, TILE_EDGE_BYTES * sizes.num_edges)
    return min(tiles, 3 * sizes.num_nodes * row_bytes) + blocks + _windows_bytes(case)


def _windows_bytes(case: Case) -> int:
    return 0 if case.execution.features == "memory" else min(WINDOW_BYTES, case.sizes.feature_bytes)


def layer_rows(train: TrainConfig, number: int, wide: int, out: int) -> tuple[int, int]:
    """Returns (columns of the rows that a layer sums in place of its inputs, those of its nodes' terms); (0, 0) if it sums its inputs.

    Args:
        wide, out: columns that it reads and gives.
    """
    kind, residual = train.model, out * bool(train.residual)
    if kind == "gat":
        averaged = number + 1 == train.layers and train.head != "linear"
        return out * (train.heads if averaged else 1), train.heads + residual
    if kind not in ("sage", "gcn", "gin") or out >= wide:
        return 0, 0
    return out, {"sage": out, "gcn": residual, "gin": out + residual}[kind]


def _edge_range_bytes(case: Case) -> int:
    """Returns the bytes of an edge of a range with its row, its id and its place, and while its place is found; 0 without rows of edges."""
    train = case.semantic.train
    kept = ID_BYTES + PLACE_BYTES + LISTED_BYTES + SORTED_BYTES
    return (edge_row_bytes(train, case.sizes) + kept) * train.edge_features


def _gathered_bytes(case: Case, workspace: int) -> int:
    """Returns the bytes of a range that gathers its sources, and of the sets of rows of this process's nodes."""
    train, item, sizes = case.semantic.train, item_bytes(case.semantic.train), case.sizes
    ranks = max(1, case.ranks)
    nodes, edges = -(-sizes.num_nodes // ranks), -(-sizes.num_edges // ranks)
    if is_reference(train.model):
        return min(workspace // 2, (edges + nodes) * max(sizes.width, train.hidden) * item)
    share, most, inputs = workspace // 12, 0, 0
    for number, (wide, out) in enumerate(layer_widths(train, sizes.width, case.num_classes)):
        narrow, own = layer_rows(train, number, wide, out)
        width = narrow or wide
        sets = [width * bool(narrow), own, out * (number + 1 < train.layers)]
        held = sum(num_bytes for each in sets if (num_bytes := nodes * each * item) <= share)
        counted = min(edges, workspace // 2 // (2 * item * width + EDGE_BYTES))
        ending = -(-nodes * counted // max(1, edges))
        # Rows of sources are there once as they are read and once in the order of the block.
        rows = 2 * min(sizes.num_nodes, counted + ending) * width + 4 * ending * out
        of_edges = counted * _edge_range_bytes(case)
        most = max(most, inputs + held + min(workspace // 2, rows * item + counted * EDGE_BYTES) + of_edges)
        inputs = nodes * out * item if nodes * out * item <= share else 0
    read = min(workspace // 12, sizes.num_nodes * sizes.width * item)
    return most + read + min(3 * TILE_BYTES, 3 * sizes.num_nodes * sizes.width * item) + _windows_bytes(case)


QUERIES, CANDIDATES = 384, 1536
"""Ends and candidates of a tile of scores: multiples of the rows and columns that a product keeps in registers."""
RANKED_AT_ONCE = 1 << 16
"""Links that are ranked, or scored, at once."""
LINK_BYTES, KNOWN_BYTES = 16, 96
"""Bytes of a link on each node's side, as numbers that are sorted once; and of these while they are sorted."""
DRAWN_BYTES = 100
"""Bytes of a pair of a batch while its ends are told apart: ids, their order, and places."""
SCORED_COPIES, LINK_ROW_BYTES = 6, 160
"""Rows of the ends of links that are scored at once, and bytes of their numbers, ranks and scores."""
END_SKEW = 4
"""Known ends of the end of a link over the mean of all nodes, if the graph is not built."""


def rank_bytes(queries: int, columns: int, known: int = 0, item: int = 4) -> int:
    """Returns the bytes that ranks of some queries take besides the rows of the nodes.

    Args:
        queries: number n of edges of one side.
        known: number of known candidates of all queries.
    """
    tile = QUERIES * CANDIDATES * 2 * item + (QUERIES + CANDIDATES) * columns * item
    return tile + queries * (2 * columns * item + item + 72) + 72 * known


def score_bytes(case: Case) -> int:
    """Returns the bytes of the ranks and scores of the links of an evaluation besides the rows of the nodes, of one process."""
    train, sizes = case.semantic.train, case.sizes
    item = item_bytes(train)
    scored = [sizes.num_valid, sizes.num_test, *([sizes.num_train] if train.score_train or not sizes.num_valid else [])]
    at_once = min(max(scored), RANKED_AT_ONCE)
    if train.link_head in LABEL_HEADS:
        return at_once * SCORED_COPIES * train.hidden * item + LINK_ROW_BYTES * sum(scored)
    ranked = rank_bytes(at_once, train.hidden, round(at_once * _known_ends(sizes)), item)
    more = {"mlp": 2 * CANDIDATES * train.hidden, **dict.fromkeys(DISTANCE_HEADS, QUERIES * CANDIDATES)}
    ranked += more.get(train.link_head, 0) * item
    return max(ranked, at_once * SCORED_COPIES * train.hidden * item) + LINK_ROW_BYTES * sum(scored)


def link_terms(case: Case) -> list[Term]:
    """Returns the terms of what each process knows of all links, and of the pairs of a batch while they are drawn."""
    train, sizes = case.semantic.train, case.sizes
    if not train.predicts_links:
        return []
    links, sampling = sizes.num_train + sizes.num_valid + sizes.num_test, case.semantic.sampling
    # The training's own with their reverses, and those of all splits by either end.
    known = sizes.num_train * (2 * sizes.id_bytes + 1 + LINK_BYTES) + 2 * links * LINK_BYTES + links * KNOWN_BYTES
    by_degree = 16 * sizes.num_nodes * (sampling is not None and sampling.negatives == "degree")
    samplers = 1 if case.batch.count == 1 else case.samplers
    drawn = samplers * case.batch.pairs * DRAWN_BYTES
    return [
        Term("links and what is known of them", case.ranks * (known + by_degree), bound=not sizes.exact),
        Term("pairs while they are drawn", case.ranks * drawn, "[sampling] batch_size", bound=True),
    ]


def _known_ends(sizes: Sizes) -> float:
    """Returns the mean number of known other ends of an end of a link: ends of many links are met as often as they have links."""
    graph = sizes.artifacts.get("graph")
    if graph is None:
        return END_SKEW * 2 * sizes.num_edges / max(1, sizes.num_nodes)
    degrees = np.asarray(graph.array("in_degree")).astype(np.float64) + graph.array("out_degree")
    return float((degrees**2).sum() / max(1.0, degrees.sum()))
