"""Whether batches are drawn by passes over the edges in order (assets/sampling/sequential.py), and what that takes."""

from collections.abc import Mapping

from graphmill.assets.costs.needs import EdgePasses, Sizes, Term
from graphmill.assets.sampling.bounds import BatchBound
from graphmill.assets.sampling.config import LEAST_MEMORY, Neighbours
from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.system.control_group import fits_memory, free_bytes

EDGE_ARRAYS = {"weights": "weight", "edge_types": "edge_type", "edge_ids": "edge_id"}
"""Array of the topology -> the field of a block that has it per edge."""
MOST_WINDOW_BYTES = 64 << 20
FACTS = ("passes", "groups_by_layer", "pass_seconds", "topology_read_bytes", "spilled_bytes", "spill_read_bytes")
"""Names of the facts about passes in the record of a build."""
READER_BYTES = 48 << 20
"""Memory of the readers, and of the blocks on both ends of windows."""


def granted_bytes(how: Neighbours) -> int:
    """Returns the memory of passes: `memory_limit`, but no more than half of what is free, and at least the least."""
    limit, free = parse_size(how.memory_limit), free_bytes()
    return limit if free is None else min(limit, max(LEAST_MEMORY, free // 2))


def window_bytes(limit: int) -> int:
    """Returns the bytes of one of two windows of edges within a memory limit."""
    return min(MOST_WINDOW_BYTES, limit // 8)


def is_sequential(how: Neighbours, inputs: Mapping[str, Artifact]) -> bool:
    """Returns whether batches are drawn by passes: if that is asked for, or if the topology does not fit into the memory."""
    return _chosen(how, _topology_bytes(inputs["graph"], inputs.get("sampling_tables")))


def plans_passes(how: Neighbours, sizes: Sizes) -> bool:
    """Returns the same before the graph exists, by what is known of its size."""
    return _chosen(how, pass_bytes(sizes))


def pass_terms(how: Neighbours, threads: int, largest: BatchBound) -> tuple[Term, ...]:
    """Returns the memory of passes: the limit, the readers, and per thread the largest batch while it is put together."""
    batch = 24 * largest.num_edges + 48 * largest.inputs
    return (
        Term(
            "nodes of a group, and windows of edges",
            granted_bytes(how),
            "[sampling] memory_limit",
            bound=True,
        ),
        Term("readers of edges", READER_BYTES),
        Term("drawn batches that are put together", threads * batch, "[sampling] batch_size", bound=True),
    )


def likely_passes(how: Neighbours, sizes: Sizes, batches: int, largest: BatchBound) -> EdgePasses:
    """Returns the passes that draw batches together, at most: one for each layer and group of batches (assets/sampling/sequential.py)."""
    half = granted_bytes(how) // 2
    in_group = [max(1, half // max(1, sizes.id_bytes * rows)) for rows in largest.rows[1:]]
    count = sum(-(-batches // each) for each in in_group)
    return EdgePasses(count, count * pass_bytes(sizes))


def spilled_bytes(sizes: Sizes, num_edges: int, num_nodes: int) -> int:
    """Returns the bytes of disk for the drawn edges of batches, at most."""
    return (sizes.id_bytes + 4) * num_edges + 8 * num_nodes


def _chosen(how: Neighbours, topology_bytes: int) -> bool:
    if how.topology != "auto":
        return how.topology == "sequential"
    return not how.without_passes() and not fits_memory(topology_bytes)


def pass_bytes(sizes: Sizes) -> int:
    """Returns the bytes that a pass reads of a graph that may not exist yet."""
    if (graph := sizes.artifacts.get("graph")) is not None:
        return _topology_bytes(graph, sizes.artifacts.get("sampling_tables"))
    return sizes.topology_bytes


def _topology_bytes(graph: Artifact, tables: Artifact | None) -> int:
    """Returns the bytes of the arrays that samplers of a graph read."""
    names = ("indptr", "indices", *EDGE_ARRAYS)
    found = sum(graph.files[f"{name}.npy"]["bytes"] for name in names if f"{name}.npy" in graph.files)
    return found + (tables.files["table.npy"]["bytes"] if tables is not None else 0)
