"""What chunks take of the machine: while parts are cut, while a schedule is searched, and while steps are written."""

from typing import Any

from graphmill.assets.chunks.build import bits_bytes, lists_bytes
from graphmill.assets.chunks.read import number_of_parts
from graphmill.assets.costs.needs import DRAWING, LIBRARIES, Need, Sizes, Term
from graphmill.kernels.ranges import NODES_AT_ONCE

RANGE_BYTES = 100
"""Bytes per node of a range of nodes that are cut at one time."""
ORDER_BYTES = {"id": 0, "rcm": 27, "metis": 27}
"""Bytes per node of an order of nodes other than that of ids, while it is made and cut."""


def chunks_need(semantic: Any, execution: Any, sizes: Sizes) -> Need:
    """Returns the need of the chunks stage."""
    table, parts, nodes, edges = semantic.table, number_of_parts(sizes), sizes.num_nodes, sizes.num_edges
    steps, key = table.chunks_per_part, "[chunks] chunks_per_part"
    # A chunk has at most so many different neighbours, and its own nodes.
    around = min(nodes, (edges + nodes) // (parts * steps) + 1)
    order = Term("order of nodes", ORDER_BYTES[table.order] * nodes + RANGE_BYTES * min(nodes, NODES_AT_ONCE))
    bits = bits_bytes(nodes, parts * steps)
    enough = min(bits, lists_bytes(nodes, edges))
    writing = (
        # Two bitmaps with running counts for each device, and one of a step.
        Term("nodes in the buffers of two steps", nodes * (3 * parts + 1) // 8, "[partitions] parts"),
        Term("destinations and edges of two steps", 2 * (4 * edges + 16 * nodes) // steps, key, bound=not sizes.exact),
        Term("neighbours of two steps", 2 * 8 * parts * around, key, bound=True),
    )
    phases = (
        (LIBRARIES, order),
        (LIBRARIES, Term("sets of nodes and chunks", bits, key, enough=enough)),
        (LIBRARIES, *writing),
        (DRAWING, Term("stamps of nodes", 4 * nodes)),
    )
    stored = 4 * sizes.num_edges + 40 * sizes.num_nodes
    scratch = 0 if bits == enough else 2 * 2 * sizes.id_bytes * (edges + nodes) + 12 * nodes
    return Need(name="chunks", phases=phases, stored=stored, stored_at_most=True, scratch=scratch, work=edges)
