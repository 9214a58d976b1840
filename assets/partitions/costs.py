"""What partitions take of the machine."""

from typing import Any

from graphmill.assets.costs.needs import DRAWING, LIBRARIES, Need, Sizes, Term
from graphmill.assets.partitions.method import choose_method, metis_bytes
from graphmill.kernels.ranges import NODES_AT_ONCE

METHOD = "[partitions] method"
METIS_TIMES = 30
"""How many times as long METIS takes for an edge as the stream does (docs/log.md)."""


def partitions_need(semantic: Any, execution: Any, sizes: Sizes) -> Need:
    """Returns the need of the partitions stage by method; METIS works on a copy of the graph, in a process of its own."""
    nodes, graph = sizes.num_nodes, (sizes.num_nodes, sizes.num_edges, _undirected(sizes))
    method = choose_method(semantic.method, *graph).method
    drawn = Term("parts, and random ones beside them", 8 * nodes + 40 * min(nodes, NODES_AT_ONCE))
    phases = [
        (LIBRARIES, drawn),
        (DRAWING, Term("parts", 8 * nodes)),
    ]
    if method == "ldg":
        phases.append((LIBRARIES, Term("parts of two passes, and training nodes", 9 * nodes, METHOD)))
    if method in ("metis", "metis-balanced"):
        phases.append((LIBRARIES, Term("METIS", metis_bytes(*graph), METHOD, bound=True)))
    work = sizes.num_edges * (METIS_TIMES if method in ("metis", "metis-balanced") else 1)
    scratch = 24 * nodes if method == "ldg" else 0
    return Need(name="partitions", phases=tuple(phases), stored=4 * nodes, scratch=scratch, work=work)


def _undirected(sizes: Sizes) -> bool:
    """Returns whether the graph has the reverse of each edge."""
    if "graph" in sizes.artifacts:
        return bool(sizes.artifacts["graph"].config.get("undirected", False))
    return bool(getattr(sizes.configs.get("graph"), "undirected", False))
