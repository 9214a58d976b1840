"""What alias tables take of the machine."""

from typing import Any

from graphmill.assets.costs.needs import LIBRARIES, Need, Sizes, Term

EDGE_BYTES = 57
"""Bytes for each edge of a range that its checks take."""


def tables_need(semantic: Any, execution: Any, sizes: Sizes, range_edges: int) -> Need:
    """Returns the need of the sampling_tables stage, which makes and checks the tables of `range_edges` edges together."""
    of_nodes = 8 * sizes.num_nodes if semantic.weights != "edge" else 0
    phase = (
        LIBRARIES,
        Term("a range of edges", EDGE_BYTES * min(range_edges, sizes.num_edges), bound=not sizes.exact),
        Term("degrees, and neighbours with weight", 11 * sizes.num_nodes),
        Term("weights of nodes", of_nodes),
    )
    stored = 8 * sizes.num_edges + 4 * sizes.num_nodes
    return Need(
        name="sampling_tables", phases=(phase,), stored=stored, stored_at_most=not sizes.exact, work=sizes.num_edges
    )
