"""What a graph takes of the machine while it is built: by what its source says of itself (assets/sources/survey.py)."""

from typing import Any

from graphmill.assets.costs.needs import DRAWING, LIBRARIES, Need, Sizes, Term
from graphmill.assets.graph.checks import SLICE_EDGES

EDGE_BYTES, NODE_BYTES = 36, 4
"""Bytes that the checks take for each of them, and those of quantiles for each node of the graph."""


def graph_need(semantic: Any, execution: Any, sizes: Sizes) -> Need | None:
    """Returns the need of the graph stage: of the source, of the sort of its edges, or of the checks and figures afterwards."""
    survey, nodes = sizes.survey, sizes.num_nodes
    if survey is None:
        return None
    if survey.phases:
        held, edges = survey.held_after, EDGE_BYTES * min(SLICE_EDGES, sizes.num_edges)
        phases = (
            *((LIBRARIES, *phase) for phase in survey.phases),
            (LIBRARIES, *held, Term("edges that are checked", edges)),
            (LIBRARIES, *held, Term("degrees in order", NODE_BYTES * nodes)),
            (DRAWING, *held),
        )
    else:
        phases = ((DRAWING, Term("source, and sort of its edges", survey.source_bytes, survey.key, bound=True)),)
    stored, scratch = survey.topology_bytes + 20 * nodes, survey.scratch_bytes
    return Need(name="graph", phases=phases, stored=stored, stored_at_most=True, scratch=scratch, work=sizes.num_edges)
