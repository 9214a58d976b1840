"""What packed chunks take of the machine."""

from typing import Any

from graphmill.assets.budgets.costs import budget_rows
from graphmill.assets.cache_plan.costs import planned_rows
from graphmill.assets.costs.needs import DRAWING, LIBRARIES, WORKER_BYTES, Need, Sizes, Term
from graphmill.assets.packed_chunks.config import GROUP_BYTES
from graphmill.assets.packed_chunks.distribute import MOST_BUFFER_BYTES, WAITING_THREADS, BufferSizes
from graphmill.assets.samples.costs import batches_read
from graphmill.kernels.rows.pages import PAGE_BYTES

BLOCK_BYTES = 1 << 20
PAIR_BYTES = 60
"""Bytes that a thread takes for each input of a batch that comes from disk, while it finds slots."""


def packed_need(semantic: Any, execution: Any, sizes: Sizes) -> Need | None:
    """Returns the need of the packed chunks stage: of the processes that pack groups side by side, at their fullest."""
    batches, plan, row = batches_read(sizes), planned_rows(sizes), sizes.row_bytes
    if batches is None or plan is None:
        return None
    placed = budget_rows(sizes, "device") + budget_rows(sizes, "host")
    stored_rows = plan.packed + plan.cached
    groups = min(max(1, semantic.groups or -(-stored_rows * row // GROUP_BYTES)), max(1, plan.segments))
    # Batches of different parts are never of one group, and the static tiers then have a pass of their own.
    passes = groups + (batches.parts if batches.parts > 1 else 0)
    workers, bound = min(execution.workers, passes), not plan.exact
    buffers, count = BufferSizes.of(execution.process_bytes), -(-batches.count // groups)
    heads = 4 * batches.inputs + 2 * PAGE_BYTES * batches.count
    # What a chunk holds on average; a chunk that is larger than its share of the buffers is written in pieces.
    chunk = (heads + plan.packed * row) // max(1, batches.count) + PAGE_BYTES
    share = max(PAGE_BYTES, min(MOST_BUFFER_BYTES, buffers.buffer_bytes // max(1, count)))
    spans = min(buffers.span_bytes, (placed + -(-plan.cached // groups)) * row)
    most, busy = (
        min(batches.most_inputs, -(-stored_rows // max(1, batches.count))),
        execution.threads_each + WAITING_THREADS,
    )
    listed = -(-plan.packed // groups) + 2 * (placed + -(-plan.cached // groups))
    each = (
        Term("two ranges of the features", min(2 * buffers.range_bytes, sizes.feature_bytes), "[packed] memory"),
        Term("buffers of chunks", count * min(chunk, share), bound=bound),
        Term("rows in the order of caches and images", spans, bound=bound),
        Term("lists of rows", 4 * listed + 4 * sizes.num_nodes * (sizes.num_rows < sizes.num_nodes), "[packed] groups", bound),
        Term("slots of nodes", 4 * sizes.num_nodes),
        Term("batches and pieces of the threads", busy * (BLOCK_BYTES + batches.most_bytes + PAIR_BYTES * most), bound=bound),
    )  # fmt: skip
    processes = () if workers == 1 else (Term(f"{workers} processes that pack", workers * WORKER_BYTES),)
    stored = heads + (stored_rows + placed) * row + PAGE_BYTES * (batches.count + plan.segments)
    return Need(
        name="packed_chunks",
        phases=((LIBRARIES, *processes, *(term.times(workers) for term in each)), (DRAWING,)),
        stored=stored,
        stored_at_most=bound,
        work=passes * sizes.feature_bytes + stored,
    )
