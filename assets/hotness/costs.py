"""What ranking the nodes takes of the machine."""

from typing import Any

from graphmill.assets.costs.needs import DRAWING, LIBRARIES, Need, Sizes, Term
from graphmill.assets.hotness.config import counted_node_bytes, needed_bytes
from graphmill.assets.sampling.bounds import batch_bound, even_seeds


def hotness_need(semantic: Any, execution: Any, sizes: Sizes) -> Need:
    """Returns the need of the hotness stage."""
    table, sampling, edges, batches = semantic.hotness, semantic.sampling, sizes.num_edges, 0
    num_bytes, stored = needed_bytes(semantic, sizes.num_nodes, execution.threads)
    if table.presamples and sampling is not None:
        count, seeds = even_seeds(sizes.num_train, sampling.batch_size)
        each = batch_bound(sampling, seeds, sizes)
        batches = min(execution.threads, count) * each.record_bytes
        edges = (table.rounds + table.evaluate_epochs) * count * each.num_edges
        edges += len(sampling.fanouts) * sizes.num_edges * (table.policy == "bayes" or table.evaluate_epochs > 0)
    counting = (
        LIBRARIES,
        Term("counts and ranking of nodes", num_bytes, "[hotness] policy"),
        Term("a batch per thread", batches, "[sampling] batch_size", bound=True),
    )
    counts = counted_node_bytes(semantic) * sizes.num_nodes
    figure = (
        DRAWING,
        Term("counts of nodes", counts, "[hotness] policy"),
    )
    return Need(
        name="hotness",
        phases=(counting, figure),
        stored=stored,
        scratch=_scratch_bytes(semantic) * sizes.num_nodes,
        work=edges,
    )


def _scratch_bytes(semantic: Any) -> int:
    """Returns the bytes per node of the scratch files: of sorting, and of the states of `bayes` and PageRank."""
    policy, sampling = semantic.hotness.policy, semantic.sampling
    if policy == "pagerank":
        return 12 + 16
    if policy != "bayes" or sampling is None:
        return 12
    by_weight, walks = sampling.method == "weighted", sampling.method == "walks"
    return 12 + 40 + 8 * len(sampling.fanouts) * by_weight + 24 * walks
