"""What partitions take of the machine."""

from __future__ import annotations

from typing import Any

from graphmill.assets.building.needs import FIGURE_BYTES, STEP_BYTES, Need, Sizes, Term, libraries
from graphmill.assets.partitions.method import choose_method, metis_bytes
from graphmill.kernels.ranges import NODES_AT_ONCE

METHOD = "[partitions] method"
METIS_TIMES = 30
"""How many times as long METIS takes for an edge as the stream does (docs/log.md)."""


def partitions_need(semantic: Any, execution: Any, sizes: Sizes) -> Need:
    """Returns the need of the partitions stage by method; METIS works on a copy of the graph, in a process of its own."""
    nodes, graph = sizes.num_nodes, (sizes.num_nodes, sizes.num_edges, _undirected(sizes))
    method = choose_method(semantic.method, *graph).method
    drawn = Term(what="parts, and random ones beside them", num_bytes=8 * nodes + 40 * min(nodes, NODES_AT_ONCE))
    phases = [
        (libraries(), drawn),
        (libraries(STEP_BYTES + FIGURE_BYTES), Term(what="parts", num_bytes=8 * nodes)),
    ]
    if method == "ldg":
        phases.append(
            (libraries(), Term(what="parts of two passes, and training nodes", num_bytes=9 * nodes, key=METHOD))
        )
    if method in ("metis", "metis-balanced"):
        phases.append((libraries(), Term(what="METIS", num_bytes=metis_bytes(*graph), key=METHOD, at_most=True)))
    work = sizes.num_edges * (METIS_TIMES if method in ("metis", "metis-balanced") else 1)
    scratch = 24 * nodes if method == "ldg" else 0
    return Need(name="partitions", phases=tuple(phases), stored=4 * nodes, scratch=scratch, work=work)


def _undirected(sizes: Sizes) -> bool:
    """Returns whether the graph has the reverse of each edge."""
    if "graph" in sizes.artifacts:
        return bool(sizes.artifacts["graph"].config.get("undirected", False))
    return bool(getattr(sizes.configs.get("graph"), "undirected", False))
