"""What a training by `fresh` takes: half of the queue for sampled blocks, half for the batch that is trained on, and the arena."""

from __future__ import annotations

from graphmill.assets.costs.needs import Term
from graphmill.assets.sizes import parse_size
from graphmill.kernels.rows.aligned import space_for
from graphmill.trainers.recipe.costs.course import Case
from graphmill.trainers.recipe.costs.forecast import Costs, Links, Seconds
from graphmill.trainers.recipe.costs.memory import (
    BATCH,
    evaluation_terms,
    model_terms,
    process_terms,
    sampler_terms,
    source_terms,
)
from graphmill.trainers.recipe.costs.step import item_bytes
from graphmill.trainers.techniques.disk_volumes import pruned_links, reader_bytes
from graphmill.trainers.techniques.fresh.expected import expected_history
from graphmill.trainers.techniques.fresh.settings import WINDOW_BYTES
from graphmill.trainers.techniques.row_links import added
from graphmill.trainers.techniques.seconds import Pieces, evaluated

WINDOW_COPIES = 3
"""Copies of packed rows on their way to the arena's batch: as read, as staged and put together."""


def _memory(case: Case) -> list[Term]:
    # A batch whose rows are smaller than the windows in which they come takes no more than they do.
    likely = WINDOW_COPIES * case.batch.inputs * case.row_bytes + reader_bytes(case, 1)
    return [
        *process_terms(case),
        *_pruned_terms(case),
        window_term(case, 1, likely),
        *arena_terms(case),
        *model_terms(case, extra_rows=history_bytes(case)),
        *sampler_terms(case),
        *source_terms(case, packed=case.settings.rows == "packed"),
    ]


def window_term(case: Case, trainers: int, likely: int | None = None) -> Term:
    """Returns the term of the windows of rows that are on their way to the arena's batches, of some trainers."""
    most = trainers * WINDOW_BYTES * (WINDOW_COPIES if case.settings.rows == "packed" else 1)
    return Term("rows on their way to a batch", most, bound=True, likely=None if likely is None else min(likely, most))


def _pruned_terms(case: Case) -> list[Term]:
    blocks = case.batch.block_bytes(case.sizes.id_bytes, 0)
    waiting = case.held(case.shared_bytes(2, blocks), blocks, case.batch.count)
    ready = space_for(case.batch.inputs * case.row_bytes) + case.block_bytes
    return [
        Term("the batch that is trained on", ready, BATCH, bound=not case.batch.exact),
        Term("blocks of sampled batches", (waiting + case.samplers) * blocks, "queue", bound=True),
        *evaluation_terms(case, ready),
    ]


def arena_terms(case: Case) -> list[Term]:
    """Returns the terms of the arenas of all ranks."""
    train, settings, ranks = case.semantic.train, case.settings, case.ranks
    size, cached = parse_size(settings.arena, case.sizes.feature_bytes), train.layers - 1
    slots = size // max(1, train.hidden * item_bytes(train)) if cached else 0
    # Places of embeddings and of features, and scores of embeddings.
    each = 4 * cached + 4 * settings.features + 4 * cached * settings.ranked
    index = each * case.sizes.num_nodes + 16 * slots
    return [
        # Pages that no row has entered take nothing.
        Term("arena", ranks * size, "[train.fresh] arena", bound=True),
        Term("places and scores of the arena's rows", ranks * index),
    ]


def history_bytes(case: Case) -> int:
    """Returns the bytes of rows between layers that wait for their gradients, and of these."""
    train = case.semantic.train
    return 2 * sum(case.batch.rows[1:-1]) * train.hidden * item_bytes(train)


def history_links(case: Case) -> Links:
    """Returns (link -> bytes of an epoch of the arena, and of the rows that it lacks; False)."""
    history = expected_history(case)
    if case.settings.rows == "packed":
        return added(history.arena_links, pruned_links(case, history.whole, history.below)), False
    return added(history.arena_links, history.table_links(case)), False


def behind(each: Pieces, threads: int) -> float:
    """Returns the seconds of a batch between two updates: pruned, gathered through a window and from there, and trained on."""
    history = expected_history(each.case)
    rows = (each.gather(threads) + each.gather(1)) * history.rows_share
    return each.speeds.prune + rows + each.handed(each.threads) * history.edges_share


def _seconds(case: Case) -> Seconds:
    each = Pieces(case)
    # Rows are read from disk behind the update before.
    waits = behind(each, each.threads) + each.rows_read(history_links(case)[0])
    share = expected_history(case).edges_share
    return each.named(share=share), each.count * max(each.prepare(1) / case.samplers, waits)


COSTS = Costs(memory=_memory, links=history_links, seconds=_seconds, evaluated=evaluated)
