"""What a training by `fresh` takes: half of the queue for sampled blocks, half for the batch that is trained on, and the arena."""

from dataclasses import replace

from graphmill.assets.costs.needs import Term
from graphmill.assets.sizes import parse_size
from graphmill.kernels.rows.aligned import space_for
from graphmill.trainers.recipe.costs.course import Case
from graphmill.trainers.recipe.costs.device import batch_terms
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
from graphmill.trainers.techniques.batch_costs import Pieces, added, edge_links, evaluated
from graphmill.trainers.techniques.fresh.expected import expected_history
from graphmill.trainers.techniques.fresh.settings import WINDOW_BYTES, WINDOW_ROWS, kept_layers, window_bytes
from graphmill.trainers.techniques.stored_costs import pruned_links, reader_bytes

WINDOW_COPIES = 3
"""Windows of packed rows on their way to the arena's batch: as read, as staged and put together."""


def _memory(case: Case) -> list[Term]:
    # A batch whose rows are smaller than the windows in which they come takes no more than they do.
    pruners = 1 + case.settings.lookahead
    likely = pruners * WINDOW_COPIES * case.batch.inputs * case.row_bytes + reader_bytes(case, pruners)
    return [
        *process_terms(case),
        *_pruned_terms(case),
        window_term(case, pruners, likely),
        *arena_terms(case),
        *model_terms(case, extra_rows=history_bytes(case)),
        *sampler_terms(case),
        *source_terms(case, packed=case.settings.rows == "packed"),
    ]


def window_term(case: Case, trainers: int, likely: int | None = None) -> Term:
    """Returns the term of the windows of rows that are on their way to the arena's batches, of some trainers."""
    if case.settings.rows != "packed":
        most = trainers * WINDOW_BYTES
    else:
        rows, there = max(case.sizes.row_bytes, case.row_bytes), case.semantic.train.device != "cpu"
        window = window_bytes(case.batch.inputs * rows, packed=True, there=there)
        most = trainers * WINDOW_COPIES * max(WINDOW_ROWS * rows, window)
    return Term("rows on their way to a batch", most, bound=True, likely=None if likely is None else min(likely, most))


def _pruned_terms(case: Case) -> list[Term]:
    blocks = case.batch.block_bytes(case.sizes.id_bytes, 0)
    waiting = case.held(case.shared_bytes(2, blocks), blocks, case.batch.count)
    rows = space_for(case.batch.inputs * case.row_bytes) + space_for(case.edge_bytes)
    ready, copies = rows + case.block_bytes, 0
    name = "the batch that is trained on"
    if case.settings.lookahead:
        # Copies of the embeddings that both read are rows between layers.
        ready, copies, name = 2 * ready, history_bytes(case), f"{name}, and the next one"
    return [
        Term(name, ready + copies, BATCH, bound=not case.batch.exact),
        Term("blocks of sampled batches", (waiting + case.samplers) * blocks, "queue", bound=True),
        *evaluation_terms(case, ready),
    ]


def arena_terms(case: Case) -> list[Term]:
    """Returns the terms of the arenas of all ranks."""
    train, settings, ranks = case.semantic.train, case.settings, case.ranks
    size, cached = parse_size(settings.arena, case.sizes.feature_bytes), kept_layers(train)
    slots = size // max(1, train.hidden * item_bytes(train)) if cached else 0
    # Places of embeddings and of features, and scores of embeddings.
    each = 4 * cached + 4 * settings.features + 4 * cached * settings.ranked
    index = each * case.sizes.num_nodes + 16 * slots
    return [
        # Pages that no row has entered take nothing.
        Term("arena", ranks * size, "[train.fresh] arena", bound=True),
        Term("places and scores of the arena's rows", ranks * index),
    ]


def arena_device_terms(case: Case) -> list[Term]:
    """Returns the terms of a device that has the arena, and the rows between layers until an update has read their gradients."""
    rows = history_bytes(case) * case.semantic.train.accumulate
    return [
        *arena_terms(replace(case, ranks=1)),
        Term("rows between layers", rows, BATCH, bound=True),
        Term("rows that batches read of the arena", history_bytes(case), BATCH, bound=True),
    ]


def history_bytes(case: Case) -> int:
    """Returns the bytes of rows between layers that wait for their gradients, and of these."""
    train = case.semantic.train
    return 2 * sum(case.batch.rows[1:-1]) * train.hidden * item_bytes(train)


def history_links(case: Case) -> Links:
    """Returns (link -> bytes of an epoch of the arena, and of the rows that it lacks; False)."""
    history = expected_history(case)
    if case.settings.rows == "packed":
        return added(history.arena_links, pruned_links(case, history.whole, history.below, history.chances)), False
    # Of edges as many as before pruning, a bound.
    return added(history.arena_links, history.table_links(case), edge_links(case)), False


def _loaded(each: Pieces, threads: int) -> float:
    """Returns the seconds in which a batch is pruned, and its rows gathered through a window and from there."""
    rows = (each.gather(threads) + each.gather(1)) * expected_history(each.case).rows_share
    return each.speeds.prune + rows


def behind(each: Pieces, threads: int) -> float:
    """Returns the seconds of a batch between two updates: pruned, gathered and trained on."""
    step = each.step(each.threads) if each.case.in_turn else each.handed(each.threads)
    return _loaded(each, threads) + step * expected_history(each.case).edges_share


def _seconds(case: Case) -> Seconds:
    each, share, links = Pieces(case), expected_history(case).edges_share, history_links(case)[0]
    named, sampling = each.named(share=share), each.prepare(1) / case.samplers
    read = max(each.rows_read(links), each.crossing(links))
    if case.settings.lookahead:
        loading, step = _loaded(each, 1), each.step(each.threads) * share
        work = each.prepare(1) + loading + each.step_work * share
        return named, each.side_by_side(sampling, loading + read, step, work=work)
    # Rows are read from disk, and cross a link, behind the update before.
    waits = behind(each, each.threads) + read
    return named, each.in_turn(waits) if case.in_turn else each.count * max(sampling, waits)


COSTS = Costs(
    memory=_memory, links=history_links, seconds=_seconds, evaluated=evaluated,
    device=lambda case: [*batch_terms(case), *arena_device_terms(case)])  # fmt: skip
