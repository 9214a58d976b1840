"""What links take in a training besides its batches, without torch: what is known of them, and their scores.

An evaluation has the rows of all nodes, in memory or in a file (trainers/inference/exact.py), and ranks some links at a time: ends that
stay, and one tile of their scores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphmill.assets.costs.needs import Sizes, Term
from graphmill.trainers.recipe.architecture import DISTANCE_HEADS
from graphmill.trainers.recipe.costs.step import item_bytes

if TYPE_CHECKING:
    from graphmill.trainers.recipe.costs.course import Case

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
SKEW = 4
"""Known ends of the end of a link over the mean of all nodes, if the graph is not built."""


def rank_bytes(queries: int, columns: int, known: int = 0, item: int = 4) -> int:
    """Returns the bytes that ranks of some queries take besides the rows of the nodes.

    Args:
        queries: number n of edges of one side.
        columns: columns of a row, and of a query.
        known: number of known candidates of all queries.
        item: bytes of a value.
    """
    tile = QUERIES * CANDIDATES * 2 * item + (QUERIES + CANDIDATES) * columns * item
    return tile + queries * (2 * columns * item + item + 72) + 72 * known


def score_bytes(case: Case) -> int:
    """Returns the bytes of the ranks and scores of the links of an evaluation besides the rows of the nodes, of one process."""
    train, sizes = case.semantic.train, case.sizes
    item = item_bytes(train)
    scored = [sizes.num_valid, sizes.num_test, *([sizes.num_train] if train.score_train or not sizes.num_valid else [])]
    at_once = min(max(scored), RANKED_AT_ONCE)
    if train.link_head == "label":
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
        return SKEW * 2 * sizes.num_edges / max(1, sizes.num_nodes)
    degrees = np.asarray(graph.array("in_degree")).astype(np.float64) + graph.array("out_degree")
    return float((degrees**2).sum() / max(1.0, degrees.sum()))
