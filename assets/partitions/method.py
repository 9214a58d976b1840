"""The method of `method = "auto"`: METIS as long as its memory stays below a bound, else the stream.

The choice depends on the graph alone, and not on the machine: a version of partitions names the same parts everywhere, and the ranks of a
training that different machines share find the same artifact. A machine with less memory than METIS needs is told so; `method = "ldg"`
needs little.
"""

from typing import NamedTuple

from graphmill.assets.partitions.config import LEAST_CLUSTERS, Method
from graphmill.assets.sizes import format_bytes

AUTO_BYTES = 4 << 30
"""Most bytes that METIS may take for "auto" to choose it."""
NODES_PER_CLUSTER = 10
"""Nodes per node that METIS gets. With 100 the cut of nested communities was 1.28 times that of METIS, with 20 it was 1.05."""
MOST_CONTRACTED_EDGES, EDGES_PER_CLUSTER = 1 << 24, 16
"""Most edges between clusters that METIS gets, where clusters can be joined: in all, and for each that `contract_to` allows."""
BYTES_PER_EDGE, BYTES_PER_NODE = 150, 200
"""Bytes that METIS and its preparation take at most for each edge of the graph with reverses, and for each node (docs/log.md)."""


class Choice(NamedTuple):
    """The outcome of a choice of method, and the reason, "" if the table names the method."""

    method: Method
    why: str = ""


def choose_method(method: Method, num_nodes: int, num_edges: int, undirected: bool) -> Choice:
    """Returns the method that a table means.

    Args:
        undirected: whether the graph has the reverse of each edge; else METIS gets up to twice as many edges.
    """
    if method != "auto":
        return Choice(method)
    needed = metis_bytes(num_nodes, num_edges, undirected)
    found, than = ("metis", "of at most") if needed <= AUTO_BYTES else ("ldg", "above")
    return Choice(found, f"METIS would take up to {format_bytes(needed)}, {than} {format_bytes(AUTO_BYTES)}")


def say_choice(method: Method, num_nodes: int, num_edges: int, undirected: bool) -> str:
    """Returns the sentence about the method of a graph that is not built yet and may have fewer edges; "" if the table names the method."""
    found, why = choose_method(method, num_nodes, num_edges, undirected)
    if not why:
        return ""
    less = ' (with fewer edges it may be "metis")' if found != "metis" else ""
    return f'partitions: method = "auto" is "{found}": {why}{less}'


def say_rule(method: Method) -> str:
    """Returns the sentence about the method of a graph of which nothing is known; "" if the table names the method."""
    if method != "auto":
        return ""
    bound = format_bytes(AUTO_BYTES)
    return f'partitions: method = "auto" is "metis" if that takes at most {bound}, else "ldg" (`graphmill inspect` says which)'


def metis_bytes(num_nodes: int, num_edges: int, undirected: bool) -> int:
    """Returns the bytes that METIS and its preparation take at most; arguments as in `choose_method`."""
    return BYTES_PER_NODE * num_nodes + BYTES_PER_EDGE * num_edges * (1 if undirected else 2)


def contracted_sizes(num_nodes: int, parts: int, contract_to: int | None) -> tuple[int, int]:
    """Returns the numbers of clusters, and of edges between them, that METIS gets at most where clusters can be joined."""
    if contract_to is not None:
        return contract_to, EDGES_PER_CLUSTER * contract_to
    return max(num_nodes // NODES_PER_CLUSTER, LEAST_CLUSTERS * parts), MOST_CONTRACTED_EDGES


def contracted_terms(
    num_nodes: int, num_edges: int, undirected: bool, parts: int, contract_to: int | None
) -> tuple[int, int, int]:
    """Returns the bytes that clusters take at most, those of METIS on them, and those of scratch files; arguments as in `choose_method`."""
    both = num_edges * (1 if undirected else 2)
    clusters, edges = contracted_sizes(num_nodes, parts, contract_to)
    kept = 5 * num_nodes  # the cluster of each node, and whether it is a training node
    return 44 * num_nodes, kept + metis_bytes(min(clusters, num_nodes), min(edges, both), True), 28 * both
