"""What the chunks of a full-graph pass take of the machine."""

from typing import Any

from graphmill.assets.costs.needs import DRAWING, LIBRARIES, Need, Sizes, Term


def chunks_need(semantic: Any, execution: Any, sizes: Sizes) -> Need:
    """Returns the need of the chunks stage."""
    table, parts, nodes, edges = semantic.table, number_of_parts(sizes), sizes.num_nodes, sizes.num_edges
    steps, key = table.chunks_per_part, "[chunks] chunks_per_part"
    # A chunk has at most so many different neighbours, and its own nodes.
    around = min(nodes, (edges + nodes) // (parts * steps) + 1)
    order = Term("order and chunks of nodes", 27 * nodes)
    bits = Term("bits of nodes and chunks", nodes * parts * steps // 8)
    writing = (
        order,
        Term("destinations and edges of two steps", 2 * (4 * edges + 16 * nodes) // steps, key, bound=not sizes.exact),
        Term("neighbours of two steps", 2 * 8 * parts * around, key, bound=True),
    )
    phases = (LIBRARIES, order, bits), (LIBRARIES, *writing), (DRAWING, order)
    stored = 4 * sizes.num_edges + 40 * sizes.num_nodes
    return Need(name="chunks", phases=phases, stored=stored, stored_at_most=True, work=sizes.num_edges)


def cut_of(sizes: Sizes) -> tuple[int, int]:
    """Returns (number of parts, chunks of each) of built chunks, else by the tables; (1, 1) without any."""
    if "chunks" in sizes.artifacts:
        parts, each = sizes.artifacts["chunks"].array("schedule").shape
        return parts, each
    config = sizes.configs.get("chunks")
    return number_of_parts(sizes), 1 if config is None else config.table.chunks_per_part


def number_of_parts(sizes: Sizes) -> int:
    """Returns the number of parts of the partitions that a step reads, 1 if it reads none."""
    if "partitions" in sizes.artifacts:
        return int(sizes.artifacts["partitions"].config["parts"])
    config = sizes.configs.get("partitions")
    return 1 if config is None else config.parts
