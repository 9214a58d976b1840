"""What building a graph takes: formulas of memory and disk."""

from __future__ import annotations

from typing import Any

from graphmill.assets.costs.needs import DRAWING, LIBRARIES, Need, Sizes, Term
from graphmill.assets.graph.checks import SLICE_EDGES
from graphmill.assets.graph.links import LINK_BYTES

EDGE_BYTES, NODE_BYTES = 36, 4
"""Bytes that the checks take for each of them, and those of quantiles for each node of the graph."""


def graph_need(semantic: Any, execution: Any, sizes: Sizes) -> Need | None:
    """Returns the need of the graph stage: of the source, of the sort of its edges, or of the checks and figures afterwards.

    A source says of itself what it takes (assets/sources/survey.py).
    """
    survey, nodes = sizes.survey, sizes.num_nodes
    if survey is None:
        return None
    linked = (
        ()
        if semantic.links is None
        else (Term("links that are split", LINK_BYTES * sizes.num_edges // (1 + semantic.undirected), bound=True),)
    )
    if survey.phases:
        held, edges = survey.held_after, EDGE_BYTES * min(SLICE_EDGES, sizes.num_edges)
        phases = (
            *((LIBRARIES, *phase, *linked) for phase in survey.phases),
            (LIBRARIES, *held, Term("edges that are checked", edges)),
            (LIBRARIES, *held, Term("degrees in order", NODE_BYTES * nodes)),
            (DRAWING, *held),
        )
    else:
        phases = (
            (DRAWING, Term("source, and sort of its edges", survey.source_bytes, survey.key, bound=True), *linked),
        )
    stored, scratch = survey.topology_bytes + 20 * nodes, survey.scratch_bytes
    return Need(name="graph", phases=phases, stored=stored, stored_at_most=True, scratch=scratch, work=sizes.num_edges)
