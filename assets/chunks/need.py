"""What the chunks of a full-graph pass take of the machine."""

from __future__ import annotations

from typing import Any

from graphmill.assets.building.needs import FIGURE_BYTES, STEP_BYTES, Need, Sizes, Term, libraries


def chunks_need(semantic: Any, execution: Any, sizes: Sizes) -> Need:
    """Returns the need of the chunks stage."""
    table, parts, nodes, edges = semantic.table, number_of_parts(sizes), sizes.num_nodes, sizes.num_edges
    steps, key = table.chunks_per_part, "[chunks] chunks_per_part"
    # A chunk has at most so many different neighbours, and its own nodes.
    around = min(nodes, (edges + nodes) // (parts * steps) + 1)
    order = Term(what="order and chunks of nodes", num_bytes=27 * nodes)
    bits = Term(what="bits of nodes and chunks", num_bytes=nodes * parts * steps // 8)
    writing = (
        order,
        Term(
            what="destinations and edges of two steps",
            num_bytes=2 * (4 * edges + 16 * nodes) // steps,
            key=key,
            at_most=not sizes.exact,
        ),
        Term(what="neighbours of two steps", num_bytes=2 * 8 * parts * around, key=key, at_most=True),
    )
    phases = (libraries(), order, bits), (libraries(), *writing), (libraries(STEP_BYTES + FIGURE_BYTES), order)
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
